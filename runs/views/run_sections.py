"""The results of a run by operation: each has its headline, charts and table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from kernels.catalog import operations
from kernels.report import tables
from kernels.report.summary import Summary, summary
from runs.charts.run_charts import OF, drawn, has_limits, left_out
from runs.queries.measurements import StoredArm, StoredMeasured
from runs.views.columns import Columns


@dataclass(frozen=True)
class Section:
    """The results of one operation of a run. A run of one operation has one section, without a title."""

    operation: str
    title: str
    headline: Summary
    measurements: list[StoredMeasured]
    table: list[tables.Row]
    asked: Columns

    @cached_property
    def columns(self) -> Columns:
        return self.asked.on(self.unit, self.has_limits)

    @property
    def results(self) -> list[tuple[StoredMeasured, list[tuple[StoredArm, tables.Row]]]]:
        """Each measurement with its results and their rows, in the order that was asked for."""
        rows = iter(self.table)
        return [(m, self.columns.ordered(list(zip(m.results, rows, strict=False)))) for m in self.measurements]

    @property
    def unit(self) -> str:
        """The headline unit of the operation."""
        return self.table[0].unit

    @property
    def has_times(self) -> bool:
        return any(row.p50_ms is not None for row in drawn(self.table))

    @property
    def has_speedups(self) -> bool:
        return any(row.speedup is not None for row in drawn(self.table))

    @property
    def has_limits(self) -> bool:
        return has_limits(self.table)

    @property
    def left_out(self) -> list[str]:
        """Kernels that the speedup chart does not show."""
        return left_out(self.table)

    @property
    def charts(self) -> tuple[str, str]:
        """Names of its charts: (speedup, latency)."""
        of = f"{OF}{self.operation}" if self.title else ""
        return f"speedup{of}", f"latency{of}"


def sections(
    measured: Sequence[StoredMeasured], table: Sequence[tables.Row], asked: Columns, contended: bool
) -> list[Section]:
    """The results by operation, in the order measured."""
    parts = tables.by_operation(table)
    return [
        Section(
            operation,
            title_of(operation) if len(parts) > 1 else "",
            summary(part, operation, contended),
            [m for m in measured if m.workload.operation == operation],
            part,
            asked,
        )
        for operation, part in parts.items()
    ]


def title_of(operation: str) -> str:
    """The title of an operation; its name if it no longer exists."""
    known = operations().get(operation)
    return known.title if known else operation

"""The results of a run by operation: each has its headline, table and charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from kernels.analysis.standing import MIXED, Ranking, ranking
from kernels.catalog import operations
from kernels.report import tables
from kernels.report.summary import Summary, summary
from runs.charts import run_scaling
from runs.charts.run_charts import MOST_ROWS, Size, drawn, leader_of, places, sizes_of
from runs.charts.run_scaling import Scaling, scalings
from runs.charts.run_stored import ending
from runs.models import Run
from runs.queries.measurements import StoredArm, StoredMeasured
from runs.views.columns import Columns
from runs.views.run_matrix import Asked, Matrix, Plan, matrix

UNCHECKED = "The run ended before each kernel was checked again in a new process."


@dataclass(frozen=True)
class Section:
    """The results of one operation of a run. A run of one operation has one section, without a title."""

    operation: str
    title: str
    headline: Summary
    measurements: list[StoredMeasured]
    table: list[tables.Row]
    matrix: Matrix
    asked: Columns
    of: str = ""
    """The end of its charts' names, if the run was to measure several operations."""

    @cached_property
    def columns(self) -> Columns:
        return self.asked.on(self.unit, self.matrix.has_limits)

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
        return any(row.limit_share is not None for row in drawn(self.table))

    @cached_property
    def sizes(self) -> dict[str, tuple[Size, Size]]:
        """Chart -> its size on a wide page, and on a phone: pages reserve it."""
        return sizes_of(self.table)

    @cached_property
    def is_strip(self) -> bool:
        """Whether charts have a row for each kernel, because there are many workloads."""
        return len(places(self.table)) > MOST_ROWS

    @property
    def leader(self) -> str:
        """The kernel that charts show beside the baseline; empty if they show all."""
        return "" if self.is_strip else leader_of(self.table)

    @property
    def charts(self) -> tuple[str, str]:
        """Names of its charts: (speedup, latency)."""
        return f"speedup{self.of}", f"latency{self.of}"

    @cached_property
    def scalings(self) -> list[Scaling]:
        """How times grow over each size that varies while the others are fixed."""
        return scalings(self.measurements, leader_of(self.table)) if self.table else []

    @property
    def scaling_charts(self) -> list[tuple[Scaling, str]]:
        return [(one, f"{one.name}{self.of}") for one in self.scalings]

    @property
    def scaling_size(self) -> tuple[Size, Size]:
        return Size(run_scaling.WIDTHS[0], run_scaling.HEIGHT), Size(run_scaling.WIDTHS[1], run_scaling.HEIGHT)

    @property
    def aa(self) -> str:
        """Within this the intervals of A/A of its workloads lie: "0.994 to 1.004"."""
        found = [m.aa for m in self.measurements if m.aa]
        return f"{min(one.low for one in found):.3f} to {max(one.high for one in found):.3f}" if found else ""

    @property
    def rounds(self) -> str:
        """The rounds of its results: "40 to 110"."""
        counts = [row.rounds for row in self.table if row.rounds]
        return " to ".join(dict.fromkeys(str(end) for end in (min(counts), max(counts)))) if counts else ""


def sections(
    run: Run,
    measured: Sequence[StoredMeasured],
    table: Sequence[tables.Row],
    asked: Columns,
    view: Asked,
    live: Mapping[str, Any],
) -> list[Section]:
    """The results by operation, in the order measured. live: what the agent shows of a run that it measures."""
    parts = tables.by_operation(table)
    names = list(dict.fromkeys([*parts, *run.spec.operations]))
    if not run.is_active:
        names = [name for name in names if name in parts]
    found = []
    for name in names:
        mine = [m for m in measured if m.workload.operation == name]
        title = title_of(name) if len(names) > 1 else ""
        found.append(_section(run, name, title, mine, parts.get(name, []), asked, view, live))
    return found


def _section(
    run: Run,
    operation: str,
    title: str,
    measured: list[StoredMeasured],
    table: list[tables.Row],
    asked: Columns,
    view: Asked,
    live: Mapping[str, Any],
) -> Section:
    spec = run.spec
    plan = Plan(
        [workload for workload in spec.workloads if workload.operation == operation],
        spec.kernels_of(operation),
        spec.baseline_of(operation) if operation in spec.operations else "",
        live.get("workload", ""),
        live.get("so_far") or {},
        not run.is_active,
        leader_of(table),
    )
    ranked = ranking(tables.compared(table), run.contended)
    said = summary(table, operation, run.contended)
    if table and not run.is_active and run.state != Run.State.DONE:
        strong = f"Not cross-checked: {said.strong}" if _is_claim(ranked) else said.strong
        said = replace(said, strong=strong, tone="same", rest=[UNCHECKED, *said.rest])
    shown = matrix(measured, table, plan, ranked, view, asked)
    return Section(operation, title, said, measured, table, shown, asked, ending(run, operation))


def _is_claim(ranked: Ranking) -> bool:
    """Whether the headline says that a kernel is faster, slower or as fast."""
    return ranked.first is not None and ranked.first.word in ("faster", "slower", MIXED, "same")


def title_of(operation: str) -> str:
    """The title of an operation; its name if it no longer exists."""
    known = operations().get(operation)
    return known.title if known else operation

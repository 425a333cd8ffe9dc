"""Measures: every figure of a result that can be a column. One entry in MEASURES makes a column of the run's page, of its
files and of the terminal."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

from kernels.report import tables
from kernels.report.cells import three_digits
from kernels.report.tables import Row

NAMED = ("workload", "mode", "kernel", "baseline", "verdict", "correct", "contended", "why")
"""Fields of a Row that a file with chosen columns has before them."""
ALL = "all"
"""Asks for every measure."""
EVERYWHERE = "everywhere"

Figure = float | int | str | None
Ends = tuple[float, float] | None


class UnknownMeasure(ValueError):
    """A column that does not exist. The message says so, and which ones there are."""

    def __init__(self, key: str) -> None:
        self.brief = f"There is no column {key[:40]!r}."
        super().__init__(f"{self.brief} There are: {', '.join(BY_KEY)}, and {ALL}.")


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of a Row."""

    key: str
    """Its name in addresses, options and files. Times there are in ms, as the key says."""
    title: str
    """Heading of the column."""
    unit: str
    """Unit of what is shown."""
    about: str
    """What it is and what it is over, as a sentence."""
    value: Callable[[Row], Figure]
    """In the unit of the key. None: unknown."""
    interval: Literal["", "p50", "1/p50", "speedup", "1/speedup"] = ""
    """Where its interval comes from: the limits of the p50 or of the speedup, or their reciprocals."""
    usual: str = ""
    """Who shows it without being asked: tables of operations with this headline unit, or EVERYWHERE."""
    operation: str = ""
    """What the operation must say for it, as a noun; empty if nothing."""
    scale: float = 1.0
    """What is shown / the value."""
    over: Literal["", "over", "p90_over"] = ""
    """Field of the Row that says what samples it is over."""
    least: int = 1
    """Fewest samples (p90_n) that it needs."""

    @property
    def low_first(self) -> bool:
        """Whether less is better: the first order of a sorted table."""
        return self.key == "slowdown" or self.unit in ("us", "s", "J", "relative") or "bytes" in self.unit

    @property
    def heading(self) -> str:
        """The title with its unit."""
        return self.title if self.title.endswith(self.unit) else f"{self.title}, {self.unit}"

    def of(self, row: Row) -> Figure:
        return None if self.least > (row.p90_n or self.least) else self.value(row)

    def ends(self, row: Row) -> Ends:
        """Limits of its interval; None if it has none."""
        value = self.of(row)
        if not isinstance(value, int | float) or not self.interval:
            return None
        names = ("speedup_low", "speedup_high") if "speedup" in self.interval else ("p50_low_ms", "p50_high_ms")
        low, high = (getattr(row, name) for name in names)
        middle = row.speedup if "speedup" in self.interval else row.p50_ms
        if not (low and high and middle):
            return None
        if self.interval.startswith("1/"):
            return value * middle / high, value * middle / low
        return value * low / middle, value * high / middle

    def why_empty(self, row: Row) -> str:
        """Why a timed result does not have it."""
        if self.operation and not self.value(row):
            return f"the operation {row.operation} does not say {self.operation}"
        if self.least > (row.p90_n or self.least):
            return f"{self.title} needs {self.least} samples; there are {row.p90_n}"
        if self.interval in ("speedup", "1/speedup"):
            return "nothing is compared here"
        return "not measured here, or not kept"

    def text(self, row: Row) -> str:
        """The figure as shown, without unit and interval; empty if unknown."""
        return self._written(self.of(row), self.ends(row))

    def interval_text(self, row: Row) -> str:
        """ "9.90 to 9.98", with the digits of the figure; empty without an interval."""
        ends = self.ends(row)
        return " to ".join(self._written(end, ends) for end in ends) if ends else ""

    def _written(self, value: Figure, ends: Ends) -> str:
        if value is None or isinstance(value, str):
            return value or ""
        if self.unit == "%":
            return f"{value:.0%}"
        if self.unit == "x":
            return f"{value:.3f}"
        if isinstance(value, int):
            return f"{value:,}"
        return _digits(value * self.scale, (ends[1] - ends[0]) * self.scale if ends else 0.0)


def _digits(value: float, width: float) -> str:
    """Three significant digits, up to two more until the ends of its interval differ; thousands separated."""
    if abs(value) < 1e-4 or width <= 0:
        text = three_digits(value)
        return f"{int(text):,}" if text.lstrip("-").isdigit() else text
    usual = 2 - math.floor(math.log10(abs(value)))
    decimals = min(usual + 2, max(usual, -math.floor(math.log10(width))))
    return f"{round(value, decimals):,.{max(0, decimals)}f}"


def _time(key: str, title: str, about: str, **more: Any) -> Measure:
    return Measure(key, title, "us", about, attrgetter(key), scale=1e3, **more)


def _per_s(amount: Callable[[Row], float | None]) -> Callable[[Row], float | None]:
    def rate(row: Row) -> float | None:
        count = amount(row)
        return count / row.p50_ms * 1e3 if count and row.p50_ms else None

    return rate


def _times(field: str, factor: float) -> Callable[[Row], float | None]:
    def multiple(row: Row) -> float | None:
        value = getattr(row, field)
        return None if value is None else value * factor

    return multiple


def _shared(field: str) -> Callable[[Row], float | None]:
    """The p50 over a count."""

    def share(row: Row) -> float | None:
        count = getattr(row, field)
        return row.p50_ms / count if count and row.p50_ms else None

    return share


def _slowdown(row: Row) -> float | None:
    return 1 / row.speedup if row.speedup else None


_SAMPLES = "of the timed samples, per call; a cell's title says what a sample is"
_SINGLE = "of single calls, where they were timed"
_QUERY, _HEADS = "what a query is", "how many heads a call has"
_UNMASKED, _DENSE = "masked work is not counted", "masked work is counted, too (dense-equivalent)"

MEASURES: tuple[Measure, ...] = (
    Measure("speedup", "speedup", "x", "Baseline's time / this kernel's time, from pairs within rounds.",
            attrgetter("speedup"), "speedup", EVERYWHERE),
    Measure("slowdown", "slowdown", "x", "This kernel's time / the baseline's time: 6.9 is 6.9x slower.",
            _slowdown, "1/speedup"),
    _time("p50_ms", "p50", f"Median {_SAMPLES}.", interval="p50", usual=EVERYWHERE, over="over"),
    _time("mean_ms", "mean", f"Mean {_SAMPLES}.", over="over"),
    _time("std_ms", "std", f"Standard deviation {_SAMPLES}.", over="over"),
    _time("min_ms", "min", f"Smallest {_SAMPLES}.", over="over"),
    _time("max_ms", "max", f"Largest {_SAMPLES}.", over="over"),
    _time("p90_ms", "p90", f"90th percentile {_SINGLE}.", usual=EVERYWHERE, over="p90_over", least=10),
    _time("p95_ms", "p95", f"95th percentile {_SINGLE}.", over="p90_over", least=20),
    _time("p99_ms", "p99", f"99th percentile {_SINGLE}.", over="p90_over", least=100),
    Measure("frobenius", "error", "relative",
            "Whether it is correct, and its relative error (Frobenius norm).",
            attrgetter("frobenius"), usual=EVERYWHERE),
    Measure("tflops", "TFLOP/s", "TFLOP/s", f"FLOPs / p50; {_UNMASKED}.", attrgetter("tflops"), "1/p50", "TFLOP/s"),
    Measure("dense_tflops", "dense TFLOP/s", "TFLOP/s", f"FLOPs / p50; {_DENSE}.",
            attrgetter("dense_tflops"), "1/p50"),
    Measure("gflops", "GFLOP/s", "GFLOP/s", f"FLOPs / p50; {_UNMASKED}.", _times("tflops", 1e3), "1/p50"),
    Measure("dense_gflops", "dense GFLOP/s", "GFLOP/s", f"FLOPs / p50; {_DENSE}.",
            _times("dense_tflops", 1e3), "1/p50"),
    Measure("gb_per_s", "GB/s", "GB/s", "Bytes of inputs and outputs / p50.", attrgetter("gb_per_s"), "1/p50", "GB/s"),
    Measure("calls_per_s", "calls/s", "calls/s", "1 / p50: calls of the operation in a second.",
            _per_s(lambda row: 1), "1/p50"),
    Measure("queries", "queries", "queries", "Queries of one call.", attrgetter("queries"), operation=_QUERY),
    Measure("queries_per_s", "queries/s", "queries/s", "Queries of one call / p50.",
            _per_s(attrgetter("queries")), "1/p50", operation=_QUERY),
    Measure("per_batch_head_ms", "time / (B x H)", "us", "p50 / (batch x heads).",
            _shared("batch_heads"), "p50", operation=_HEADS, scale=1e3),
    Measure("per_head_ms", "time / H", "us", "p50 / heads, whatever the batch.",
            _shared("heads"), "p50", operation=_HEADS, scale=1e3),
    Measure("limit_share", "of speed of light", "%", "Speed of light / p50: 100% is the least time that the device needs.",
            attrgetter("limit_share"), usual=EVERYWHERE),
    Measure("peak_memory_bytes", "peak memory", "bytes", "Peak during one call, above its inputs.",
            attrgetter("peak_memory_bytes")),
    Measure("input_bytes", "inputs", "bytes", "Bytes of all inputs of one call.", attrgetter("input_bytes")),
    Measure("output_bytes", "outputs", "bytes", "Bytes of all outputs of one call.", attrgetter("output_bytes")),
    Measure("compile_s", "first call", "s", "Time of the first call, with compilation.", attrgetter("compile_s")),
    Measure("registers", "registers", "per thread", "Registers per thread.", attrgetter("registers")),
    Measure("local_bytes", "local memory", "bytes per thread", "Local memory per thread: spilled registers.",
            attrgetter("local_bytes")),
    Measure("static_shared_bytes", "static shared", "bytes per block", "Shared memory that the source declares.",
            attrgetter("static_shared_bytes")),
    Measure("dynamic_shared_bytes", "dynamic shared", "bytes per block", "Shared memory that the launch asks for.",
            attrgetter("dynamic_shared_bytes")),
    Measure("grid", "grid", "blocks", "Blocks of the launch.", lambda row: row.grid or None),
    Measure("block", "block", "threads", "Threads of a block.", lambda row: row.block or None),
    Measure("occupancy", "occupancy", "%", "Theoretical occupancy.", attrgetter("occupancy")),
    Measure("joules", "energy", "J", "Energy of the whole board for one call, from the cross-check.",
            attrgetter("joules")),
    Measure("gpu_busy", "GPU busy", "%", "Share of the time that the GPU works while calls follow back to back: the "
            "profiler's span of a call over its time by the host's clock, from the cross-check. GPU utilisation.",
            attrgetter("gpu_busy")),
    Measure("n", "n", "samples", "Timed samples.", attrgetter("n"), usual=EVERYWHERE),
    Measure("rounds", "rounds", "rounds", "Rounds: blocks of timed samples.", attrgetter("rounds"), usual=EVERYWHERE),
)  # fmt: skip
"""In the order of the columns."""
BY_KEY: Mapping[str, Measure] = {one.key: one for one in MEASURES}


def usual(unit: str) -> list[Measure]:
    """The measures that a table shows without being asked. unit: the headline unit of its operation."""
    return [one for one in MEASURES if one.usual in (EVERYWHERE, unit)]


def chosen(asked: Iterable[str], unit: str) -> list[Measure]:
    """The measures that are asked for, in the order of MEASURES; the usual ones if none is. Raises UnknownMeasure.

    asked: keys, each text one or several with commas; "all" for every measure.
    """
    keys = [key for text in asked for part in text.split(",") if (key := part.strip())]
    if unknown := [key for key in keys if key not in BY_KEY and key != ALL]:
        raise UnknownMeasure(unknown[0])
    if ALL in keys:
        return list(MEASURES)
    return [one for one in MEASURES if one.key in keys] or usual(unit)


def as_records(table: Iterable[Row], asked: Sequence[Measure]) -> list[dict[str, Any]]:
    """The rows of a file with the measures that were asked for; without any, with all that a Row has."""
    return [record(row, asked) for row in table] if asked else tables.as_records(table)


def fields(asked: Sequence[Measure]) -> Sequence[str]:
    """Headings of a .csv: NAMED, then each figure and the limits of its interval; without measures, the usual ones."""
    return [*NAMED, *(name for one in asked for name in _names(one))] if asked else tables.COLUMNS


def as_jsonl(table: Iterable[Row], asked: Sequence[Measure]) -> Iterator[str]:
    """Lines of a .jsonl: a result each."""
    return (json.dumps(each) + "\n" for each in as_records(table, asked))


def record(row: Row, asked: Iterable[Measure]) -> dict[str, Any]:
    """A row of a file with these measures. None: unknown."""
    values: dict[str, Any] = {name: getattr(row, name) for name in NAMED}
    for one in asked:
        values |= zip(_names(one), (one.of(row), *(one.ends(row) or (None, None))), strict=False)
    return values


def _names(measure: Measure) -> list[str]:
    """p50_ms, p50_low_ms, p50_high_ms; or tflops, tflops_low, tflops_high."""
    if not measure.interval:
        return [measure.key]
    stem, unit = (measure.key[:-3], "_ms") if measure.key.endswith("_ms") else (measure.key, "")
    return [measure.key, f"{stem}_low{unit}", f"{stem}_high{unit}"]


def lines(table: Sequence[Row], asked: Sequence[Measure]) -> list[list[str]]:
    """The table as text: headings with units, then the cells of each row. Columns without a figure are left out."""
    if not asked:
        return tables.usual_lines(table)
    shown = [one for one in asked if any(one.of(row) is not None for row in table)]
    headings = [one.heading for one in shown]
    rows = [[row.workload, row.kernel, str(row.verdict), *(_cell(one, row) for one in shown)] for row in table]
    return [["workload", "kernel", "verdict", *headings], *rows]


def _cell(measure: Measure, row: Row) -> str:
    interval = measure.interval_text(row)
    return f"{measure.text(row)} ({interval})" if interval else measure.text(row)

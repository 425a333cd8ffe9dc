"""Results as rows: one table for the terminal, the page, .csv, .json and .md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.analysis.processes import rounds_for_many
from kernels.analysis.standing import Compared
from kernels.analysis.verdicts import certain_ratio, verdict, why_no_word
from kernels.catalog import PROBLEM, operations
from kernels.contract.arm_result import FAILURES, ArmResult, CrossCheck, Ratio, Status, Verdict, assignments
from kernels.contract.events import Measured
from kernels.report.cells import LEFT_COLUMNS, escaped, listed, markdown, microseconds, text, three_digits
from kernels.report.samples import calls_of, over, over_single

RESTED = ("cold", "graph")
"""Modes with rests, whose inputs are as cold as in the cross-check's batch; in warm mode they are in the cache."""
LOADED, LOADED_MS = 1.05, 0.05
"""Slow-down that counts as longer; ignored below these milliseconds."""


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel on one workload. None: unknown."""

    operation: str
    workload: str
    mode: str
    kernel: str
    verdict: Verdict | Status
    ratio: Ratio | None
    """The speedup with an interval that holds in 99% of all cases: wider than shown if there were few rounds."""
    p50_ms: float | None
    p50_low_ms: float | None
    p50_high_ms: float | None
    p90_ms: float | None
    """p90 of single calls; with graph replays, of the `p90_n` calls of the cold pass."""
    p90_n: int | None
    n: int | None
    rounds: int | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    effective_sample_size: float | None
    processes: int
    """Fresh processes that measured it."""
    rest: float | None
    margin: float
    aa: float | None
    aa_low: float | None
    aa_high: float | None
    tflops: float | None
    """Counts unmasked work only."""
    dense_tflops: float | None
    """The same with masked work counted; None if nothing is masked."""
    gb_per_s: float | None
    limit_share: float | None
    correct: bool | None
    frobenius: float | None
    compile_s: float | None
    peak_memory_bytes: int | None
    """Peak during one call, above its inputs: its outputs, and what it allocates itself."""
    input_bytes: int | None
    output_bytes: int | None
    registers: int | None
    local_bytes: int | None
    """Local memory of a thread: spilled registers."""
    static_shared_bytes: int | None
    dynamic_shared_bytes: int | None
    grid: str
    block: str
    occupancy: float | None
    """Theoretical, 0 to 1."""
    baseline: str
    status: Status
    why: str
    ran: str
    """Main kernel of one call."""
    sha256: str
    workload_key: str
    unit: str
    """The headline figure of the operation: TFLOP/s or GB/s."""
    under_load: float | None
    """See `under_load`."""
    foreign_load: float | None
    """Share of the CPU's core time that others took; None on a GPU, or unknown."""
    timed_calls_checked: int | None
    """Outputs of timed calls that were compared with the reference."""
    calls: int | None
    """Timed calls."""
    mean_ms: float | None
    std_ms: float | None
    min_ms: float | None
    max_ms: float | None
    over: str
    """Samples that p50, mean, std, min and max are over, in words."""
    p95_ms: float | None
    p99_ms: float | None
    p90_over: str
    """The same of p90, p95 and p99."""
    joules: float | None
    gpu_busy: float | None
    queries: int | None
    """Of one call; the operation says what a query is."""
    heads: int | None
    batch_heads: int | None
    """Batch x heads."""
    other_work: str
    environment: str
    """Environment variables of its process: "NAME=1, OTHER=2"."""
    settings: str
    """Of a kernel that can be tuned: "rows=2+warps=4". Empty: its own choice."""
    tuned: str
    """Where they come from."""
    contended: bool
    """Whether others used the device: such a result confirms nothing."""


NOT_IN_CSV = (
    "operation", "ratio", "processes", "unit", "under_load", "foreign_load", "timed_calls_checked", "calls", "mean_ms", "std_ms",
    "min_ms", "max_ms", "over", "p95_ms", "p99_ms", "p90_over", "joules", "gpu_busy", "queries", "heads",
    "batch_heads",
)  # fmt: skip
"""What a .csv has only if it is asked for: kernels/report/measures.py."""
COLUMNS = tuple(name for name in Row.__dataclass_fields__ if name not in NOT_IN_CSV)


def words_of(label: str) -> list[str]:
    """The words of a workload's label. A run of a problem says its name once, above its table: a case goes without it."""
    words = label.split(" ")
    return [*words[:2], *(words[3:] or words[2:])] if words[0] == PROBLEM else words


def rows(measurements: Iterable[Measured], contended: bool = False) -> list[Row]:
    """One row per workload and kernel, in the order measured. contended: the whole run was."""
    return [row(m, arm, contended) for m in measurements for arm in m.results]


def by_operation(table: Iterable[Row]) -> dict[str, list[Row]]:
    """Operation -> its rows."""
    parts: dict[str, list[Row]] = {}
    for row in table:
        parts.setdefault(row.operation, []).append(row)
    return parts


def row(m: Measured, arm: ArmResult, contended: bool = False) -> Row:
    """One result of a measurement as a row. contended: its whole run was."""
    operation = operations().get(m.workload.operation)
    calls, dense, problem = arm.single_calls, m.workload.dense_factor, m.workload.known_problem
    tensors, heads = problem.bytes_moved() if problem else (None, None), problem.heads_of() if problem else None
    return Row(
        operation=m.workload.operation,
        workload=m.workload.label,
        mode=m.mode,
        kernel=arm.kernel,
        verdict=verdict(arm, m),
        ratio=certain_ratio(arm),
        p50_ms=arm.p50_ms,
        p50_low_ms=arm.p50_low_ms,
        p50_high_ms=arm.p50_high_ms,
        p90_ms=calls.p90_ms,
        p90_n=calls.n,
        n=arm.n,
        rounds=arm.rounds,
        speedup=arm.speedup,
        speedup_low=arm.speedup_low,
        speedup_high=arm.speedup_high,
        effective_sample_size=arm.effective_sample_size,
        processes=m.protocol.processes,
        rest=m.protocol.rest,
        margin=m.margin,
        aa=m.aa.ratio if m.aa else None,
        aa_low=m.aa.low if m.aa else None,
        aa_high=m.aa.high if m.aa else None,
        tflops=arm.tflops,
        dense_tflops=arm.tflops * dense if arm.tflops and dense else None,
        gb_per_s=arm.gb_per_s,
        limit_share=arm.limit_share,
        correct=arm.correctness.correct if arm.correctness else None,
        frobenius=arm.correctness.frobenius if arm.correctness else None,
        compile_s=arm.compile_s,
        peak_memory_bytes=arm.peak_memory_bytes,
        input_bytes=tensors[0],
        output_bytes=tensors[1],
        registers=arm.registers,
        local_bytes=arm.local_bytes,
        static_shared_bytes=arm.static_shared_bytes,
        dynamic_shared_bytes=arm.dynamic_shared_bytes,
        grid=arm.grid,
        block=arm.block,
        occupancy=arm.occupancy,
        baseline=m.baseline,
        status=arm.status,
        why=arm.why or why_no_word(m, arm),
        ran=main_kernel(arm.ran),
        sha256=arm.sha256,
        workload_key=m.key,
        unit=operation.unit if operation else "TFLOP/s",
        under_load=under_load(m, arm.p50_ms, arm.crosscheck),
        foreign_load=m.of_cpu.foreign if m.of_cpu else None,
        timed_calls_checked=arm.correctness.timed_calls_checked if arm.correctness else None,
        calls=calls_of(m, arm),
        mean_ms=arm.mean_ms,
        std_ms=arm.std_ms,
        min_ms=arm.min_ms,
        max_ms=arm.max_ms,
        over=over(m, arm),
        p95_ms=calls.p95_ms,
        p99_ms=calls.p99_ms,
        p90_over=over_single(m, arm),
        joules=arm.crosscheck.joules if arm.crosscheck else None,
        gpu_busy=arm.crosscheck.gpu_busy if arm.crosscheck else None,
        queries=problem.queries() if problem else None,
        heads=heads[1] if heads else None,
        batch_heads=heads[0] * heads[1] if heads else None,
        other_work=arm.other_work,
        environment=assignments(arm.environment),
        settings=arm.settings,
        tuned=arm.tuned,
        contended=contended or m.is_contended,
    )


def compared(table: Iterable[Row]) -> list[Compared]:
    """The results that are compared with a baseline, for standings. Those of other work are left out there, by name."""
    return [
        Compared(row.workload_key, row.kernel, row.baseline, row.verdict, row.ratio, row.margin, rounds_behind(row))
        for row in table
        if row.kernel != row.baseline and row.mode != "verify"
    ]


def rounds_behind(row: Row) -> float:
    """What its interval rests on: `rounds_for_many`."""
    return rounds_for_many(row.effective_sample_size or row.rounds or 0, row.processes)


def under_load(m: Measured, p50_ms: float | None, crosscheck: CrossCheck | None) -> float | None:
    """Slow-down without rests: cross-check batch time / rested p50. None if small, unknown, or the protocol did not
    rest."""
    how = m.protocol
    rested = m.mode in RESTED and how.paired is not False and (1.0 if how.rest is None else how.rest) > 0
    if not rested or crosscheck is None or crosscheck.host_bound is not False or not crosscheck.wall_ns:
        return None
    if p50_ms is None or p50_ms < LOADED_MS:
        return None
    factor = crosscheck.wall_ns / (p50_ms * 1e6)
    return factor if factor > LOADED else None


def main_kernel(ran: Sequence[Sequence[Any]]) -> str:
    """The main kernel of one call: on a GPU the longest; on a CPU the innermost of the longest."""
    if not ran:
        return ""
    longest = max(ns for _, ns in ran)
    return [name for name, ns in ran if ns >= 0.8 * longest][-1]


def as_records(table: Iterable[Row]) -> list[dict[str, Any]]:
    """The table for .json; .csv has only COLUMNS."""
    return [{name: getattr(row, name) for name in Row.__dataclass_fields__ if name != "ratio"} for row in table]


def _cells(row: Row) -> list[str]:
    speedup = ""
    if row.speedup is not None:
        speedup = f"{row.speedup:.3f}x ({row.speedup_low:.3f} to {row.speedup_high:.3f})"
    share = "" if row.limit_share is None else f"{row.limit_share:.0%}"
    n = "" if row.n is None else f"{row.n} in {row.rounds}"
    cells = [row.workload, row.kernel, row.verdict, _p50(row), microseconds(row.p90_ms)]
    rate = row.gb_per_s if row.unit == "GB/s" else row.tflops
    return [*cells, three_digits(rate), three_digits(_dense(row)), share, speedup, n]


def _p50(row: Row) -> str:
    """In microseconds, with its interval if it has one."""
    if row.p50_low_ms is None or row.p50_high_ms is None:
        return microseconds(row.p50_ms)
    return f"{microseconds(row.p50_ms)} ({microseconds(row.p50_low_ms)} to {microseconds(row.p50_high_ms)})"


def _dense(row: Row) -> float | None:
    """The dense-equivalent, where TFLOP/s are the headline figure."""
    return row.dense_tflops if row.unit == "TFLOP/s" else None


def usual_lines(table: Sequence[Row]) -> list[list[str]]:
    """Headings, then the cells of every row, without empty figure columns. A table has one operation, so one unit."""
    unit = table[0].unit if table else "TFLOP/s"
    unmasked = " unmasked" if any(_dense(row) for row in table) else ""
    figures = [
        "p50 us (interval)",
        "p90 us",
        unit + unmasked,
        "dense-equivalent",
        "of speed of light",
        "speedup (interval)",
        "n in rounds",
    ]
    twice = {place for place, count in Counter((row.workload, row.kernel) for row in table).items() if count > 1}
    rows = [_cells(row) for row in table]
    for row, cells in zip(table, rows, strict=True):
        if (row.workload, row.kernel) in twice:
            cells[0] = " ".join(filter(None, [row.workload, row.mode, row.environment]))
    lines = [["workload", "kernel", "verdict", *figures], *rows]
    kept = [number for number in range(len(lines[0])) if number < LEFT_COLUMNS or any(row[number] for row in rows)]
    return [[line[number] for number in kept] for line in lines]


Lines = Callable[[Sequence[Row]], list[list[str]]]
"""Makes headings and cells from the rows of one operation."""


def as_markdown(table: Sequence[Row], heading: str = "", lines: Lines = usual_lines) -> str:
    """A table for each operation. lines: with other columns."""
    parts = list(by_operation(table).values()) or [[]]
    drawn = [
        markdown(lines(part), "" if number else heading, against_itself(part)) for number, part in enumerate(parts)
    ]
    return "\n".join(drawn)


def as_text(table: Sequence[Row], lines: Lines = usual_lines) -> str:
    """For a terminal: aligned columns; the reason below each row that is not ok. A table for each operation."""
    parts = list(by_operation(table).values()) or [[]]
    return "\n\n".join(
        text(lines(part), [row.why if row.status != Status.OK else "" for row in part], against_itself(part))
        for part in parts
    )


def against_itself(table: Sequence[Row]) -> str:
    """The A/A of all workloads in a sentence; empty if there is none. Of several: their range, and that of their intervals."""
    with_aa = [row for row in table if row.aa is not None]
    if not with_aa:
        return ""
    count = len({row.workload_key for row in with_aa})
    lows, ratios, highs = (
        [getattr(row, name) for row in with_aa if getattr(row, name) is not None]
        for name in ("aa_low", "aa", "aa_high")
    )
    ends = f"{min(lows):.3f} to {max(highs):.3f}" if lows and highs else ""
    over = f" over {count} workloads" if count > 1 else ""
    single = len(set(ratios)) == 1
    interval = (f" ({ends})" if single else f"{over}, intervals within {ends}") if ends else over
    baselines = listed(list(dict.fromkeys(row.baseline for row in with_aa)))
    margins = _reach([row.margin for row in with_aa], ".1%")
    return f"A/A: {baselines} against itself {_reach(ratios, '.3f')}{interval}; margin {margins}."


def _reach(values: list[float], spec: str) -> str:
    low, high = format(min(values), spec), format(max(values), spec)
    return low if low == high else f"{low} to {high}"


def heading(title: str, environment: dict[str, Any], link: str = "") -> str:
    """The Markdown line above a table: what was measured, on which device and versions."""
    named = (("driver", "driver"), ("CUDA", "cuda"), ("torch", "torch"), ("Triton", "triton"), ("harness", "harness"))
    parts = [
        environment.get("device", ""),
        *(f"{name} {environment[key]}" for name, key in named if environment.get(key)),
    ]
    shown = escaped(title)
    return ", ".join(filter(None, [f"[{shown}]({link})" if link else shown, *parts]))


def failures(table: Iterable[Row]) -> list[Row]:
    return [row for row in table if row.status in FAILURES]

"""Results as rows: the one table behind the terminal, the page, .csv, .json and .md."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import Any

from kernels.analysis.statistics import MARGIN, word
from kernels.workload import Workload

MOST_RAN = 50
"""Kernels or operators of one call that are kept, the first."""
FORMAT = "benchsite-run/1"
"""Of a run as it is exported."""
COLUMNS = (
    "workload", "mode", "kernel", "verdict", "p50_ms", "p50_low_ms", "p50_high_ms", "p90_ms", "p90_n", "n", "rounds",
    "speedup", "speedup_low", "speedup_high", "effective_sample_size", "rest", "margin", "aa", "aa_low", "aa_high", "tflops",
    "gb_per_s", "limit_share", "correct", "frobenius", "compile_s", "peak_memory_bytes", "baseline", "status", "why", "ran",
    "sha256", "workload_key",
)  # fmt: skip
FAILURES = ("incorrect", "out of memory", "timed out", "crashed", "impossible", "suspect", "failed")
"""Statuses that make a run's outcome not ok; unsupported is no failure."""
RESTED = ("cold", "graph")
"""Modes in which a device rests between blocks, and reads inputs as the cross-check's batch does: warm ones lie in the cache."""
LOADED, LOADED_MS = 1.05, 0.05
"""What counts as longer without a rest; of calls shorter than these milliseconds a batch says too little."""
WORDY = 3
"""Columns of a table before its figures."""


def rows(measurements: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per workload and kernel, in the order measured. Keys are COLUMNS, `unit` and `under_load`;
    what is not known is None.

    p90 is of single calls: where the samples are graph replays, of the `p90_n` calls of the cold pass beside them.
    """
    return [_row(m, result) for m in measurements for result in m["results"]]


def _row(m: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    stats, speedup = result.get("stats") or {}, result.get("speedup") or {}
    correctness = result.get("correctness") or {}
    ran = result.get("ran") or []
    workload, aa = Workload(**m["workload"]), m.get("aa") or (None, None, None)
    return {
        "workload": workload.label,
        "unit": workload.problem.unit,
        "workload_key": m["key"],
        "mode": m["mode"],
        "kernel": result["kernel"],
        "verdict": verdict(result, m["baseline"], m.get("margin") or MARGIN),
        "p50_ms": stats.get("p50"),
        "p50_low_ms": stats.get("p50_low"),
        "p50_high_ms": stats.get("p50_high"),
        "p90_ms": (result.get("cold") or stats).get("p90"),
        "p90_n": (result.get("cold") or stats).get("n"),
        "n": stats.get("n"),
        "rounds": result.get("rounds"),
        "speedup": speedup.get("ratio"),
        "speedup_low": speedup.get("low"),
        "speedup_high": speedup.get("high"),
        "effective_sample_size": speedup.get("effective_sample_size"),
        "rest": (m.get("protocol") or {}).get("rest"),
        "margin": m.get("margin") or MARGIN,
        "aa": aa[0],
        "aa_low": aa[1],
        "aa_high": aa[2],
        "tflops": result.get("tflops"),
        "gb_per_s": result.get("gb_per_s"),
        "limit_share": result.get("limit_share"),
        "correct": correctness.get("correct"),
        "frobenius": correctness.get("frobenius"),
        "compile_s": result.get("compile_s"),
        "peak_memory_bytes": result.get("peak_memory_bytes"),
        "baseline": m["baseline"],
        "status": result["status"],
        "why": result.get("why", ""),
        "under_load": under_load(m, stats.get("p50"), result.get("crosscheck")),
        "ran": main_kernel(ran),
        "sha256": result.get("sha256", ""),
    }


def under_load(m: dict[str, Any], p50_ms: float | None, crosscheck: dict[str, Any] | None) -> float | None:
    """How many times as long a call takes in the cross-check's batch, which has no rests, where that is clearly longer, as when
    a clock falls under continuous work. None where it is not, or not known, or where the protocol did not rest either.

    m: the mode and the protocol of the measurement.
    """
    found = crosscheck or {}
    wall_ns, host_bound = found.get("wall_ns"), found.get("host_bound", True)
    how = m.get("protocol") or {}
    rested = m["mode"] in RESTED and how.get("paired", True) and how.get("rest", 1.0) > 0
    if not rested or host_bound or not wall_ns or p50_ms is None or p50_ms < LOADED_MS:
        return None
    factor = wall_ns / (p50_ms * 1e6)
    return factor if factor > LOADED else None


def verdict(result: dict[str, Any], baseline: str, margin: float) -> str:
    """One word for a result: baseline, FASTER, SLOWER, SAME, UNDECIDED, ..., or the status where it is not ok."""
    if result["status"] != "ok":
        return result["status"]
    if not result.get("stats"):
        return "correct" if (result.get("correctness") or {}).get("correct") else ""
    if result["kernel"] == baseline:
        return "baseline"
    speedup = result.get("speedup") or {}
    return word(
        speedup.get("low"), speedup.get("high"), margin, speedup.get("rounds", 0), paired=speedup.get("paired", True)
    )


def main_kernel(ran: Sequence[Sequence[Any]]) -> str:
    """The kernel of one call that says most: on a GPU the one that took longest, on a CPU the innermost that did."""
    if not ran:
        return ""
    longest = max(ns for _, ns in ran)
    return [name for name, ns in ran if ns >= 0.8 * longest][-1]


def as_csv(table: list[dict[str, Any]], columns: Sequence[str] = COLUMNS) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return out.getvalue()


def three_digits(value: float | None) -> str:
    """Three significant digits (9.90, 50.0, 321, 14800), no exponent for everyday sizes."""
    if value is None:
        return ""
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e9:
        return f"{value:.2e}"
    rounded = float(f"{value:.2e}")
    decimals = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:.{decimals}f}"


def microseconds(ms: float | None) -> str:
    return "" if ms is None else three_digits(ms * 1e3)


def _cells(row: dict[str, Any]) -> list[str]:
    speedup = ""
    if row["speedup"] is not None:
        speedup = f"{row['speedup']:.3f}x ({row['speedup_low']:.3f} to {row['speedup_high']:.3f})"
    share = "" if row["limit_share"] is None else f"{row['limit_share']:.0%}"
    n = "" if row["n"] is None else f"{row['n']} in {row['rounds']}"
    cells = [row["workload"], row["kernel"], row["verdict"], microseconds(row["p50_ms"]), microseconds(row["p90_ms"])]
    rate = row["gb_per_s"] if row["unit"] == "GB/s" else row["tflops"]
    return [*cells, three_digits(rate), share, speedup, n]


def _lines(table: list[dict[str, Any]]) -> list[list[str]]:
    """Headings, then the cells of every row, without the columns of figures that nobody has. A table is of one operation, so
    of one unit."""
    unit = table[0]["unit"] if table else "TFLOP/s"
    figures = ["p50 us", "p90 us", unit, "of limit", "speedup (interval)", "n in rounds"]
    rows = [_cells(row) for row in table]
    lines = [["workload", "kernel", "verdict", *figures], *rows]
    kept = [number for number in range(len(lines[0])) if number < WORDY or any(row[number] for row in rows)]
    return [[line[number] for number in kept] for line in lines]


def as_markdown(table: list[dict[str, Any]], heading: str = "") -> str:
    return markdown(_lines(table), heading, against_itself(table))


def markdown(lines: list[list[str]], heading: str = "", below: str = "") -> str:
    """A table of cells, the first line its headings; WORDY columns to the left, figures to the right."""
    first, *rest = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    under = [" --- " if number < WORDY else " ---: " for number in range(len(first))]
    drawn = [f"| {' | '.join(first)} |", f"|{'|'.join(under)}|", *(f"| {' | '.join(line)} |" for line in rest)]
    above = [" ".join(heading.split()), ""] if heading else []
    return "\n".join([*above, *drawn, *(["", below] if below else [])]) + "\n"


def as_text(table: list[dict[str, Any]]) -> str:
    """For a terminal: columns aligned, why-lines under what is not ok."""
    return text(_lines(table), [row["why"] for row in table], against_itself(table))


def text(cells: list[list[str]], whys: list[str], below: str = "") -> str:
    """The same for a terminal; whys: for each line but the first what stands under it."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for number, line in enumerate(cells):
        padded = [c.ljust(w) if i < WORDY else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))]
        lines.append("  ".join(padded).rstrip())
        if number and (why := whys[number - 1]):
            lines.append(f"    {why.splitlines()[0][:160]}")
    return "\n".join([*lines, *filter(None, [below])])


def against_itself(table: list[dict[str, Any]]) -> str:
    """The A/A of all workloads in a sentence; nothing where there is none."""
    found = [row for row in table if row["aa"] is not None]
    if not found:
        return ""
    count = len({row["workload_key"] for row in found})
    over = f" over {count} workloads" if count > 1 else ""
    baselines = listed(list(dict.fromkeys(row["baseline"] for row in found)))
    ratios, margins = _reach([row["aa"] for row in found], ".3f"), _reach([row["margin"] for row in found], ".1%")
    return f"A/A: {baselines} against itself {ratios}{over}; margin {margins}."


def _reach(values: list[float], spec: str) -> str:
    low, high = format(min(values), spec), format(max(values), spec)
    return low if low == high else f"{low} to {high}"


def heading(title: str, environment: dict[str, Any], link: str = "") -> str:
    """What was measured, on what and by what, in a line of Markdown above its table."""
    named = (("driver", "driver"), ("CUDA", "cuda"), ("torch", "torch"), ("Triton", "triton"), ("harness", "harness"))
    parts = [
        environment.get("device", ""),
        *(f"{name} {environment[key]}" for name, key in named if environment.get(key)),
    ]
    shown = "".join(f"\\{sign}" if sign in "[]*_`<>|\\" else sign for sign in title)
    return ", ".join(filter(None, [f"[{shown}]({link})" if link else shown, *parts]))


def listed(names: Sequence[str]) -> str:
    """a, b and c"""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def failures(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in table if row["status"] in FAILURES]

"""Summary of a run in sentences: the verdict first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernels.analysis.statistics import MARGIN, suite
from kernels.catalog import UnknownName, get_operation
from kernels.contract.arm_result import FAILURES, Status, Verdict
from kernels.report.tables import Row, listed

WORDS = (Verdict.FASTER, Verdict.SLOWER, Verdict.SAME, Verdict.UNDECIDED)
HOPELESS_MARGIN = 0.5
"""Beyond this margin no verdict is meaningful."""
MOST_KERNELS_NAMED = 2
"""Kernels named in a sentence; if there are more, only their number."""
VERBS = {
    Status.OUT_OF_MEMORY: "ran out of memory",
    Status.TIMED_OUT: "timed out",
    Status.CRASHED: "crashed",
    Status.FAILED: "failed",
}
"""Statuses with their own verb; the others follow "is"."""


@dataclass(frozen=True)
class Summary:
    """The sentences above a table."""

    strong: str
    """The verdict, as a sentence without its full stop; empty if there is none."""
    rest: list[str]
    """Further sentences."""
    tone: str
    """faster, slower or same: the colour of the verdict."""

    def __str__(self) -> str:
        return " ".join([f"{self.strong}." if self.strong else "", *self.rest]).strip()


def summary(table: Sequence[Row], operation: str) -> Summary:
    """The sentences about a run."""
    compared = list(dict.fromkeys(r.kernel for r in table if r.speedup is not None and r.verdict != Verdict.UNKNOWN))
    sentences: list[str] = []
    strong, tone = "", "same"
    if compared:
        best = max(compared, key=lambda kernel: _wins_and_mean(table, kernel))
        strong, rest, tone = _about(table, best)
        sentences += [rest] if rest else []
        others = [k for k in compared if k != best and any(_is(r, k, Verdict.FASTER) for r in table)]
        if len(compared) > 1 and any(row.verdict in WORDS for row in table):
            verb = "are" if len(others) > 1 else "is"
            faster = f"{listed(others)} {verb} also faster on some workloads."
            sentences.append(faster if others else "No other kernel is faster on any workload.")
    elif any(row.verdict == Verdict.UNKNOWN for row in table):
        strong = "Measured; the correctness is unknown, because there is no reference"
    elif any(row.p50_ms is not None for row in table):
        strong = "Measured; no comparison"
    elif checked := [row.correct for row in table if row.mode == "verify" and row.correct is not None]:
        strong = f"{sum(checked)} of {len(checked)} outputs checked are correct"
    elif table:
        strong = "No kernel could be measured"
    sentences += _faults(table)
    sentences += _loaded(table)
    sentences += _what_ran(table, operation)
    return Summary(strong, sentences, tone)


def _is(row: Row, kernel: str, word: Verdict) -> bool:
    return row.kernel == kernel and row.verdict == word


def _wins_and_mean(table: Sequence[Row], kernel: str) -> tuple[int, float]:
    """Workloads won, then the geometric mean."""
    won = sum(_is(row, kernel, Verdict.FASTER) for row in table)
    return won, suite([r.speedup for r in table if r.kernel == kernel])["geomean"] or 0.0


def leading(counts: Mapping[str, int]) -> str:
    """Leading word of a kernel from its counts: faster or slower, whichever is more frequent; else same; else
    undecided; else empty."""
    if counts["faster"] or counts["slower"]:
        return "faster" if counts["faster"] >= counts["slower"] else "slower"
    return next((w for w in ("same", "undecided") if counts[w]), "")


def _about(table: Sequence[Row], kernel: str) -> tuple[str, str, str]:
    """(strong part, rest, tone) about the best kernel."""
    mine = [row for row in table if row.kernel == kernel]
    baseline, of = mine[0].baseline, len(mine)
    counts = {w: sum(row.verdict == w.upper() for row in mine) for w in ("faster", "slower", "same", "undecided")}
    said = suite([row.speedup for row in mine])
    mean = ""
    if said["n"] > 1:
        left_out = f", {said['left_out']} left out" if said["left_out"] else ""
        mean = f"Geometric mean {said['geomean']:.2f}x over {said['n']}{left_out}."
    elif said["n"] == 1:
        row = next(r for r in mine if r.speedup is not None)
        mean = f"{row.speedup:.3f}x, interval {row.speedup_low:.3f} to {row.speedup_high:.3f}."
    said_first = leading(counts)
    if said_first == "undecided" and said["n"] > 1:
        mean = ""  # it would be a mean of noise
    if not said_first:
        unpaired = any(row.verdict == Verdict.UNPAIRED for row in mine)
        why = (
            "The kernels ran one after the other: drift could explain the difference."
            if unpaired
            else "More rounds are needed for a verdict."
        )
        strong = f"{kernel} was compared with {baseline} on {of} workload{'s' * (of != 1)}, without a verdict"
        return strong, f"{mean} {why}".strip(), "same"
    others = [f"{w} on {counts[w]}" for w in counts if counts[w] and w != said_first]
    word = {"same": f"as fast as {baseline}", "undecided": f"not clearly different from {baseline}"}.get(
        said_first, f"{said_first} than {baseline}"
    )
    where = f" on {counts[said_first]} of {of} workloads" if of > 1 else ""
    strong = f"{kernel} is {word}{where}"
    rest = " ".join(filter(None, [f"It is {', '.join(others)}." if others else "", mean, _noise(mine, said_first)]))
    return strong, rest, said_first if said_first in ("faster", "slower") else "same"


def _noise(mine: Sequence[Row], said_first: str) -> str:
    """Why the result is undecided, if the baseline was unsteady."""
    margin, who = max(row.margin for row in mine), mine[0].baseline
    if said_first != "undecided" or margin <= 1.01 * MARGIN:
        return ""
    if margin > HOPELESS_MARGIN:
        off = f"more than {HOPELESS_MARGIN / 2:.0%}"
        return f"A/A of {who} was off by {off}: the device was too busy for a comparison."
    return f"A/A of {who} was off by up to {margin / 2:.0%}: differences below {margin:.0%} do not count."


def _faults(table: Sequence[Row]) -> list[str]:
    """Results that are not ok, and whether the timed ones are correct."""
    sentences = []
    for status in FAILURES:
        kernels = list(dict.fromkeys(row.kernel for row in table if row.status == status))
        if kernels:
            count = sum(row.status == status for row in table)
            verb = VERBS.get(status) or f"{'are' if count != 1 else 'is'} {status}"
            sentences.append(f"{count} result{'s' * (count != 1)} {verb} ({', '.join(kernels)}).")
    timed = [row for row in table if row.p50_ms is not None]
    if timed and all(row.correct for row in timed):
        sentences.append("All checked outputs of timed kernels are correct.")
    return sentences


def _loaded(table: Sequence[Row]) -> list[str]:
    """Says if kernels run slower back to back than on a rested device."""
    factors: dict[str, float] = {}
    for row in table:
        if row.under_load is not None:
            factors[row.kernel] = max(row.under_load, factors.get(row.kernel, 1.0))
    if not factors:
        return []
    most = max(factors.values()) - 1
    who = listed(list(factors)) if len(factors) <= MOST_KERNELS_NAMED else f"{len(factors)} kernels"
    return [
        f"Back to back, {who} run{'s' * (len(factors) == 1)} up to {most:.0%} slower (the clock falls under continuous "
        "load). Use the mode sustained to compare under load."
    ]


def _what_ran(table: Sequence[Row], operation: str) -> list[str]:
    """ "sdpa ran cuDNN": the backend behind the baseline, from the names of the kernels that ran."""
    try:
        describe = get_operation(operation).describe_ran
    except UnknownName:
        return []
    ran = list(dict.fromkeys(describe(row.ran) for row in table if row.kernel == row.baseline and row.ran))
    ran = [name for name in ran if name]
    return [f"{table[0].baseline} ran {' and '.join(ran)}."] if ran else []

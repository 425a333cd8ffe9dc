"""The verdict of a run in sentences: what is said first of a table, and what else one should know of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernels.analysis.statistics import MARGIN, suite
from kernels.catalog import UnknownName, get_operation
from kernels.contract.events import FAILURES, Status, Verdict
from kernels.report.tables import Row, listed

WORDS = (Verdict.FASTER, Verdict.SLOWER, Verdict.SAME, Verdict.UNDECIDED)
HOPELESS_MARGIN = 0.5
"""Beyond this margin no verdict is meaningful."""
MOST_NAMED = 2
"""Kernels; more are counted."""
VERBS = {
    Status.OUT_OF_MEMORY: "ran out of memory",
    Status.TIMED_OUT: "timed out",
    Status.CRASHED: "crashed",
    Status.FAILED: "failed",
}
"""The statuses that something did; the others are what something is."""


@dataclass(frozen=True)
class Summary:
    """What is said first of a table."""

    strong: str
    """The verdict, as a sentence without its full stop; empty if there is none."""
    rest: list[str]
    """More sentences."""
    tone: str
    """faster, slower or same: the colour of the verdict."""

    def __str__(self) -> str:
        return " ".join([f"{self.strong}." if self.strong else "", *self.rest]).strip()


def summary(table: Sequence[Row], operation: str) -> Summary:
    """The verdict of a run, for people."""
    compared = list(dict.fromkeys(r.kernel for r in table if r.speedup is not None))
    sentences: list[str] = []
    strong, tone = "", "same"
    if compared:
        best = max(compared, key=lambda kernel: _wins_and_mean(table, kernel))
        strong, rest, tone = _about(table, best)
        sentences += [rest] if rest else []
        others = [k for k in compared if k != best and any(_is(r, k, Verdict.FASTER) for r in table)]
        if len(compared) > 1 and any(row.verdict in WORDS for row in table):
            also = "are" if len(others) > 1 else "is"
            faster = f"{listed(others)} {also} faster somewhere, too."
            sentences.append(faster if others else "No other kernel is faster anywhere.")
    elif any(row.p50_ms is not None for row in table):
        strong = "Measured without a comparison"
    elif checked := [row.correct for row in table if row.mode == "verify" and row.correct is not None]:
        strong = f"{sum(checked)} of {len(checked)} outputs checked are correct"
    elif table:
        strong = "Nothing could be measured"
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
    """What is said first of a kernel that has so many of each word: faster or slower if there is a difference anywhere,
    whichever is more frequent; then same, then undecided; else nothing."""
    if counts["faster"] or counts["slower"]:
        return "faster" if counts["faster"] >= counts["slower"] else "slower"
    return next((w for w in ("same", "undecided") if counts[w]), "")


def _about(table: Sequence[Row], kernel: str) -> tuple[str, str, str]:
    """(strong part, rest, tone) of what is said of the kernel that stands best."""
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
        mean = ""  # of noise
    if not said_first:
        unpaired = any(row.verdict == Verdict.UNPAIRED for row in mine)
        why = (
            "The kernels ran one after the other, so drift may be all there is."
            if unpaired
            else "It needs more rounds."
        )
        strong = f"{kernel} was compared with {baseline} on {of} workload{'s' * (of != 1)}, without a verdict"
        return strong, f"{mean} {why}".strip(), "same"
    others = [f"{w} on {counts[w]}" for w in counts if counts[w] and w != said_first]
    word = {"same": f"as fast as {baseline}", "undecided": f"neither clearly faster nor slower than {baseline}"}.get(
        said_first, f"{said_first} than {baseline}"
    )
    where = f" on {counts[said_first]} of {of} workloads" if of > 1 else ""
    strong = f"{kernel} is {word}{where}"
    rest = " ".join(filter(None, [f"It is {', '.join(others)}." if others else "", mean, _noise(mine, said_first)]))
    return strong, rest, said_first if said_first in ("faster", "slower") else "same"


def _noise(mine: Sequence[Row], said_first: str) -> str:
    """Why nothing could be decided, where the baseline itself was unsteady."""
    margin, who = max(row.margin for row in mine), mine[0].baseline
    if said_first != "undecided" or margin <= 1.01 * MARGIN:
        return ""
    if margin > HOPELESS_MARGIN:
        return f"{who} differed from itself by more than {HOPELESS_MARGIN / 2:.0%}: the device was too busy to compare anything."
    return f"{who} differed from itself by up to {margin / 2:.0%}, so less than {margin:.0%} says nothing."


def _faults(table: Sequence[Row]) -> list[str]:
    """What is not ok, and whether what was timed is right."""
    found = []
    for status in FAILURES:
        kernels = list(dict.fromkeys(row.kernel for row in table if row.status == status))
        if kernels:
            count = sum(row.status == status for row in table)
            verb = VERBS.get(status) or f"{'are' if count != 1 else 'is'} {status}"
            found.append(f"{count} result{'s' * (count != 1)} {verb} ({', '.join(kernels)}).")
    timed = [row for row in table if row.p50_ms is not None]
    if timed and all(row.correct for row in timed):
        found.append("Every timed output is correct.")
    return found


def _loaded(table: Sequence[Row]) -> list[str]:
    """That these are times of a rested device, where another holds under continuous work."""
    factors: dict[str, float] = {}
    for row in table:
        if row.under_load is not None:
            factors[row.kernel] = max(row.under_load, factors.get(row.kernel, 1.0))
    if not factors:
        return []
    most = max(factors.values()) - 1
    who = listed(list(factors)) if len(factors) <= MOST_NAMED else f"{len(factors)} kernels"
    return [
        f"Without rests {who} take{'s' * (len(factors) == 1)} up to {most:.0%} longer, as when a clock falls "
        "under continuous work; the mode sustained compares kernels so."
    ]


def _what_ran(table: Sequence[Row], operation: str) -> list[str]:
    """ "sdpa ran cuDNN": the backend behind the baseline, by the names of the kernels that ran."""
    try:
        describe = get_operation(operation).describe_ran
    except UnknownName:
        return []
    ran = list(dict.fromkeys(describe(row.ran) for row in table if row.kernel == row.baseline and row.ran))
    ran = [name for name in ran if name]
    return [f"{table[0].baseline} ran {' and '.join(ran)}."] if ran else []

"""Summary of a run in sentences: the verdict first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kernels.analysis.standing import Ranking, Standing, in_digits, ranking
from kernels.analysis.statistics import MARGIN, as_margin, for_many
from kernels.analysis.verdicts import SLOWED, is_noisy
from kernels.catalog import UnknownName, get_operation
from kernels.contract.arm_result import FAILURES, Ratio, Status, Verdict
from kernels.contract.events import BUSY_SHARE
from kernels.report.cells import listed, three_digits
from kernels.report.tables import Row, by_operation, compared, rounds_behind

MOST_KERNELS_NAMED = 2
"""Kernels named in a sentence; if there are more, only their number."""
MOST_WORKLOADS_NAMED = 2
"""Workloads named where kernels failed."""
MOST_FAILED_NAMED = 3
"""Kernels named that failed; of more, these and the number of the others."""
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
    ranks: list[str] = field(default_factory=list)
    """Those of `rest` that say how the other kernels rank: pages fold them."""
    notes: list[str] = field(default_factory=list)
    """What was checked, and what limits the verdict: pages fold it."""
    faults: list[str] = field(default_factory=list)
    """Those of `rest` about results that are not ok, if there are several: pages fold them."""
    fault: str = ""
    """One sentence in place of `faults`."""

    @property
    def lede(self) -> list[str]:
        """`rest` without what pages fold."""
        shown = [sentence for sentence in self.rest if sentence not in (*self.ranks, *self.faults)]
        return [*shown, self.fault] if self.fault else shown

    def __str__(self) -> str:
        return " ".join([f"{self.strong}." if self.strong else "", *self.rest, *self.notes]).strip()


def summary(table: Sequence[Row], operation: str, contended: bool = False) -> Summary:
    """The sentences about a run. contended: others used the device, as far as the run knows."""
    busy = max((row.foreign_load for row in table if row.foreign_load is not None), default=0.0)
    ranked = ranking(compared(table), contended or busy > BUSY_SHARE)
    sentences: list[str] = []
    ranks: list[str] = []
    strong, tone = "", "same"
    if first := ranked.first:
        strong, tone = headline(first, contended or busy > BUSY_SHARE)
        told = [one for one in ranked.standings if one.was_compared]
        if len(told) > 1 and not any(one.word for one in told):
            strong = "No kernel has a verdict"
        sentences += _about(first, table)
        if not contended and busy <= BUSY_SHARE:
            sentences += _ahead(first, table)
        sentences += _other_work(first, table)
        ranks = _others(ranked, first)
        sentences += ranks
    elif any(row.verdict == Verdict.UNKNOWN for row in table):
        strong = "Measured; the correctness is unknown, because there is no reference"
    elif any(row.p50_ms is not None for row in table):
        strong = _wrong(table) or _did_not_run(table) or "Measured; no comparison"
    elif checked := [row for row in table if row.mode == "verify" and row.correct is not None]:
        strong = f"{sum(bool(row.correct) for row in checked)} of {len(checked)} outputs checked are correct"
        if {row.kernel for row in checked} == {row.baseline for row in checked} and (other := _did_not_run(table)):
            strong += f", all of them of the baseline {checked[0].baseline}: {other}"
    elif table:
        strong = "No kernel could be measured"
    if busy > BUSY_SHARE:
        sentences.append(f"Other processes used up to {busy:.0%} of this machine's CPU time: the run is contended.")
    elif contended and table:
        sentences.append("The run is contended: other processes used the device.")
    sentences += _noise(table)
    sentences += (faults := _faults(table, strong))
    several = len(faults) > 1
    return Summary(
        strong,
        sentences,
        tone,
        ranks,
        [*_checked([row for row in table if not row.other_work]), *_loaded(table), *_what_ran(table, operation)],
        faults=faults if several else [],
        fault=_fault(table) if several else "",
    )


def _wrong(table: Sequence[Row]) -> str:
    """Who gets no speedup, because of what its checks found: "my-kernel is incorrect"."""
    words = (Status.INCORRECT, Status.SUSPECT, Status.IMPOSSIBLE)
    found = {row.kernel: row.verdict for row in table if row.verdict in words}
    if len(found) == 1:
        return f"{next(iter(found))} is {next(iter(found.values()))}"
    word = " or ".join(dict.fromkeys(str(one) for one in words if one in found.values()))
    return f"{len(found)} kernels are {word}" if found else ""


def _did_not_run(table: Sequence[Row]) -> str:
    """ "my-kernel did not run: it needs a CUDA device": of a single kernel beside the baseline."""
    others = [row for row in table if row.kernel != row.baseline]
    if len({row.kernel for row in others}) != 1 or any(row.status != Status.UNSUPPORTED for row in others):
        return ""
    reasons = {row.why for row in others}
    return (
        f"{others[0].kernel} did not run: {reasons.pop()}" if len(reasons) == 1 else f"{others[0].kernel} did not run"
    )


def summaries(table: Sequence[Row], contended: bool = False) -> dict[str, Summary]:
    """Operation -> the sentences about its results."""
    return {operation: summary(part, operation, contended) for operation, part in by_operation(table).items()}


def as_text(table: Sequence[Row], contended: bool = False) -> str:
    """The sentences about a run; of several operations, a line for each."""
    found = summaries(table, contended)
    return "\n".join(f"{name}: {said}" if len(found) > 1 else str(said) for name, said in found.items())


def headline(one: Standing, contended: bool = False) -> tuple[str, str]:
    """(strong part, tone) about a kernel."""
    if one.word:
        decided = one.word in ("faster", "slower") and not contended
        return f"{one.kernel} is {one.phrase}", one.word if decided else "same"
    where = f" on {one.of} workloads" if one.of > 1 else ""
    return f"{one.kernel} was compared with {one.baseline}{where}, without a verdict", "same"


def _about(one: Standing, table: Sequence[Row]) -> list[str]:
    """The figures of the kernel in the headline."""
    if one.word:
        return [sentence(one.rest)]
    mine = [row for row in table if row.kernel == one.kernel]
    if any(row.verdict == Verdict.UNPAIRED for row in mine):
        return ["The kernels ran one after the other: drift could explain the difference."]
    return ["More rounds are needed for a verdict."] if any(r.verdict == Verdict.NEEDS_MORE for r in mine) else []


def _ahead(first: Standing, table: Sequence[Row]) -> list[str]:
    """Kernels that are faster than the one in the headline on some workloads: their intervals do not meet, for all of these
    comparisons at once. All were measured in the same rounds, against the same baseline."""
    decided = (Verdict.FASTER, Verdict.SLOWER, Verdict.SAME, Verdict.UNDECIDED)
    told = [
        row for row in table if row.ratio and row.verdict in decided and not row.other_work and not is_noisy(row.margin)
    ]
    mine = {(row.workload_key, row.mode): row for row in told if row.kernel == first.kernel}
    others = [row for row in told if row.kernel not in (first.kernel, row.baseline)]
    pairs = [(row, mine[place]) for row in others if (place := (row.workload_key, row.mode)) in mine]
    ahead = Counter(row.kernel for row, best in pairs if _ratio(row, len(pairs)).low > _ratio(best, len(pairs)).high)
    if len(ahead) > MOST_KERNELS_NAMED:
        return [f"{len(ahead)} kernels are faster than {first.kernel} on some workloads."]
    of = f" of {len(mine)} workloads"
    return [
        f"{kernel} is faster than {first.kernel}{f' on {count}{of}' if len(mine) > 1 else ''}."
        for kernel, count in ahead.items()
    ]


def _ratio(row: Row, comparisons: int) -> Ratio:
    """The speedup of a row that has one, with an interval that holds for so many comparisons at once."""
    assert row.ratio
    return for_many(row.ratio, 2 * comparisons, rounds_behind(row))


def _other_work(first: Standing, table: Sequence[Row]) -> list[str]:
    """Kernels of other work that are faster than the winner in the headline, such as dense attention beside a sparse one."""
    if not first.counts["faster"]:
        return []
    mine = {(row.workload_key, row.mode): row for row in table if row.kernel == first.kernel and row.p50_low_ms}
    faster: dict[str, list[tuple[Row, Row]]] = {}
    for row in table:
        beside = mine.get((row.workload_key, row.mode))
        if row.other_work and beside and row.p50_high_ms and row.p50_high_ms < (beside.p50_low_ms or 0.0):
            faster.setdefault(row.kernel, []).append((row, beside))
    said = []
    for kernel, pairs in faster.items():
        where = f" on {len(pairs)} of {len(mine)} workloads" if len(mine) > 1 else ""
        times = "" if where else f": {_time(pairs[0][0])} against {_time(pairs[0][1])}"
        said.append(f"{kernel}, which does other work, is faster than {first.kernel}{where}{times}.")
    return said


def _time(row: Row) -> str:
    """ "1.75 ms (1.74 to 1.76)"."""
    found = (row.p50_ms, row.p50_low_ms, row.p50_high_ms)
    scale, unit = (1.0, "ms") if (row.p50_ms or 0.0) >= 1 else (1e3, "us")
    p50, low, high = (three_digits((time or 0.0) * scale) for time in found)
    return f"{p50} {unit} ({low} to {high})"


def sentence(text: str) -> str:
    """Text with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _others(ranked: Ranking, first: Standing) -> list[str]:
    """How the other kernels rank, and where the ranks hold."""
    count = len(ranked.means)
    if len(ranked.standings) < 2 or not any(one.word for one in ranked.standings):
        return []
    said = []
    if ranked.best == first and count > 1:
        ratio, low, _ = in_digits(*ranked.means[first.kernel])
        common = "the workload" if ranked.common == 1 else f"the {ranked.common} workloads"
        on = f" on {common} that all of them passed" if first.of > 1 else ""
        tied = ranked.tied(first.kernel)
        what = f"{first.kernel} is {f'tied with {listed(tied)} for ' * bool(tied)}the best"
        said.append(f"{what} of {count} kernels{on}: {ratio}x, at least {low}x (corrected for {count} comparisons).")
    for one in ranked.standings if ranked.means else ():
        if one.kernel not in ranked.means:
            why = "no workload in common with the others" if one.n else one.figures
            said.append(f"{one.kernel} has no rank: {why}.")
    if sum(bool(one.n) for one in ranked.standings) < 2:
        return said
    others = [one for one in ranked.standings if one != first and one.counts["faster"]]
    also = "also " * bool(first.counts["faster"])
    everywhere = [one.kernel for one in others if one.counts["faster"] == one.of == first.of]
    for names, where in (
        (everywhere, f" on all {first.of} workloads" if first.of > 1 else ""),
        ([one.kernel for one in others if one.kernel not in everywhere], " on some workloads"),
    ):
        if names:
            verb = "are" if len(names) > 1 else "is"
            said.append(f"{listed(names)} {verb} {also}faster than {first.baseline}{where}.")
    if others:
        return said
    if first.counts["faster"]:
        said.append(f"No other kernel has the verdict FASTER than {first.baseline}.")
    else:
        said.append(f"No kernel has the verdict FASTER than {first.baseline}.")
    return said


def _noise(table: Sequence[Row]) -> list[str]:
    """Where nothing is decided, and why."""
    told = [row for row in table if row.speedup is not None and not row.other_work]
    slowed = [row for row in told if row.why.startswith(SLOWED)]
    noisy = {row.workload_key: row for row in told if is_noisy(row.margin) and row not in slowed}
    sentences = [f"{row.kernel} is undecided: {row.why}." for row in slowed[:MOST_KERNELS_NAMED]]
    return sentences + (_noisy(table, noisy) if noisy else _widened([row for row in table if row not in slowed]))


def _noisy(table: Sequence[Row], noisy: Mapping[str, Row]) -> list[str]:
    """Workload -> a row whose baseline was too noisy."""
    of = len({row.workload_key for row in table})
    where = f" on {len(noisy)} of {of} workloads" if of > 1 else ""
    reasons = list(dict.fromkeys(row.why for row in noisy.values()))
    if len(reasons) == 1:
        return [f"Undecided{where}: {reasons[0]}."]
    stems = list(dict.fromkeys(why.partition(":")[0] for why in reasons))
    what = stems[0] if len(stems) == 1 else "results were too noisy"
    margins = [row.margin for row in noisy.values()]
    least, most = (as_margin(one(margins), 0) for one in (min, max))
    span = f"from {least} to {most}" if least != most else most if most.startswith("above") else f"of {most}"
    return [f"Undecided{where}: {what}, with margins {span}."]


def _widened(table: Sequence[Row]) -> list[str]:
    """Where A/A was off, and something is undecided."""
    margins = [row.margin for row in table if row.verdict == Verdict.UNDECIDED and row.margin > 1.01 * MARGIN]
    if not margins:
        return []
    slowed = any(row.environment for row in table if row.margin > 1.01 * MARGIN)
    why = f"A/A of {table[0].baseline} was noisy{', or variables of a kernel slow it down' * slowed}"
    return [f"{why}: FASTER and SLOWER need a difference of up to {max(margins):.1%}."]


def _faults(table: Sequence[Row], strong: str) -> list[str]:
    """Results that are not ok, by status. strong: what has been said already; of one workload there is no more to say."""
    sentences = []
    for status in FAILURES:
        mine = [row for row in table if row.status == status]
        if mine and (strong != f"{mine[0].kernel} is {status}" or len({row.workload_key for row in table}) > 1):
            verb = VERBS.get(status) or f"{'are' if len(mine) != 1 else 'is'} {status}"
            kernels, where = list(dict.fromkeys(row.kernel for row in mine)), _where(mine, table)
            if len(kernels) > 1:
                where = f"{',' * bool(where)}{where}"
                sentences.append(f"{len(kernels)} kernels {verb}: {_some(kernels)}{where}.")
            else:
                sentences.append(f"{len(mine)} result{'s' * (len(mine) != 1)} {verb} ({kernels[0]}{where}).")
    return sentences


def _fault(table: Sequence[Row]) -> str:
    """The kernels with results that are not ok, as one sentence."""
    kernels = list(dict.fromkeys(row.kernel for status in FAILURES for row in table if row.status == status))
    if len(kernels) == 1:
        return f"{kernels[0]} has results that are not ok."
    return f"{len(kernels)} kernels have results that are not ok: {_some(kernels)}."


def _some(kernels: list[str]) -> str:
    """ "a, b, c and 2 more"."""
    more = len(kernels) - MOST_FAILED_NAMED
    return listed([*kernels[:MOST_FAILED_NAMED], f"{more} more"] if more > 0 else kernels)


def _where(mine: Sequence[Row], table: Sequence[Row]) -> str:
    """ " on B=16 H=96 S=4096 D=64"; of more than a few workloads, their number."""
    workloads, of = list(dict.fromkeys(row.workload for row in mine)), len({row.workload for row in table})
    if of == 1:
        return ""
    if len(workloads) > MOST_WORKLOADS_NAMED:
        return f" on {len(workloads)} of {of} workloads" if len(workloads) < of else f" on all {of} workloads"
    return f" on {listed([workload.split(' ', 1)[-1] for workload in workloads])}"


def _checked(table: Sequence[Row]) -> list[str]:
    """What was checked of the timed kernels, if all of it is correct."""
    timed = [row for row in table if row.p50_ms is not None]
    if not timed or not all(row.correct for row in timed):
        return []
    outputs = sum(row.timed_calls_checked or 0 for row in timed)
    if not outputs:
        return ["Every timed kernel was correct when it was checked alone."]
    if any(row.status == Status.INCORRECT for row in table):
        return [f"{outputs:,} outputs of the results with a time were checked in the rounds: all are correct."]
    return [f"{outputs:,} outputs from the rounds were checked: all are correct."]


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
        f"Back to back, {who} run{'s' * (len(factors) == 1)} up to {most:.0%} slower, probably because the clock falls under "
        "continuous load. Use the mode sustained to compare under load."
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

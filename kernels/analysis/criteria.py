"""Success criteria, evaluated from results: holds, does not hold, cannot tell.

A criterion about a speedup holds on a workload if the low end of the interval reaches it, and does not hold if the high end
stays below. Between them nothing can be told. The intervals hold for all comparisons of the criterion at once (Bonferroni).
Where A/A was off, a speedup has to reach the factor by as much more as A/A widened the margin. A noisy, contended, unpaired
or claimed result decides nothing. A p90 is compared by the percentiles around it (`p90_reach`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from kernels.analysis.bottlenecks import TARGETS, Target
from kernels.analysis.statistics import MARGIN, as_margin, for_many
from kernels.analysis.verdicts import is_noisy
from kernels.contract.arm_result import FAILURES, ArmResult, ColdCalls, Ratio, Status, Verdict
from kernels.contract.profile import Figures

NAMES = {"sm_busy": "SM busy", "conflict_share": "bank conflicts", "local_share": "spills"}
SM_BUSY: Callable[[float], Target] = partial(Target, "sm_busy", lambda call: call.sm_busy, "at least", why="")
CLEAN = tuple(target for target in TARGETS if target.key in ("conflict_share", "local_share"))


class Word(StrEnum):
    HOLDS = "holds"
    FAILS = "does not hold"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True)
class Criterion:
    """What is wanted of one kernel. Without any of these wishes it is about something that nobody measures here."""

    kernel: str = ""
    """Empty: of any one kernel."""
    speedup: float | None = None
    """Least speedup over the baseline."""
    at_least: int | None = None
    """On so many workloads; None: on all."""
    workloads: str = ""
    """Words of their labels: "B=1 H=8, B=4 H=16" are two choices. Empty: every workload."""
    p90: bool = False
    """The p90 must not be worse than the baseline's."""
    correct: bool = False
    """Every output that was checked must be correct."""
    sm_busy: float | None = None
    """Least share of the time in which an SM has a warp, 0 to 1, by the counters of a profile."""
    no_spills: bool = False
    """Bank conflicts and spills meet the usual targets (`CLEAN`), by the same counters."""

    @property
    def is_measured(self) -> bool:
        return self.speedup is not None or self.p90 or self.correct or self.is_counted

    @property
    def is_of_outputs(self) -> bool:
        """Whether it is about correctness alone."""
        return self.correct and not (self.speedup is not None or self.p90 or self.is_counted)

    @property
    def is_counted(self) -> bool:
        """Whether a profile answers it."""
        return self.sm_busy is not None or self.no_spills

    def is_about(self, label: str) -> bool:
        """Whether a workload of this label is one of those meant."""
        words = set(label.lower().split())
        meant = [set(choice.lower().split()) for choice in self.workloads.split(",") if choice.strip()]
        return not meant or any(choice <= words for choice in meant)


@dataclass(frozen=True)
class Seen:
    """What is known of one kernel on one workload of one device."""

    place: str
    """Workload and device."""
    label: str
    """Of the workload."""
    kernel: str
    verdict: Verdict | Status
    ratio: Ratio | None = None
    """The speedup with its interval. Of a claim, three equal figures."""
    margin: float = MARGIN
    rounds: float = 0
    is_baseline: bool = False
    is_confirmed: bool = False
    is_contended: bool = False
    is_claimed: bool = False
    is_checked: bool = False
    p90: tuple[float, float] | None = None
    """Least and largest value that it can have, in ms."""
    base_p90: tuple[float, float] | None = None
    link: str = ""
    counters: Figures | None = None
    """Of its profile; None: it has no profile."""
    mode: str = ""
    """Of its measurement; empty: a claim. Results are counted by place and mode."""

    @property
    def operation(self) -> str:
        return self.label.partition(" ")[0]


@dataclass(frozen=True)
class Place:
    """A criterion on one workload."""

    seen: Seen
    word: Word
    why: str
    ratio: Ratio | None = None
    """As it was compared: for all comparisons at once."""


@dataclass(frozen=True)
class Answer:
    word: Word
    why: str
    kernel: str = ""
    """Whose results it is about."""
    places: Sequence[Place] = ()
    needed: int = 0
    """Workloads on which it must hold."""
    of: int = 0
    """Workloads that it is about, each once for every mode in which it was measured."""
    has_modes: bool = False
    """Whether one of them was measured in several modes."""

    is_about_time: bool = True
    """Whether it is about a speedup or a p90: these need several processes to be confirmed."""
    is_counted: bool = False
    """Whether a profile answered it."""

    @property
    def workloads(self) -> str:
        """The noun for what is counted."""
        return "workloads and modes" if self.has_modes else f"workload{'s' * (self.of != 1)}"

    @property
    def held(self) -> list[Place]:
        return [one for one in self.places if one.word == Word.HOLDS]

    @property
    def is_confirmed(self) -> bool:
        """Whether enough processes confirm each result that it holds by. What does not hold needs no confirmation."""
        return self.word != Word.HOLDS or not self.is_about_time or all(one.seen.is_confirmed for one in self.held)


def evaluate(criterion: Criterion, seen: Iterable[Seen]) -> Answer:
    """The answer from the newest results of each kernel on each workload."""
    if not criterion.is_measured:
        return Answer(Word.UNKNOWN, "the site cannot evaluate it from measurements")
    meant = [one for one in seen if criterion.is_about(one.label)]
    of_its_operation = {one.operation for one in meant if one.kernel == criterion.kernel}
    meant = [one for one in meant if not of_its_operation or one.operation in of_its_operation]
    places = _places(meant)
    has_modes = len(places) > len({place for place, _ in places})
    if has_modes:
        meant = [replace(one, label=f"{one.label} {one.mode}".strip()) for one in meant]
    needed = len(places) if criterion.at_least is None else criterion.at_least
    blank = Answer(Word.UNKNOWN, "", criterion.kernel, (), needed, len(places), has_modes)
    if not places:
        return replace(blank, why="nothing was measured on such a workload")
    mine = [one for one in meant if not one.is_baseline and criterion.kernel in ("", one.kernel)]
    if not mine:
        return replace(blank, why=f"{criterion.kernel or 'a kernel other than the baseline'} was not measured there")
    comparisons = sum(one.ratio is not None for one in mine)
    kernels = dict.fromkeys(one.kernel for one in mine)
    answers = [
        _of_kernel(criterion, replace(blank, kernel=name), [one for one in mine if one.kernel == name], comparisons)
        for name in kernels
    ]
    order = (Word.HOLDS, Word.UNKNOWN, Word.FAILS)
    return min(answers, key=lambda one: (order.index(one.word), not one.is_confirmed, -len(one.held)))


def _places(meant: Sequence[Seen]) -> set[tuple[str, str]]:
    """Where something was measured, each with the mode. A claim has no mode: it counts where nothing was measured."""
    measured = {(one.place, one.mode) for one in meant if not one.is_claimed}
    known = {place for place, _ in measured}
    return measured | {(one.place, "") for one in meant if one.place not in known}


def _of_kernel(criterion: Criterion, blank: Answer, mine: Sequence[Seen], comparisons: int) -> Answer:
    """The answer by the results of one kernel. blank: what is known before they are looked at."""
    found = tuple(_on(criterion, one, comparisons) for one in mine)
    blank = replace(blank, places=found)
    if all(one.is_claimed for one in mine):
        return replace(blank, why=ONLY_CLAIMED if criterion.is_of_outputs else _claimed(mine, criterion))
    wrong = [one.seen for one in found if one.seen.verdict in FAILURES]
    if criterion.correct and wrong:
        why = f"{blank.kernel} is {wrong[0].verdict} on {wrong[0].label}"
        return replace(blank, word=Word.FAILS, why=why)
    of, workloads = blank.of, blank.workloads
    if blank.needed > of:
        return replace(blank, why=f"only {of} such {workloads} measured")
    held = sum(one.word == Word.HOLDS for one in found)
    open_ = of - len(found) + sum(one.word == Word.UNKNOWN for one in found)
    unchecked = [one for one in mine if not one.is_checked and one.verdict not in FAILURES]
    missing = of - len({(one.place, one.mode) for one in mine})
    if held + open_ < blank.needed:
        return replace(blank, word=Word.FAILS, why=_first(found, Word.FAILS))
    if held < blank.needed:
        why = _first(found, Word.UNKNOWN) or f"not measured on {missing} of {of} {workloads}"
        return replace(blank, why=why)
    if criterion.correct and (unchecked or missing):
        return replace(blank, why=f"its outputs were not checked on {len(unchecked) + missing} of {of} {workloads}")
    timed = criterion.speedup is not None or criterion.p90
    return replace(blank, word=Word.HOLDS, is_about_time=timed, is_counted=criterion.is_counted)


ONLY_CLAIMED = "correctness is only claimed, not measured here"


def _claimed(mine: Sequence[Seen], criterion: Criterion) -> str:
    ratios = sorted(one.ratio.ratio for one in mine if one.ratio and criterion.speedup is not None)
    ends = dict.fromkeys(f"{end:.2g}x" for end in (ratios[0], ratios[-1])) if ratios else {}
    said = f" ({' to '.join(ends)})" if ends else ""
    return f"only claimed{said}, not measured here"


def _first(found: Iterable[Place], word: Word) -> str:
    return next((f"{one.why} on {one.seen.label}" for one in found if one.word == word), "")


def _on(criterion: Criterion, one: Seen, comparisons: int) -> Place:
    """On one workload: its speedup and its p90. Whether it is correct is asked for all workloads together."""
    if one.verdict in FAILURES:
        return Place(one, Word.FAILS, f"{one.kernel} is {one.verdict}")
    ratio = for_many(one.ratio, comparisons, one.rounds) if one.ratio and one.rounds else one.ratio
    words = []
    if criterion.correct and one.is_claimed:
        words.append((Word.UNKNOWN, "only claimed, not measured here"))
    if criterion.speedup is not None:
        words.append(_speedup(criterion.speedup, replace(one, ratio=ratio)))
    if criterion.p90:
        words.append(_p90(one))
    if criterion.is_counted:
        words += _counted(criterion, one)
    for wanted in (Word.FAILS, Word.UNKNOWN):
        if why := next((why for word, why in words if word == wanted), ""):
            return Place(one, wanted, why, ratio)
    return Place(one, Word.HOLDS, "", ratio)


def _doubt(one: Seen) -> str:
    """Why a result decides nothing; empty if it may."""
    if one.is_claimed:
        return f"only claimed{f' ({one.ratio.ratio:.3g}x)' if one.ratio else ''}, not measured here"
    if one.is_contended:
        return "other processes used the device"
    if is_noisy(one.margin):
        return f"A/A was too noisy (margin {as_margin(one.margin, 0)})"
    return ""


def _counted(criterion: Criterion, one: Seen) -> Iterator[tuple[Word, str]]:
    """By the counters of its profile: a profiler runs alone, so a contended run does not matter."""
    if one.is_claimed:
        yield Word.UNKNOWN, "only claimed, not measured here"
    elif one.counters is None:
        yield Word.UNKNOWN, "it has no profile"
    else:
        wanted = [SM_BUSY(criterion.sm_busy)] if criterion.sm_busy is not None else []
        for target in (*wanted, *(CLEAN if criterion.no_spills else ())):
            name, value = NAMES[target.key], target.value(one.counters)
            if value is None:
                yield Word.UNKNOWN, f"its profile has no counter of {name}"
            elif not target.is_met(one.counters):
                yield Word.FAILS, f"{name} {value:.0%}, wanted {target.holds} {target.threshold:.0%}"


def _speedup(factor: float, one: Seen) -> tuple[Word, str]:
    if why := _doubt(one):
        return Word.UNKNOWN, why
    if one.ratio is None or one.verdict not in (Verdict.FASTER, Verdict.SLOWER, Verdict.SAME, Verdict.UNDECIDED):
        return Word.UNKNOWN, str(one.verdict) or "no speedup"
    more = 1 + max(0.0, one.margin - MARGIN)
    said = f"{one.ratio.ratio:.3g}x ({one.ratio.low:.3g} to {one.ratio.high:.3g})"
    if one.ratio.low >= factor * more:
        return Word.HOLDS, ""
    if one.ratio.high < factor / more:
        return Word.FAILS, said
    return Word.UNKNOWN, f"{said} may be above or below {factor:g}x"


# --- p90 --------------------------------------------------------------------------------------------------------------

Z = 2.576
"""Of a 99% interval."""


def p90_reach(calls: ArmResult | ColdCalls) -> tuple[float, float] | None:
    """The least and largest value that the p90 of single calls can have in 99% of all cases: the stored percentiles around
    the ranks that n independent calls allow. None: too few calls, or none.

    The rank of the p90 of n calls lies within 0.9 +- 2.576 sqrt(0.09 / n).
    """
    below = getattr(calls, "p75_ms", None) or calls.p50_ms
    if not calls.n or calls.p90_ms is None or below is None:
        return None
    side = Z * (0.09 / calls.n) ** 0.5
    if calls.p95_ms is not None and side <= 0.05:
        return below, calls.p95_ms
    if calls.p99_ms is not None and side <= 0.09:
        return below, calls.p99_ms
    return None


def _p90(one: Seen) -> tuple[Word, str]:
    if one.is_claimed:
        return Word.UNKNOWN, "only claimed, not measured here"
    if why := _doubt(one):
        return Word.UNKNOWN, why
    if one.p90 is None or one.base_p90 is None:
        return Word.UNKNOWN, "too few single calls for a p90"
    more = 1 + max(MARGIN, one.margin)
    if one.p90[1] <= one.base_p90[0] * more:
        return Word.HOLDS, ""
    if one.p90[0] > one.base_p90[1] * more:
        return (
            Word.FAILS,
            f"p90 is worse: at least {one.p90[0]:.4g} ms, the baseline's at most {one.base_p90[1]:.4g} ms",
        )
    return Word.UNKNOWN, "the p90s are too close"

"""The report of a session, read from its runs, its claims and its plan. All of it is made when it is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from kernels.analysis import findings as analysis
from kernels.analysis.criteria import Answer, Seen, Word, evaluate
from kernels.analysis.findings_cause import causes
from kernels.analysis.findings_one import Finding, Kind
from kernels.analysis.statistics import MIN_ROUNDS, for_many, word
from kernels.contract.arm_result import Ratio, Verdict
from kernels.report import comparison, comparison_summary
from kernels.report.criteria_words import answered, asked
from kernels.report.summary import Summary, headline, sentence
from runs.models import Claim, Environment, Gpu, Note, Run, Session, TierScale
from runs.models.plan import Phase, PhaseState, Wanted
from runs.models.tier_scale import Tier
from runs.queries import history, measurements, point_rows
from runs.queries import progress as progressed
from runs.queries.figures import Figure, Shown, claimed_figures, gpu_of, named_baseline, read_claims, seen_claim
from runs.queries.foremost import foremost, surest
from runs.queries.ladder import to_go
from runs.queries.outcomes import Outcome, with_outcomes
from runs.queries.points import Point

MOST_CLAIMS = 1_000


@dataclass(frozen=True)
class Entry:
    """A run or a note with its time."""

    at: datetime
    run: Run | None = None
    outcome: Outcome | None = None
    note: Note | None = None


@dataclass(frozen=True)
class Judged:
    """A success criterion with its answer."""

    wanted: Wanted
    answer: Answer

    @property
    def asked(self) -> str:
        return asked(self.wanted.criterion)

    @property
    def answered(self) -> str:
        return answered(self.answer)


@dataclass(frozen=True)
class Reached:
    """How far the best kernel of a workload is up the tiers; the baseline, if no kernel is faster."""

    figure: Figure
    tier: Tier | None
    next: Tier | None
    missing_ms: float | None
    """What its time must lose to reach the next tier. 0: it is fast enough, but not certain."""
    is_beyond: bool
    """The next tier is faster than the speed of light allows."""


@dataclass(frozen=True)
class PhaseRow:
    """A phase, and the phases that it waits for."""

    phase: Phase
    waits: list[Phase]


@dataclass(frozen=True)
class Line:
    """One workload: the baseline's result, and those of each kernel; a withdrawn one beside the one that counts."""

    label: str
    method: str
    base: Figure | None
    cells: list[list[Figure]]


@dataclass(frozen=True)
class Grid:
    """Results of one operation on one GPU against their baselines: a line for each workload, a column for each kernel."""

    title: str
    baseline: str
    kernels: list[str]
    lines: list[Line]
    is_claimed: bool


@dataclass
class SessionReport:
    session: Session
    runs: list[tuple[Run, Outcome]]
    newest: list[Shown]
    """The newest result of each kernel on each workload, GPU and mode."""
    withdrawn: list[Shown]
    """Results that would be the newest, were their runs not withdrawn."""
    claims: list[Figure]
    findings: list[Finding]
    table: list[comparison.Row]
    pages: progressed.Pages
    notes: list[Note] = field(default_factory=list)

    # --- its rows ---

    @cached_property
    def measured(self) -> list[Figure]:
        return [one.figure for one in self.newest]

    @cached_property
    def figures(self) -> list[Figure]:
        """Measured, withdrawn and claimed, by operation, GPU, method and work; the baseline before the others."""
        every = [*self.measured, *(one.figure for one in self.withdrawn), *self.claims]
        return sorted(every, key=lambda one: (
            one.is_claimed, one.workload.operation, one.gpu, one.method.lower(), one.workload.dtype, one.work, one.label,
            not one.is_baseline, one.kernel,
        ))  # fmt: skip

    @property
    def baselines(self) -> list[Figure]:
        return [one for one in self.figures if one.is_baseline]

    @property
    def compared(self) -> list[Figure]:
        return [one for one in self.figures if not one.is_baseline]

    @cached_property
    def grids(self) -> list[Grid]:
        groups: dict[tuple[bool, str, str], list[Figure]] = {}
        for one in self.compared:
            groups.setdefault((one.is_claimed, one.workload.operation, one.gpu), []).append(one)
        return [_grid(is_claimed, gpu, mine) for (is_claimed, _, gpu), mine in groups.items()]

    @property
    def edited(self) -> list[comparison.Row]:
        """What changed with its source."""
        return [row for row in self.table if not row.same_source and row.verdict != Verdict.BASELINE]

    @property
    def unchanged(self) -> list[comparison.Row]:
        return [row for row in self.table if row.same_source and row.verdict != Verdict.BASELINE]

    @cached_property
    def seen(self) -> list[Seen]:
        """For the criteria: one of each kernel on each place in each mode. A claim, which has no mode, counts only where its
        kernel was not measured here."""
        found: dict[tuple[str, str, str], Seen] = {}
        for one in (one.seen for one in self.newest):
            found.setdefault((one.place, one.kernel, one.mode), one)
        known = {(place, kernel) for place, kernel, _ in found}
        for one in map(seen_claim, self.claims):
            if (one.place, one.kernel) not in known:
                found.setdefault((one.place, one.kernel, ""), one)
        return list(found.values())

    @cached_property
    def criteria(self) -> list[Judged]:
        return [Judged(one, evaluate(one.criterion, self.seen)) for one in self.session.wanted]

    @property
    def phases(self) -> list[Phase]:
        return self.session.plan

    @property
    def phase_rows(self) -> list[PhaseRow]:
        return [PhaseRow(one, one.waits_for(self.phases)) for one in self.phases]

    @cached_property
    def entries(self) -> list[Entry]:
        """Runs and notes by time."""
        timeline = [Entry(run.created_at, run=run, outcome=outcome) for run, outcome in self.runs]
        timeline += [Entry(note.created_at, note=note) for note in self.notes]
        return sorted(timeline, key=lambda entry: entry.at)

    @property
    def known_runs(self) -> dict[int, bool]:
        """Number -> whether it is withdrawn: notes that name a run link to it."""
        return {run.pk: bool(run.withdrawn_at) for run, _ in self.runs}

    # --- its words ---

    @cached_property
    def headline(self) -> Summary | None:
        """What changed; else how the kernel of its last run stands, one that was not contended and has a verdict before others;
        else what its claims say. None: nothing was compared."""
        if any(row.verdict != Verdict.BASELINE for row in self.table):
            return comparison_summary.summary(self.table)
        told = [(run, outcome) for run, outcome in reversed(self.runs) if outcome.first and not run.withdrawn_at]
        told.sort(key=lambda one: (one[1].contended, not one[1].word))
        if told:
            return _of_a_run(*told[0])
        slow = next((one for one in self.findings if one.kind == Kind.SLOW), None)
        if slow:
            rest = ["The figures are from imported claims. This site did not measure them."] if self.claims else []
            return Summary(slow.sentence.removesuffix("."), rest, "same")
        return None

    @property
    def counted(self) -> str:
        """ "1 of 5 success criteria holds, unconfirmed; 2 cannot be answered yet. 3 of 11 phases are done, 1 is blocked."."""
        said = [_of_criteria([one.answer for one in self.criteria])] if self.criteria else []
        if self.phases:
            states = [phase.state for phase in self.phases]
            done, blocked = states.count(PhaseState.DONE), states.count(PhaseState.BLOCKED)
            more = f", {blocked} {'is' if blocked == 1 else 'are'} blocked" if blocked else ""
            if len(states) > 1:
                said.append(f"{done} of {len(states)} phases {'is' if done == 1 else 'are'} done{more}.")
            else:
                said.append(f"Its phase is {'done' if done else 'blocked' if blocked else 'not done'}.")
        return " ".join(said)

    @property
    def gpu_seconds(self) -> dict[str, float]:
        """Device -> seconds of its runs, withdrawn ones included. Demo runs used no device of this site."""
        used: dict[str, float] = {}
        for run, _ in self.runs:
            if not run.demo and (took := run.elapsed_s):
                used[gpu_of(run)] = used.get(gpu_of(run), 0.0) + took
        return used

    @property
    def minutes(self) -> tuple[int, int]:
        """(planned, taken) of all phases."""
        return sum(one.planned_min or 0 for one in self.phases), sum(one.actual_min or 0 for one in self.phases)

    @cached_property
    def _tried(self) -> list[Figure]:
        return [one for one in self.measured if one.ratio and not one.is_baseline]

    @property
    def comparisons(self) -> int:
        """Results that its tiers compare with a baseline: their intervals hold for so many at once."""
        return len(self._tried)

    def tiers(self, scale: TierScale | None) -> list[Reached]:
        """The best kernel on each workload: what it has reached by the interval that holds for all of them."""
        places: dict[tuple[str, str], list[Figure]] = {}
        for one in self._tried:
            places.setdefault((one.place, one.method), []).append(one)
        return [_reached(mine, self.comparisons, scale) for mine in places.values()] if scale else []


def _of_a_run(run: Run, outcome: Outcome) -> Summary:
    """How its first kernel stands; of a run of several operations, in which of them, and how many more there are."""
    assert outcome.first is not None
    strong, tone = headline(outcome.first, outcome.contended)
    of = f"Figures of run {run.pk}{f', which measured {outcome.more}' if outcome.more else ''}."
    rest = [sentence(outcome.first.rest), f"{of} No kernel was measured twice under the same conditions yet."]
    rest += ["The run is contended: other processes used the device."] if outcome.contended else []
    return Summary(f"{outcome.operation}: {strong}" if outcome.operation else strong, rest, tone)


def _of_criteria(answers: Sequence[Answer]) -> str:
    words = [one.word for one in answers]
    held, unknown = words.count(Word.HOLDS), words.count(Word.UNKNOWN)
    loose = sum(not one.is_confirmed for one in answers)
    if len(words) == 1:
        said = "holds, unconfirmed" if loose else str(words[0])
        return "It is unknown whether the success criterion holds." if unknown else f"The success criterion {said}."
    more = "" if not loose else ", unconfirmed" if held == 1 else f", {loose} of them unconfirmed"
    open_ = f"; {unknown} cannot be answered yet" if unknown else ""
    return f"{held} of {len(words)} success criteria hold{'s' * (held == 1)}{more}{open_}."


def _grid(is_claimed: bool, gpu: str, mine: list[Figure]) -> Grid:
    faster = Counter(one.kernel for one in mine if one.verdict == Verdict.FASTER and not one.is_withdrawn)
    kernels = sorted(dict.fromkeys(one.kernel for one in mine), key=lambda kernel: -faster[kernel])
    places: dict[tuple[str, str], dict[str, list[Figure]]] = {}
    for one in mine:
        places.setdefault((one.place, one.method), {}).setdefault(one.kernel, []).append(one)
    lines = []
    for found in places.values():
        first = next(one for several in found.values() for one in several)
        base = next(
            (one.base for several in found.values() for one in several if one.base and not one.is_withdrawn), first.base
        )
        lines.append(Line(first.label, first.method, base, [found.get(kernel, []) for kernel in kernels]))
    title = f"{mine[0].workload.operation} on {gpu or 'an unknown GPU'}{', claimed' if is_claimed else ''}"
    return Grid(title, next((one.baseline for one in mine if one.baseline), ""), kernels, lines, is_claimed)


def _sure(one: Figure, comparisons: int) -> Ratio | None:
    """Its speedup with the interval that holds for so many comparisons; None if it is not FASTER by it."""
    if one.verdict != Verdict.FASTER or one.is_contended or not one.ratio or not one.rounds:
        return None
    ratio = for_many(one.ratio, comparisons, one.rounds)
    said = word(ratio.low, ratio.high, one.margin, MIN_ROUNDS)  # its own verdict has seen its rounds
    return ratio if said == Verdict.FASTER else None


def _reached(mine: list[Figure], comparisons: int, scale: TierScale) -> Reached:
    """mine: what was compared on one workload. The foremost kernel that reaches its tier is named."""
    sure = [(one, ratio) for one in mine if (ratio := _sure(one, comparisons))]
    first = next(iter(foremost(sure)), None)
    known, low = first[0] if first else mine[0], surest(sure)
    base = known.base or known
    most = base.ms / base.limit_ms if base.ms and base.limit_ms and base.method != "warm" else None
    tiers = scale.tiers_up_to(most)
    reached = [tier for tier in tiers if tier.factor <= low]
    following = next((tier for tier in tiers if tier.factor > low), None)
    able = [placed for placed in sure if not reached or placed[1].low >= reached[-1].factor]
    named = next(iter(foremost(able)), None)
    best, speedup = (named[0], named[1].ratio) if named else (base, 1.0)
    missing = to_go(base.ms, speedup, following.factor) or 0.0 if following and base.ms else None
    beyond = bool(following and most and following.factor > most)
    return Reached(best, reached[-1] if reached else None, following, missing, beyond)


# --- reading ----------------------------------------------------------------------------------------------------------


def session_report(session: Session) -> SessionReport:
    """Everything that pages and files of a session show, in eight queries."""
    listed = Run.objects.for_list().select_related("gpu", "user", "withdrawn_by", "environment").filter(session=session)
    runs = with_outcomes(listed.order_by("pk"))
    by_pk = {run.pk: run for run, _ in runs}
    points = point_rows.points(point_rows.tried(session=session, withdrawn=True), history.MOST_RESULTS)
    sound = [point for point in points if not point.withdrawn_at]
    ends = progressed.ends_of(history.grouped(sound, *_known(by_pk)))
    newest, withdrawn = _newest(points, by_pk)
    wanted = progressed.results_of(ends) | set(newest) | set(withdrawn)
    read = measurements.with_baselines(wanted, profiles=True) if wanted else {}
    table, pages = progressed.compared(ends, {pk: (measured, arm) for pk, (_, measured, arm) in read.items()})
    shown = {pk: Shown(by_pk[run.pk], measured, arm) for pk, (run, measured, arm) in read.items()}
    claims = read_claims(Claim.objects.filter(imported__session=session).select_related("imported")[:MOST_CLAIMS])
    figures = claimed_figures(claims)
    mine = [shown[pk] for pk in newest if pk in shown]
    observed = [found for one in mine if (found := one.observed) is not None]
    of_claims = analysis.findings([one for one, _ in claims], named_baseline(claims))
    hypotheses = causes((one.timed, one.arm.profile) for one in mine if one.arm.profile)
    every = analysis.in_order([*analysis.of_runs(observed), *hypotheses, *of_claims])
    notes = list(session.notes.select_related("user"))
    gone = [shown[pk] for pk in withdrawn if pk in shown]
    return SessionReport(session, runs, mine, gone, figures, every, table, pages, notes)


def _known(runs: dict[int, Run]) -> tuple[dict[int, Environment], dict[int, Gpu]]:
    """Environments and GPUs that were read with the runs."""
    environments = {run.environment.pk: run.environment for run in runs.values() if run.environment}
    return environments, {run.gpu.pk: run.gpu for run in runs.values() if run.gpu}


def _newest(points: Sequence[Point], runs: dict[int, Run]) -> tuple[list[int], list[int]]:
    """Row ids of the newest results of each kernel on each workload, GPU and mode; and of withdrawn ones that are newer."""
    newest: dict[tuple[object, ...], int] = {}
    withdrawn: dict[tuple[object, ...], int] = {}
    for point in points:  # the newest run first
        key = (point.workload, gpu_of(runs[point.run]), point.mode, point.group, point.kernel)
        if key not in newest:
            (withdrawn if point.withdrawn_at else newest).setdefault(key, point.pk)
    return list(newest.values()), list(withdrawn.values())

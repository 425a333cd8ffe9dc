"""The leaderboard: on each workload and GPU model, the best confirmed kernel, and the best that is not confirmed.

Best is the foremost of FASTER kernels of uncontended runs (foremost.py); without one, the baseline. The intervals hold for
all comparisons of the board at once (Bonferroni). Kernels are compared on the same terms only (history.Terms): a place has the
record of the newest terms with confirmed results, and beside it what its newest terms show. A kernel that is faster on
another card is named beside them. Submitted kernels are measured isolated, and so have terms of their own: the higher of
both leads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from django.db.models import F, Q, QuerySet

from kernels.analysis.statistics import WIDEST_MARGIN, for_many, word
from kernels.analysis.verdicts import enough_rounds
from kernels.catalog import PROBLEM, operations
from kernels.contract.arm_result import Verdict
from kernels.submission import is_submitted
from runs.models import Environment, Run, Workload
from runs.queries import history, point_rows
from runs.queries.foremost import foremost, surest
from runs.queries.history import Series
from runs.queries.ladder import why_undecided
from runs.queries.points import Point
from runs.queries.ratio import Ratio

MODES = ("graph", "cold", "cpu")
"""Modes that the protocol chooses by itself. What was measured in another one stands on no board, but for submitted kernels:
they are always isolated. An isolated result of another kernel is a second opinion of it."""
OWN_SIZES = "its own sizes"
"""Of a problem that has one case."""
CONFIRMED, UNCONFIRMED, UNDECIDED = "confirmed", "unconfirmed", "undecided"


class Placed(NamedTuple):
    """A result with the interval that holds for all comparisons of the board."""

    point: Point
    ratio: Ratio

    @property
    def word(self) -> Verdict:
        """What this interval says."""
        return word(self.ratio.low, self.ratio.high, self.point.margin, enough_rounds(self.point))

    @property
    def counts(self) -> bool:
        """Whether it can lead: FASTER by this interval, too, and not contended."""
        return self.word == Verdict.FASTER and self.point.verdict == Verdict.FASTER and not self.point.contended

    @property
    def is_decided(self) -> bool:
        """Whether it can lead, or is known not to be faster by this interval. A contended result decides nothing."""
        return self.counts or (self.word in (Verdict.SLOWER, Verdict.SAME) and not self.point.contended)

    @property
    def is_quiet(self) -> bool:
        """Whether its ratio is no noise: not contended, and a margin of at most 5%."""
        return not self.point.contended and self.point.margin <= WIDEST_MARGIN


@dataclass
class Record:
    """Who is best on one place, on one terms."""

    series: Series
    base: Point
    """The newest time of the baseline."""
    ahead: list[Placed]
    """The foremost kernels, the one that the place names first. Empty: no kernel is decided faster than the baseline."""
    compared: list[Placed]
    """Everything that was compared, fastest first."""
    is_confirmed: bool

    @property
    def best(self) -> Placed | None:
        return next(iter(self.ahead), None)

    @property
    def point(self) -> Point:
        return self.best.point if self.best else self.base

    @property
    def low(self) -> float:
        """The certain part of the lead; 1 of the baseline."""
        return surest(self.ahead) or 1.0

    @property
    def high(self) -> float:
        """The high end of what is shown; 1 of the baseline."""
        return self.best.ratio.high if self.best else 1.0

    @property
    def open(self) -> list[Placed]:
        """Results that may be faster than the baseline, and may not; the highest estimate first."""
        return [one for one in self.compared if not one.is_decided]

    @property
    def undecided(self) -> int:
        """Their number."""
        return len(self.open)

    @property
    def why_undecided(self) -> str:
        """The first of them with its reason: "triton-nsa (margin 9%) and 2 more"; empty if there is none."""
        return why_undecided([one.point for one in self.open])

    @property
    def not_apart(self) -> list[Placed]:
        """Other kernels that can lead, and are tied with the best one. A confirmed record has confirmed ones only."""
        return self.ahead[1:]

    @property
    def names_nobody(self) -> bool:
        """Whether it is not known if a kernel is faster than the baseline: neither of them is best."""
        return not self.best and bool(self.open)

    @property
    def share(self) -> float | None:
        """Speed of light / its p50."""
        point = self.point
        return point.limit_ms / point.p50_ms if point.limit_ms and point.p50_ms else None

    @property
    def host(self) -> str:
        return self.series.gpu.host if self.series.gpu and not self.point.demo else ""

    @property
    def where(self) -> str:
        """ "on gpu-1"; of a demo run, that it came with the site."""
        return f"on {self.host}" if self.host else "in a demo run" if self.point.demo else ""

    @property
    def where_else(self) -> str:
        """The same for a record beside one of another card. The card of a demo run is unknown."""
        return "in another demo run" if self.point.demo else "on another card"


@dataclass
class Place:
    """One workload on one GPU model."""

    workload: Workload
    gpu: str
    record: Record | None = None
    """The best that is confirmed."""
    rumour: Record | None = None
    """What is better, or all that there is, and not confirmed."""
    elsewhere: Record | None = None
    """The best of another card, if it is another kernel and its interval is wholly above that of `shown`; a confirmed one
    first."""

    @property
    def is_rumour_higher(self) -> bool:
        """Whether the interval of what is not confirmed is wholly above that of the record."""
        return bool(self.record and self.rumour and self.rumour.low > self.record.high)

    @property
    def work(self) -> str:
        """What is computed: its operation, or the problem that came with its kernels."""
        return str(self.workload.sizes[PROBLEM]) if self.workload.operation == PROBLEM else self.workload.operation

    @property
    def shape(self) -> str:
        """Its sizes."""
        of = self.workload.label.split(" ", 2)[-1]
        return of.removeprefix(self.work).strip() or OWN_SIZES

    @property
    def cell(self) -> str:
        """Its name in addresses."""
        return f"{self.workload.key}-{self.gpu}"

    @property
    def shown(self) -> Record:
        found = self.record or self.rumour
        assert found is not None
        return found


@dataclass
class Board:
    places: list[Place] = field(default_factory=list)
    comparisons: int = 0
    """Results that are compared with a baseline, over the whole board."""
    people: dict[int, str] = field(default_factory=dict)
    """Run of a record -> who started it."""

    @property
    def gpus(self) -> list[str]:
        """GPU models, the one with most results first; of equals, the latest measured one."""
        counts, last = Counter[str](), dict[str, int]()
        for place in self.places:
            counts[place.gpu] += len(place.shown.compared)
            last[place.gpu] = max(last.get(place.gpu, 0), place.shown.point.run)
        return sorted(last, key=lambda name: (-counts[name], -last[name]))

    def by(self, record: Record) -> str:
        return self.people.get(record.point.run, "")


def board() -> Board:
    """All of it, from the newest result of each kernel on each terms."""
    newest = standing(point_rows.newest())
    series = history.grouped(point_rows.points(newest))
    groups: dict[tuple[int, str], dict[history.Terms, list[Series]]] = {}
    for one in series:
        name = one.environment.get("device") or (one.gpu.name if one.gpu else "")
        groups.setdefault((one.terms.workload, name), {}).setdefault(one.terms._replace(group=""), []).append(one)
    comparisons = sum(point.ratio is not None for one in series for point in one.points)
    made = Board(comparisons=comparisons)
    for (_, gpu), terms in groups.items():
        if place := _place(gpu, list(terms.values()), comparisons):
            made.places.append(place)
    runs = {one.point.run for place in made.places for one in (place.record, place.rumour) if one}
    named = (
        Run.objects.filter(user__isnull=False, pk__in=runs)
        if len(runs) < point_rows.AT_ONCE
        else Run.objects.filter(user__isnull=False)
    )
    made.people = dict(named.values_list("pk", "user__username"))
    return made


def standing(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Those of results that can stand on a board: `stands` says the same of a point."""
    isolated = Q(measurement__isolated=True) & (
        Q(kernel__name__contains="@") | Q(kernel__name=F("measurement__baseline"))
    )
    return rows.filter(isolated | Q(measurement__isolated=False, measurement__mode__in=MODES))


def stands(point: Point) -> bool:
    if point.isolated:
        return is_submitted(point.kernel) or point.kernel == point.baseline
    return point.mode in MODES


def _place(gpu: str, terms: list[list[Series]], comparisons: int) -> Place | None:
    with_confirmed = [one for one in terms if any(point.is_confirmed for part in one for point in part.points)]
    confirmed = [found for one in with_confirmed if (found := _record(one, comparisons, confirmed=True))]
    every = [found for one in terms if (found := _record(one, comparisons, confirmed=False))]
    sure, newest = _of_both_ways(confirmed), _of_both_ways(every)
    sure = sure if sure and sure.is_confirmed else None
    if newest is None:
        return None
    place = Place(newest.series.workload, gpu, sure)
    if place.record is None or (newest.best and not newest.best.point.is_confirmed and newest.low > place.record.low):
        place.rumour = newest
    place.elsewhere = _elsewhere(place, confirmed) or _elsewhere(place, every)
    return place


def _elsewhere(place: Place, records: Iterable[Record]) -> Record | None:
    """The best of the newest records of other cards; None: the interval of no other kernel there is wholly above that of
    what the place shows. A demo run is compared with demo runs only."""
    shown, rumour = place.shown, place.rumour
    cards: dict[str, list[Record]] = {}
    for one in records:
        if one.series.terms.card != shown.series.terms.card and bool(one.base.demo) == bool(shown.base.demo):
            cards.setdefault(one.series.terms.card, []).append(one)
    found = [
        best
        for part in cards.values()
        if (best := _of_both_ways(part)) and best.best and best.best.ratio.low > shown.high
    ]
    told = {shown.point.pk, rumour.point.pk if rumour else None}
    others = [one for one in found if one.point.kernel != shown.point.kernel and one.point.pk not in told]
    return max(others, key=lambda one: one.low, default=None)


def _of_both_ways(records: Iterable[Record]) -> Record | None:
    """The newest of the shared process and the newest of isolated ones: the one whose certain lead is larger."""
    newest: dict[bool, Record] = {}
    for one in records:
        way = one.point.isolated
        if way not in newest or _age(one) > _age(newest[way]):
            newest[way] = one
    return max(newest.values(), key=lambda one: (not one.base.demo, one.low, not one.point.isolated), default=None)


def _age(record: Record) -> tuple[bool, int]:
    """A device of this site precedes a demo run; then the newest."""
    return not record.base.demo, record.base.run


def _record(series: list[Series], comparisons: int, confirmed: bool) -> Record | None:
    """Who is best on these terms. confirmed: among confirmed results only."""
    newest: dict[str, Point] = {}
    for one in series:
        for point in one.points:
            if (point.is_confirmed or not confirmed) and (
                point.kernel not in newest or _precedes(point, newest[point.kernel])
            ):
                newest[point.kernel] = point
    first = series[0]
    base = newest.get(first.terms.baseline)
    known = operations().get(first.workload.operation)
    if base is None or not base.p50_ms or (known is not None and base.kernel != known.baseline):
        return None
    placed = [Placed(point, _for_many(point, comparisons)) for point in newest.values() if point.ratio is not None]
    if not placed:
        return None
    ahead = foremost(one for one in placed if one.counts)
    if ahead:
        sure = ahead[0].point.is_confirmed
    else:
        sure = base.is_confirmed and not base.contended and all(one.is_decided for one in placed)
    return Record(first, base, ahead, sorted(placed, key=lambda one: -one.ratio.ratio), sure)


def _precedes(point: Point, other: Point) -> bool:
    """An uncontended result precedes a contended one; then the newest."""
    return (not point.contended, point.run) > (not other.contended, other.run)


def _for_many(point: Point, comparisons: int) -> Ratio:
    compared = point.compared
    assert compared.ratio is not None
    return Ratio(*for_many(compared.ratio, comparisons, compared.rounds), point.margin)


# --- the history of a record ------------------------------------------------------------------------------------------


def steps(place: Place) -> list[Placed]:
    """The confirmed records of a place, oldest first: each one broke the one before. Their intervals hold one by one."""
    there = Environment.objects.filter(body__device=place.gpu).values("pk")
    rows = confirmed(point_rows.tried(key=place.workload.key)).filter(measurement__run__environment__in=there)
    return climb(able(point_rows.points(rows, history.MOST_RESULTS), place.shown.base.kernel))


def confirmed(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Those of runs that can hold a record."""
    return standing(rows).filter(confirmed=True)


def able(points: Iterable[Point], baseline: str) -> list[Placed]:
    """Results of one place that can hold its record, over a baseline of this name: run by run, the oldest first."""
    over = (Placed(point, point.ratio) for point in points if point.ratio and point.baseline == baseline)
    return sorted((placed for placed in over if placed.counts), key=lambda placed: placed.point.run)


def climb(placed: Iterable[Placed]) -> list[Placed]:
    """The records of one place, oldest first, each as it was measured when it broke the one before; the first one set it.

    A run breaks a record if its best kernel is wholly above the holder: a tie breaks none, nor does the holder measured
    again, whose surest result is what others have to beat. placed: those of `able`. They may be of several cards, drivers
    and harnesses: who shows them says so (history.what_differs)."""
    records: list[Placed] = []
    holder: Placed | None = None
    for _, run in groupby(placed, key=lambda one: one.point.run):
        together = list(run)
        if holder is not None:
            again = (one for one in together if source_of(one) == source_of(holder))
            holder = max([holder, *again], key=lambda one: one.ratio.low)
        best = foremost(together)[0]
        if holder is None or best.ratio.low > holder.ratio.high:
            records.append(best)
            holder = best
    return records


def source_of(placed: Placed) -> tuple[str, str | None]:
    """Which source of which kernel it is: the same one measured again breaks no record of its own."""
    return placed.point.kernel, placed.point.sha256

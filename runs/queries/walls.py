"""What a status page shows of each chosen thing. Devices are read at each request, all else when the page is drawn anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.utils import timezone

from kernels.analysis.standing import Standing, standing_of
from runs.models import Change, Gpu, Kernel, KernelVersion, Newest, Run, Session, StatusPage, Target
from runs.models.status_page import Part
from runs.queries import history, leaders, point_rows, week
from runs.queries.history import Series
from runs.queries.leaders import Board
from runs.queries.points import Point
from runs.queries.session_report import SessionReport, session_report
from runs.queries.targets import Standings, standings

MOST = {"targets": 8, "kernels": 5, "workloads": 8, "sessions": 5, "devices": 24}
"""Rows of a part: more cannot be read from three metres."""
BESIDE_A_CHANGE = 2
"""Kernels that have room beside the change and its chart."""


@dataclass
class Stood:
    """A kernel on the devices of one model."""

    kernel: str
    operation: str
    gpu: str
    standing: Standing
    demo: bool = False
    """Whether a figure is of a demo run."""
    is_confirmed: bool = False
    """Whether every figure is."""
    is_alike: bool = True
    """Whether all were measured alike: only then they have a common mean."""
    source: str = ""
    """Empty unless the page shows sources."""
    label: str = ""
    """Its name; with its operation where kernels of several operations stand together."""

    @property
    def brief(self) -> str:
        """What its standing adds to the phrase."""
        why = "" if self.is_alike else "several cards, versions or baselines: no common mean"
        return "; ".join(filter(None, [self.standing.brief, why]))


@dataclass
class Rows:
    """What is chosen of one part."""

    kind: str
    rows: Sequence[Any] = ()
    most: int = 0
    """Rows that have room."""
    unread: int = 0
    """Chosen rows that were not even read."""
    change: Change | None = None
    """Of kernels: the largest change that was found this week."""

    @property
    def shown(self) -> Sequence[Any]:
        return self.rows[: self.most]

    @property
    def more(self) -> int:
        """Rows that found no room."""
        return len(self.rows) - len(self.shown) + self.unread


@dataclass
class Wall:
    """A status page without its devices."""

    page: StatusPage
    parts: list[Rows] = field(default_factory=list)
    warmth: dict[int, float] = field(default_factory=dict)
    """Device -> its temperature during what was measured on it last."""

    def part(self, kind: str) -> Rows | None:
        return next((part for part in self.parts if part.kind == kind), None)


def read(page: StatusPage) -> Wall:
    wall, boards = Wall(page), _once(leaders.board)
    for part in page.parts:
        unread = 0
        if part.kind == "targets":
            rows: Sequence[Any] = [one for one in targets().progress if part.has(one.target.pk)]
        elif part.kind == "kernels":
            rows = stood(boards(), part, page.sources)
        elif part.kind == "workloads":
            rows = [place for place in boards().places if part.has(place.workload.pk)]
        elif part.kind == "sessions":
            rows, unread = reports(part)
        else:
            wall.parts.append(Rows("devices"))
            wall.warmth = warmth()
            continue
        change = largest_change(part) if part.kind == "kernels" else None
        most = MOST[part.kind] if change is None else BESIDE_A_CHANGE
        wall.parts.append(Rows(part.kind, rows, most, unread, change))
    return wall


def _once(read: Callable[[], Board]) -> Callable[[], Board]:
    known: list[Board] = []

    def board() -> Board:
        if not known:
            known.append(read())
        return known[0]

    return board


def targets() -> Standings:
    """All targets, as the overview has them: their intervals hold for all of them at once."""
    known = list(Target.objects.select_related("workload", "owner", "pin__run__environment")[: week.MOST_TARGETS])
    if not known:
        return Standings()
    rows = Newest.objects.filter(workload__in={one.workload_id for one in known}).values("result")
    return standings(known, history.grouped(point_rows.points(point_rows.at(rows))))


def stood(board: Board, part: Part, sources: bool) -> list[Stood]:
    """Chosen kernels on each GPU model, from the leaderboard; who is faster on more workloads comes first."""
    chosen = set(Kernel.objects.filter(pk__in=part.chosen).values_list("operation", "name"))
    found: dict[tuple[str, str, str], list[tuple[Point, Series]]] = {}
    for place in board.places:
        for placed in place.shown.compared:
            who = place.workload.operation, placed.point.kernel
            if part.every or who in chosen:
                found.setdefault((place.gpu, *who), []).append((placed.point, place.shown.series))
    rows = [_stood(kernel, operation, gpu, mine) for (gpu, operation, kernel), mine in found.items()]
    rows.sort(key=lambda one: (-one.standing.counts["faster"] / max(1, one.standing.of), one.kernel, one.gpu))
    tell_apart(rows)
    if sources:
        for one in rows[: MOST["kernels"]]:
            one.source = newest_source(one.operation, one.kernel)
    return rows


def _stood(kernel: str, operation: str, gpu: str, mine: Sequence[tuple[Point, Series]]) -> Stood:
    """A kernel from its results there, each with how it was measured."""
    points = [point for point, _ in mine]
    standing = standing_of([point.compared._replace(is_contended=point.contended) for point in points])
    is_alike = history.are_alike(series for _, series in mine)
    return Stood(
        kernel,
        operation,
        gpu,
        standing if is_alike else standing.without_mean,
        demo=any(point.demo for point in points),
        is_confirmed=all(point.is_confirmed for point in points),
        is_alike=is_alike,
    )


def tell_apart(rows: Sequence[Stood]) -> None:
    """Gives each kernel its label."""
    several = len({one.operation for one in rows}) > 1
    for one in rows:
        one.label = f"{one.operation}/{one.kernel}" if several else one.kernel


def newest_source(operation: str, kernel: str) -> str:
    known = KernelVersion.objects.filter(kernel__operation=operation, kernel__name=kernel)
    return known.order_by("-pk").values_list("source", flat=True).first() or ""


def largest_change(part: Part) -> Change | None:
    """Of the week's changes of chosen kernels that nobody has acknowledged."""
    found = [one for one in week.changes(timezone.now() - week.PERIOD) if part.has(one.kernel_id)]
    open_ones = [one for one in found if one.acknowledged_at is None]
    return max(open_ones, key=lambda one: abs(one.ratio - 1), default=None)


def reports(part: Part) -> tuple[list[SessionReport], int]:
    """(reports of chosen sessions, the newest first, as many as have room; how many have none). Of all sessions, of those
    that are open."""
    known = Session.objects.select_related("user")
    rows = known.filter(ended_at=None, sample="") if part.every else known.filter(pk__in=part.chosen)
    made = [session_report(one) for one in rows[: MOST["sessions"]]]
    return made, rows.count() - len(made) if len(made) == MOST["sessions"] else 0


def warmth() -> dict[int, float]:
    known = {gpu.pk: (getattr(gpu, "telemetry", None) or {}).get("temperature_c") for gpu in week.devices()}
    return {pk: one["median"] for pk, one in known.items() if one}


# --- at each request ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Heard:
    """A device now: when its agent was last heard, and what it does."""

    gpu: Gpu
    run: Run | None
    temperature: float | None
    """In °C, during what was measured on it last."""

    @property
    def left_s(self) -> float | None:
        """About how many seconds its run still takes, from the workloads measured so far."""
        run = self.run
        if run is None or not run.done or not run.elapsed_s:
            return None
        return max(0.0, run.elapsed_s / run.done * (run.total - run.done))

    @property
    def share(self) -> float:
        return self.run.done / self.run.total if self.run and self.run.total else 0.0


def devices(part: Part | None, warmth: dict[int, float]) -> list[Heard]:
    """Chosen devices, in two queries. warmth: of the kept drawing."""
    if part is None:
        return []
    gpus = [gpu for gpu in Gpu.objects.in_order().defer("catalogue") if part.has(gpu.pk)]
    running = {run.gpu_id: run for run in Run.objects.sent().select_related("user").defer("config", "log")}
    for gpu in gpus:
        gpu.at_work = int(gpu.pk in running)  # type: ignore[attr-defined]
    return [Heard(gpu, running.get(gpu.pk), warmth.get(gpu.pk)) for gpu in gpus]

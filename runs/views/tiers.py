"""Tiers: what a device allows, which tiers are reached on each workload, and what is missing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Count, F, Max, Q
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone

from kernels.analysis.confirmation import THOROUGH, is_thorough
from kernels.catalog import operations
from kernels.contract.arm_result import Status
from runs.charts import ladder_charts
from runs.charts.theme import THEMES
from runs.models import Environment, Run, Target, TierScale, Workload
from runs.queries import history, ladder, point_rows, week
from runs.queries.ladder import Ladder, Step
from runs.queries.leaders import Placed
from runs.queries.points import Point
from runs.queries.ratio import Ratio
from runs.queries.targets import Progress
from runs.templatetags.figures import grouped, timespan
from runs.views.downloads import csv_file
from runs.views.pictures import as_file, palette_of

MOST_ROWS = 60
"""Workloads on the page; the files have all."""


@dataclass(frozen=True)
class Reached:
    """A tier that a kernel has reached on a workload."""

    ladder: Ladder
    step: Step
    point: Point
    low: float
    """The low end of the kernel's speedup."""

    def __str__(self) -> str:
        return f"{self.step.tier.label}, by {self.point.kernel} on {self.ladder.series.workload.label}"


def _reached(one: Ladder, step: Step | None) -> list[Reached]:
    best = one.best_for(step.tier.factor) if step else None
    return [Reached(one, step, best[0], best[1].low)] if step and best else []


@dataclass
class Standing:
    """Ladders on devices of one name, on one scale."""

    scale: TierScale
    scales: list[TierScale]
    device: str
    """The chosen device name."""
    devices: list[str]
    """Those with results, the one with most of them first; of one workload those with a time of its baseline, the latest
    first."""
    ladders: list[Ladder] = field(default_factory=list)
    steps: list[Placed] = field(default_factory=list)
    """The records of one workload, if the page is of one."""

    @classmethod
    def of(cls, request: HttpRequest, key: str = "", mode: str = "") -> Standing:
        every = list(TierScale.objects.all())
        scales = [one for one in every if one.replaced_by_id is None]
        asked = request.GET.get("scale", "")
        scale = next((one for one in every if str(one.pk) == asked), None) if asked else next(iter(scales), None)
        if scale is None:
            raise Http404("there is no such tier scale" if asked else "there is no tier scale")
        places = history.devices()
        names = [name for way, name in where_measured(key) if way == mode] if key else _by_results(places)
        device = request.GET.get("device") or next(iter(names), "")
        if device not in ("", *places) and not _had_runs(device):
            raise Http404(f"there is no result on {device}")
        standing = cls(scale, scales, device, names)
        if device in places:
            standing.read(places[device], key)
        return standing

    def read(self, environments: dict[int, Environment], key: str) -> None:
        rising = week.rising(Workload.objects.filter(key=key)).filter(
            measurement__run__environment__in=list(environments)
        )
        series = ladder.read(environments, rising.values("pk") if key else None)
        found = ladder.built(series, self.scale)
        self.ladders = [one for one in found if not key or one.series.workload.key == key]
        if key:
            records = week.records_of(one for one in series if one.workload.key == key)
            self.steps = records[0].steps if records else []

    @property
    def context(self) -> dict[str, Any]:
        return {
            "page": "tiers",
            "scale": self.scale,
            "scales": self.scales,
            "device": self.device,
            "devices": self.devices,
        }

    @property
    def groups(self) -> dict[str, list[Ladder]]:
        """Ladders by operation title."""
        known = operations()
        groups: dict[str, list[Ladder]] = {}
        for one in self.ladders:
            name = one.series.workload.operation
            groups.setdefault(known[name].title if name in known else name, []).append(one)
        return groups

    def physics(self) -> str:
        """Which tiers this device does not allow, in sentences; empty if it allows all of them."""
        known = [one for one in self.ladders if one.most]
        if not known:
            return f"No speed of light is known on {self.device}." if self.ladders else ""
        names = {tier.label: tier.name for tier in self.scale.tiers}
        counts = dict.fromkeys(names, 0)
        for one in known:
            for step in one.beyond:
                counts[step.tier.label] += 1
        gpu, total = self.device.removeprefix("NVIDIA "), len(known)
        never = [names[label] for label, count in counts.items() if count == total]
        partly = {names[label]: count for label, count in counts.items() if 0 < count < total}
        said = [f"The {gpu} cannot reach {_range(never)}."] if never else []
        if partly:
            least, most = min(partly.values()), max(partly.values())
            often = f"{least}" if least == most else f"{least} to {most}"
            where = f"on {often} of {total} workloads"
            said.append(f"{'It' if never else f'The {gpu}'} cannot reach {_range(list(partly))} {where}.")
        return " ".join(said)

    def way(self) -> str:
        """What the numbers of a scale of shares are; empty of other scales."""
        return next((one.way for one in self.ladders if one.way), "")

    def counts(self) -> list[tuple[str, int, int, int]]:
        """(tier, workloads on which it is reached, on which only an unconfirmed result reaches it, on which it is possible)."""
        reached, loose, possible = Counter[str](), Counter[str](), Counter[str]()
        for one in self.ladders:
            for step in one.steps:
                reached[step.tier.label] += step.is_confirmed
                loose[step.tier.label] += step.state == ladder.REACHED and not step.is_confirmed
                possible[step.tier.label] += step.state != ladder.BEYOND
        labels = [tier.label for tier in self.scale.tiers]
        return [(label, reached[label], loose[label], possible[label]) for label in labels]

    def milestone(self) -> str:
        """The next tier that is nearest, in sentences."""
        nexts = [(one, one.next) for one in self.ladders if one.next]
        if not nexts:
            return ""
        one, step = min(nexts, key=lambda pair: pair[0].best_ms / pair[1].target_ms)
        missing = one.missing_ms(step)
        gap = f", {timespan(missing)} to go" if missing else f", {_why_undecided(one)}"
        return f"Nearest tier: {step.tier.label} on {one.series.workload.label}{gap}."

    def headline(self) -> dict[str, str]:
        """The highest tier that is reached, and the largest speedup: {"strong", "rest"}."""
        if not any(one.kernels for one in self.ladders):
            gone = bool(self.device) and self.device not in self.devices
            said = (
                "No result counts here: its runs are withdrawn, or have no time"
                if gone
                else "No kernel was compared with a baseline yet"
            )
            return {"strong": said, "rest": ""}
        sure = [found for one in self.ladders for found in _reached(one, one.confirmed)]
        every = [found for one in self.ladders for found in _reached(one, one.reached)]
        count, loose = len(self.ladders), sum(not one.ladder.confirmed for one in every)
        of = f"{count} workloads" if count > 1 else "1 workload"
        on = f"any of {of}" if count > 1 else of
        top, most = self._highest(sure), self._highest(every)
        if top:
            rest = [f"Confirmed results reach a tier on {len(sure)} of {of}."]
            rest += [f"Unconfirmed results reach a tier on {loose} more."] if loose else []
            rest += [f"Higher but unconfirmed: {most}."] if most and self._order(most) > self._order(top) else []
            return {"strong": f"Highest tier: {top}", "rest": " ".join([*rest, self._largest()])}
        if most:
            rest = [f"No confirmed result reaches a tier on {on}.", f"Unconfirmed results reach a tier on {loose}."]
            return {"strong": f"Highest tier, unconfirmed: {most}", "rest": " ".join([*rest, self._largest()])}
        return {"strong": f"No kernel reaches a tier on {on}", "rest": self._largest()}

    def _largest(self) -> str:
        bests = [(one, *one.best) for one in self.ladders if one.best]
        if not bests:
            return "No kernel is confirmed faster than its baseline."
        one, point, ratio = max(bests, key=lambda item: item[2].low)
        where = f"{point.kernel} on {one.series.workload.label}"
        return f"Largest speedup: {with_ends(ratio)}, {where}.{unconfirmed(point)}"

    def _order(self, one: Reached) -> int:
        return [tier.label for tier in self.scale.tiers].index(one.step.tier.label)

    def _highest(self, found: list[Reached]) -> Reached | None:
        """The highest tier; of several workloads, the one with the largest speedup."""
        return max(found, key=lambda one: (self._order(one), one.low), default=None)

    def matrix(self) -> dict[str, list[Row]]:
        """Operation title -> a row for each of its workloads, with a cell for each tier of the scale."""
        aims = {
            (aim.workload_id, aim.mode): Progress(aim, None)
            for aim in Target.objects.filter(device=self.device).select_related("owner", "pin__run__environment")
        }
        rows: dict[str, list[Row]] = {}
        for title, ladders in self.groups.items():
            for one in ladders:
                steps = {step.tier.label: step for step in one.steps}
                cells = [Cell(one, steps.get(tier.label)) for tier in self.scale.tiers]
                aim = aims.get((one.series.terms.workload, one.mode))
                if aim:
                    aim.ladder = one
                rows.setdefault(title, []).append(Row(one, cells, aim))
        return rows


def _by_results(places: dict[str, dict[int, Environment]]) -> list[str]:
    """Device names, the one with most results first; of equals, the latest measured one."""
    if len(places) < 2:
        return list(places)
    rows = point_rows.newest().order_by().values_list("measurement__run__environment")
    counts = dict(rows.annotate(Count("pk")))
    return sorted(places, key=lambda name: -sum(counts.get(pk, 0) for pk in places[name]))


def where_measured(key: str) -> list[tuple[str, str]]:
    """(mode, device name) of each time of a workload's baseline, the latest measured first. A stand-in is no baseline."""
    rows = point_rows.newest().filter(measurement__workload__key=key, status=Status.OK, p50_ms__gt=0)
    rows = rows.filter(kernel__name=F("measurement__baseline")).order_by()
    names = ("workload__operation", "mode", "run__environment__body__device")
    found = rows.values_list("kernel__name", *(f"measurement__{name}" for name in names))
    last: dict[tuple[str, str], int] = {}
    for kernel, operation, mode, device, run in found.annotate(Max("measurement__run")):
        known = operations().get(operation)
        if device and (known is None or known.baseline == kernel):
            last[mode, device] = max(run, last.get((mode, device), 0))
    return sorted(last, key=lambda place: -last[place])


def _had_runs(device: str) -> bool:
    """Whether a device of this name has runs, of which perhaps none counts any more."""
    return "\x00" not in device and Run.objects.filter(Q(gpu__name=device) | Q(device_name=device)).exists()


def _why_undecided(one: Ladder) -> str:
    """Why a tier that an estimate reaches is not reached, in a clause."""
    if one.undecided:
        return f"undecided: {one.why_undecided}; an estimate reaches it"
    who = f"{one.best[0].kernel}'s" if one.best else "the"
    return f"undecided: {who} interval includes it"


def with_ends(ratio: Ratio) -> str:
    """A speedup with the ends of its interval: "1.485x (1.475 to 1.494)", "33.2x (32.9 to 33.6)"."""
    said, low, high = (f"{one:.3f}" if ratio.ratio < 10 else grouped(one) for one in ratio[:3])
    return f"{said}x ({low} to {high})"


def _range(names: list[str]) -> str:
    """Tiers in a row: "Good", "Good and Very Good", "Good to Outstanding"."""
    if len(names) < 3:
        return " and ".join(names)
    return f"{names[0]} to {names[-1]}"


def unconfirmed(point: Point) -> str:
    """A sentence after a space on what is missing to confirm a result; empty if nothing is."""
    if point.is_confirmed:
        return ""
    if is_thorough(point.processes):
        return " Unconfirmed: no isolated measurement agrees with it yet."
    return f" Unconfirmed: measured in {point.processes or 1} process{'es' * ((point.processes or 1) > 1)}, not in {THOROUGH}."


def _is_record(point: Point) -> bool:
    return point.is_confirmed and not point.demo


@dataclass(frozen=True)
class Cell:
    """One tier on one workload. Without a step: its time is unknown, as the speed of light is."""

    ladder: Ladder
    step: Step | None

    @property
    def state(self) -> str:
        return self.step.state if self.step else "unknown"

    @property
    def missing_ms(self) -> float | None:
        return self.ladder.missing_ms(self.step) if self.step else None


@dataclass(frozen=True)
class Row:
    ladder: Ladder
    cells: list[Cell]
    aim: Progress | None


def tiers(request: HttpRequest) -> HttpResponse:
    standing = Standing.of(request)
    rows = standing.matrix()
    operation = request.GET.get("operation", "")
    tabs = [("all", None, operation not in rows), *((title, title, title == operation) for title in rows)]
    rows = {operation: rows[operation]} if operation in rows else rows
    shown, left = {}, MOST_ROWS
    for title, group in rows.items():
        if left > 0:
            shown[title] = group[:left]
            left -= len(group)
    more = {
        "headline": standing.headline(),
        "physics": standing.physics(),
        "way": standing.way(),
        "milestone": standing.milestone(),
        "matrix": shown,
        "tabs": tabs if len(tabs) > 2 else [],
        "hidden": sum(map(len, rows.values())) - sum(map(len, shown.values())),
        "ladders": standing.ladders,
        "size": ladder_charts.CLIMB,
        "counts": standing.counts(),
        "has_progress": any(one.reached and one.best and _is_record(one.best[0]) for one in standing.ladders),
    }
    return render(request, "tiers.html", standing.context | more)


def progress_chart(request: HttpRequest, kind: str) -> HttpResponse:
    """On how many workloads each tier was reached, by date."""
    standing, theme = Standing.of(request), palette_of(request)
    records = week.records(
        one.series.terms.workload for one in standing.ladders if one.best and _is_record(one.best[0])
    )
    able = {one.workload.pk: one.able for one in records if one.gpu == standing.device}
    reached: dict[str, list[datetime]] = {tier.label: [] for tier in standing.scale.tiers}
    for one in standing.ladders:
        for step in one.steps:
            climbed = (a for a in able.get(one.series.terms.workload, []) if a.ratio.low >= step.tier.factor)
            if first := next(climbed, None):
                reached[step.tier.label].append(week.when(first.point))
    if not any(reached.values()):
        raise Http404("no confirmed record reaches a tier")
    spec = ladder_charts.progress(reached, len(standing.ladders), timezone.now(), THEMES[theme]).to_dict(validate=False)
    return as_file(spec, kind, theme, "tiers-progress")


def tiers_csv(request: HttpRequest) -> HttpResponse:
    standing = Standing.of(request)
    table = ladder.rows(standing.ladders, standing.device)
    return csv_file(table, ladder.FIELDS, "tiers.csv")


def tiers_json(request: HttpRequest) -> HttpResponse:
    standing = Standing.of(request)
    return JsonResponse({"scale": standing.scale.name, "tiers": ladder.rows(standing.ladders, standing.device)})

"""The tiers of one workload on a device: its ladder, its climb, its target, its pinned baseline."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.http import require_POST

from kernels.analysis.statistics import WIDEST_MARGIN, as_margin
from kernels.analysis.verdicts import is_noisy
from kernels.report.cells import listed
from runs.charts import ladder_charts
from runs.charts.theme import THEMES
from runs.models import Pin, Target, Workload
from runs.queries import ladder
from runs.queries.ladder import Ladder
from runs.queries.points import Point
from runs.queries.ratio import Ratio
from runs.queries.targets import REACHED, Progress, drift_there
from runs.templatetags.figures import grouped, timespan, us
from runs.views.downloads import csv_file
from runs.views.pictures import as_file, palette_of
from runs.views.target_form import TargetForm
from runs.views.tiers import Standing, unconfirmed, where_measured, with_ends


class NotMeasured(Http404):
    """The baseline of a workload has no time in this mode on the device, or there is no such workload."""

    def __init__(self, key: str, mode: str, device: str) -> None:
        self.workload = Workload.objects.filter(key=key).first()
        name = self.workload.label if self.workload else f"A workload {key}"
        super().__init__(f"{name} was not measured{f' on {device}' if device else ''} in mode {mode}")


def one_of(request: HttpRequest, key: str, mode: str) -> tuple[Standing, Ladder]:
    """Without ?device= it is the device that measured the baseline there last."""
    standing = Standing.of(request, key, mode)
    for one in standing.ladders:
        if one.mode == mode:
            return standing, one
    raise NotMeasured(key, mode, standing.device)


def _not_measured(request: HttpRequest, why: NotMeasured) -> HttpResponse:
    """Where the baseline was measured instead, the latest first."""
    places = where_measured(why.workload.key) if why.workload else []
    context = {"page": "tiers", "sentence": str(why), "workload": why.workload, "places": places}
    return render(request, "tier_workload_none.html", context, status=404)


def _target(standing: Standing, one: Ladder) -> Progress | None:
    rows = Target.objects.filter(workload=one.series.workload, device=standing.device, mode=one.mode)
    found = rows.select_related("workload", "owner", "pin__run__environment").first()
    return Progress(found, one) if found else None


def _pin(standing: Standing, one: Ladder) -> Pin | None:
    rows = Pin.objects.filter(workload=one.series.workload, device=standing.device, mode=one.mode)
    return rows.select_related("by", "run__environment").first()


def workload(request: HttpRequest, key: str, mode: str) -> HttpResponse:
    try:
        standing, one = one_of(request, key, mode)
    except NotMeasured as why:
        return _not_measured(request, why)
    aim, pin = _target(standing, one), _pin(standing, one)
    goal = aim.goal_ms if aim else None
    rows = ladder_charts.rows_of(one, goal)
    initial = {"owner": request.user.get_username()}
    more = {
        "ladder": one,
        "modes": [other.mode for other in standing.ladders],
        "headline": ladder_headline(one, aim),
        "rows": _table(one),
        "sizes": [(width, ladder_charts.height(rows)) for width in ladder_charts.WIDTHS],
        "label": _label(one),
        "steps": standing.steps,
        "aim": aim,
        "pin": pin,
        "not_pinned": why_not_pinned(one.base),
        "is_pinned": pin is not None and (pin.run_id, pin.p50_ms) == (one.base.run, one.base.p50_ms),
        "drift": drift_there(pin, one) if pin else None,
        "form": TargetForm(one, initial=initial),
    }
    return render(request, "tier_workload.html", standing.context | more)


def _table(one: Ladder) -> list[dict[str, Any]]:
    """The chart as a table: kernels, tiers, the baseline and the speed of light, slowest first."""
    rows: list[dict[str, Any]] = [{"kind": "baseline", "point": one.base, "ms": one.base_ms, "factor": 1.0}]
    for point, ratio in one.kernels:
        ms, said = one.base_ms / ratio.ratio, ladder.word_of(point, ratio)
        rows.append({"kind": "kernel", "point": point, "ratio": ratio, "ms": ms, "factor": ratio.ratio, "word": said})
    for step in one.steps:
        missing = one.missing_ms(step) if step.state != ladder.REACHED else None
        rows.append(
            {"kind": "tier", "step": step, "ms": step.target_ms, "factor": step.tier.factor, "missing": missing}
        )
    if one.most and one.base.limit_ms:
        rows.append({"kind": "light", "ms": one.base.limit_ms, "factor": one.most})
    return sorted(rows, key=lambda row: -float(row["ms"]))


def _label(one: Ladder) -> str:
    kernels = 1 + len(one.kernels)
    return f"Times of {kernels} kernels and {len(one.steps)} tiers on a logarithmic axis; the numbers are in the table"


def workload_csv(request: HttpRequest, key: str, mode: str) -> HttpResponse:
    standing, one = one_of(request, key, mode)
    return csv_file(ladder.rows([one], standing.device), ladder.FIELDS, f"tiers-{key}-{mode}.csv")


def workload_json(request: HttpRequest, key: str, mode: str) -> HttpResponse:
    standing, one = one_of(request, key, mode)
    return JsonResponse({"scale": standing.scale.name, "tiers": ladder.rows([one], standing.device)})


# --- the first lines --------------------------------------------------------------------------------------------------


def ladder_headline(one: Ladder, aim: Progress | None = None) -> dict[str, str]:
    """{"strong", "rest"}: how far it is to the next tier, what the device does not allow; then the figures."""
    said = [_reached(one)] if one.reached or not one.next else []
    if one.next:
        missing = one.missing_ms(one.next)
        name = one.next.tier.grade or one.next.tier.name
        said.append(f"Tier {name} is {timespan(missing)} away" if missing else f"Tier {name} is undecided")
    if one.beyond:
        names = [step.tier.grade or step.tier.name for step in one.beyond]
        which = f"tier {names[0]}" if len(names) == 1 else f"tiers {names[0]} to {names[-1]}"
        said.append(f"This device cannot reach {which}")
    rest = [_best(one)]
    if one.next:
        tier = one.next.tier
        rest.append(
            f"{tier.label} is at {timespan(one.next.target_ms)}, {tier.factor:.3g}x the speed of {one.base.kernel}."
        )
        if one.best and one.best[1].ratio >= one.next.tier.factor:
            rest.append("Undecided: the best kernel's interval includes this tier.")
    if one.most:
        rest.append(f"The speed of light is {timespan(one.base.limit_ms)} ({grouped(one.most)}x).")
    if aim:
        rest.append(_aim(aim))
    return {"strong": ". ".join(said), "rest": " ".join(rest)}


def _reached(one: Ladder) -> str:
    if not one.reached:
        return "No tier is reached"
    name = one.reached.tier.grade or one.reached.tier.name
    return f"Tier {name} is reached{'' if one.reached.is_confirmed else ', unconfirmed'}"


def _aim(aim: Progress) -> str:
    if aim.state == REACHED:
        return "The target is reached." if aim.is_confirmed else "The target is reached, unconfirmed."
    if aim.missing_ms and aim.goal_ms:
        return f"The target of {timespan(aim.goal_ms)} is {timespan(aim.missing_ms)} away."
    return "Whether the target is reached is undecided."


def _best(one: Ladder) -> str:
    over = one.base.kernel
    if not one.kernels:
        return f"No kernel was compared with {over}."
    if one.best is None:
        said = f"No kernel is confirmed faster than {over} at {us(one.base_ms)} µs."
        return f"{said} Undecided: {one.why_undecided}." if one.undecided else said
    point, _ = one.best
    if one.not_apart:
        return _tie(one, [one.best, *one.not_apart])
    if open_ := one.maybe_faster:
        why = ladder.why_undecided([other for other, _ in open_])
        return f"{_figures(one.best)} is ahead of {over}.{unconfirmed(point)} Undecided, and perhaps faster: {why}."
    figures = f"{with_ends(one.best[1])} the speed of {over}"
    return f"{point.kernel} is best: {figures}.{unconfirmed(point)}"


def _figures(placed: tuple[Point, Ratio]) -> str:
    return f"{placed[0].kernel} {with_ends(placed[1])}"


def _tie(one: Ladder, ahead: list[tuple[Point, Ratio]]) -> str:
    """Kernels whose intervals all have a speedup in common: the low end of the best one."""
    said = f"{listed([_figures(placed) for placed in ahead])} are tied and ahead of {one.base.kernel}."
    loose = list(dict.fromkeys(point.kernel for point, _ in ahead if not point.is_confirmed))
    return f"{said} Unconfirmed: {listed(loose)}." if loose else said


# --- charts -----------------------------------------------------------------------------------------------------------


def _answer(request: HttpRequest, draw: Any, kind: str, name: str) -> HttpResponse:
    theme = palette_of(request)
    return as_file(draw(THEMES[theme]).to_dict(validate=False), kind, theme, name)


def ladder_chart(request: HttpRequest, key: str, mode: str, kind: str) -> HttpResponse:
    """Kernels and tiers on one axis of times."""
    standing, one = one_of(request, key, mode)
    aim, narrow = _target(standing, one), "narrow" in request.GET
    goal = aim.goal_ms if aim else None
    return _answer(request, lambda colours: ladder_charts.ladder(one, goal, colours, narrow), kind, f"times-{key}")


def climb_chart(request: HttpRequest, key: str, mode: str, kind: str) -> HttpResponse:
    """The records by date, with the tiers."""
    standing, one = one_of(request, key, mode)
    steps, aim = standing.steps, _target(standing, one)
    if not steps:
        raise Http404("no record is confirmed there")
    wanted = one.base_ms / aim.goal_ms if aim and aim.goal_ms else None
    return _answer(
        request,
        lambda colours: ladder_charts.climb(steps, one, wanted, timezone.now(), colours),
        kind,
        f"records-{key}",
    )


# --- what a person decides --------------------------------------------------------------------------------------------


def _back(standing: Standing, key: str, mode: str) -> HttpResponse:
    query = urlencode({"device": standing.device, "scale": str(standing.scale.pk)})
    return redirect(f"{reverse('tier_workload', args=[key, mode])}?{query}")


@require_POST
def target(request: HttpRequest, key: str, mode: str) -> HttpResponse:
    """Chooses, changes or removes the target of a workload on a device."""
    standing, one = one_of(request, key, mode)
    workload, place = one.series.workload, {"device": standing.device, "mode": mode}
    if "remove" in request.POST:
        Target.objects.filter(workload=workload, **place).delete()
        messages.success(request, "The target is removed.")
        return _back(standing, key, mode)
    form = TargetForm(one, request.POST)
    if form.is_valid():
        form.keep(standing.device, Pin.objects.filter(workload=workload, **place).first())
        messages.success(request, "The target is chosen.")
    else:
        wrong = [str(error) for errors in form.errors.values() for error in errors]
        messages.error(request, f"The target was not saved. {' '.join(wrong)}")
    return _back(standing, key, mode)


def why_not_pinned(base: Point) -> str:
    """Why the baseline's newest time cannot be pinned, without a full stop; empty if it can be."""
    if base.contended:
        return "other processes used the device in the newest run"
    if is_noisy(base.margin):
        return f"the A/A margin of the newest run is {as_margin(base.margin)}, above {WIDEST_MARGIN:.0%}"
    return "" if base.p50_ms and base.p50_low_ms and base.p50_high_ms else "the newest time has no interval"


@require_POST
def pin(request: HttpRequest, key: str, mode: str) -> HttpResponse:
    """Pins the baseline's newest time, or ends that."""
    standing, one = one_of(request, key, mode)
    workload, base = one.series.workload, one.base
    if "remove" in request.POST:
        Pin.objects.filter(workload=workload, device=standing.device, mode=mode).delete()
        messages.success(request, "The baseline is no longer pinned.")
    elif why := why_not_pinned(base):
        messages.error(request, f"Not pinned: {why}. Measure the baseline again first.")
    else:
        assert base.p50_ms and base.p50_low_ms and base.p50_high_ms
        user = request.user if request.user.is_authenticated else None
        Pin(
            workload=workload, device=standing.device, mode=mode, kernel=base.kernel, p50_ms=base.p50_ms, by=user,
            p50_low_ms=base.p50_low_ms, p50_high_ms=base.p50_high_ms, margin=base.margin, run_id=base.run,
        ).keep()  # fmt: skip
        messages.success(request, f"{base.kernel} is pinned at {timespan(base.p50_ms)}.")
    return _back(standing, key, mode)

"""The page of one result: a number, and everything by which to trust it or not."""

from __future__ import annotations

import csv
import io
from typing import Any

from django.db.models import Prefetch
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, render

from kernels.analysis.statistics import MARGIN, WIDEST_SAME
from kernels.report.tables import MOST_RAN, under_load
from runs.charts import distribution
from runs.charts.run_charts import THEMES
from runs.models import Measurement, Result
from runs.queries import history
from runs.templatetags.figures import duration, grouped, ratio3, us
from runs.views import correctness

CLOCKS_ALIKE = 0.02
"""Two arms whose median SM clocks differ by more than this did not run on the same machine, so to speak."""
THROTTLING = {
    "SwThermalSlowdown": "thermal slow-down by the driver",
    "HwThermalSlowdown": "thermal slow-down by the hardware",
    "HwSlowdown": "slow-down by the hardware",
    "HwPowerBrakeSlowdown": "power brake by the hardware",
    "SwPowerCap": "its power limit",
}


def _get(pk: int, result_pk: int) -> Result:
    of = ("measurement__run__gpu", "measurement__run__environment", "measurement__workload", "kernel", "version")
    return get_object_or_404(Result.objects.select_related(*of), pk=result_pk, measurement__run=pk)


def baseline_of(result: Result) -> Result | None:
    """The baseline's result in the same measurement, which may be this one."""
    name = result.measurement.baseline
    if result.kernel.name == name:
        return result
    found = Result.objects.filter(measurement=result.measurement, kernel__name=name).select_related("kernel")
    return found.defer("log").first()


def siblings_of(result: Result) -> list[Result]:
    """The other kernels on the same workload of the same run."""
    found = Result.objects.filter(
        measurement__run=result.measurement.run_id, measurement__workload=result.measurement.workload
    )
    return list(found.exclude(pk=result.pk).select_related("kernel").only("pk", "kernel__name").order_by("pk"))


def result(request: HttpRequest, pk: int, result_pk: int) -> HttpResponse:
    """One kernel on one workload: its verdict, how its samples are spread, what else was seen of it, its source and log."""
    found = _get(pk, result_pk)
    measurement, baseline = found.measurement, baseline_of(found)
    both = [baseline, found] if baseline and baseline.pk != found.pk else [found]
    arms = distribution.arms_of(found, baseline)
    context = {
        "page": "runs",
        "result": found,
        "measurement": measurement,
        "run": measurement.run,
        "baseline": baseline,
        "siblings": siblings_of(found),
        "has_history": history.tells(found),
        "ran_more": len(found.ran) >= MOST_RAN,
        "doubts": doubts(found, baseline),
        "arms": arms,
        "said": distribution.said(arms, is_paired(measurement)) if arms else {},
        "cold": [one for one in both if one.cold] if found.cold else [],
        "clocks": [one for one in both if one.sm_mhz] if found.sm_mhz else [],
        "crosscheck": crosscheck_of(both) if found.crosscheck else {},
        "protocol": protocol_of(measurement),
        "telemetry": telemetry_of(measurement.telemetry),
        "correctness": correctness.told(found.correctness or {}),
        "checks": correctness.tables(found.correctness or {}),
    }
    return render(request, "result.html", context)


def is_paired(measurement: Measurement) -> bool:
    return measurement.protocol.get("paired", True)


# --- what speaks against it -------------------------------------------------------------------------------------------


def doubts(result: Result, baseline: Result | None) -> list[str]:
    """Sentences for an expert who asks whether to believe the number."""
    measurement = result.measurement
    found = []
    if measurement.run.contended:
        found.append("Another process was on the GPU during this run.")
    if baseline and baseline.pk != result.pk:
        found += _clocks_differ(result, baseline)
    if (check := result.crosscheck or {}).get("agrees") is False:
        found.append(_looks_differ(check))
    how = {"mode": measurement.mode, "protocol": measurement.protocol}
    if factor := under_load(how, result.p50, result.crosscheck):
        found.append(
            f"Without rests a call takes {factor - 1:.0%} longer, as when a clock falls under continuous work; the mode "
            "sustained compares kernels so."
        )
    if result.n is not None and measurement.aa and measurement.margin > MARGIN * 1.01:
        found.append(f"{measurement.baseline} differed from itself here, so differences {_below(measurement.margin)}.")
    if result.n is not None and (reasons := measurement.telemetry.get("throttled")):
        named = " and ".join(THROTTLING.get(reason, reason) for reason in reasons)
        found.append(f"The GPU was held back by {named} while this was measured.")
    return found


def _below(margin: float) -> str:
    """What a margin does to differences that are smaller."""
    return f"below {margin:.1%} " + ("are SAME" if margin <= WIDEST_SAME else "say nothing")


def _clocks_differ(result: Result, baseline: Result) -> list[str]:
    own, its = ((one.sm_mhz or {}).get("median") for one in (result, baseline))
    if not own or not its or max(own, its) / min(own, its) - 1 <= CLOCKS_ALIKE:
        return []
    apart = max(own, its) / min(own, its) - 1
    return [
        f"The SM clock was {own:,.0f} MHz for {result.kernel.name} and {its:,.0f} MHz for {baseline.kernel.name}, "
        f"{apart:.1%} apart: part of the difference between the two may be the clock's."
    ]


def _looks_differ(check: dict[str, Any]) -> str:
    event, span = check.get("event_ns"), check.get("span_ns")
    if event is None or span is None:
        return "In the cross-check the event time and the profiler's kernel span do not agree."
    return (
        f"In the cross-check the event time was {grouped(event / 1e3)} us and the profiler's kernel span "
        f"{grouped(span / 1e3)} us, which do not agree: allowed is 5% or 5 us, whichever is larger, "
        "and 1.5 us for each kernel after the first."
    )


# --- what else was seen -----------------------------------------------------------------------------------------------


def crosscheck_of(results: list[Result]) -> dict[str, Any]:
    """A table with a column for each result: {"kernels", "rows": [(heading, cells)]}, without rows that nobody has."""
    seen = [(one.kernel.name, one.crosscheck) for one in results if one.crosscheck]
    rows = [
        ("event time, us", [us_of_ns(check.get("event_ns")) for _, check in seen]),
        ("profiler's kernel span, us", [us_of_ns(check.get("span_ns")) for _, check in seen]),
        ("event and span agree", [yes_no(check.get("agrees")) for _, check in seen]),
        ("back to back, us", [us_of_ns(check.get("wall_ns")) for _, check in seen]),
        ("calls in its batch", [f"{check['calls']:,}" if check.get("calls") else "" for _, check in seen]),
        ("board energy", [energy(check.get("joules")) for _, check in seen]),
    ]
    return {"kernels": [name for name, _ in seen], "rows": [(heading, cells) for heading, cells in rows if any(cells)]}


def us_of_ns(ns: float | None) -> str:
    return "" if ns is None else us(ns / 1e6)


def yes_no(known: bool | None) -> str:
    return "not known" if known is None else "yes" if known else "no"


def energy(joules: float | None) -> str:
    """12.3 J, 12.3 mJ or 12.3 uJ."""
    if joules is None:
        return ""
    for unit, factor in (("J", 1.0), ("mJ", 1e3)):
        if joules * factor >= 1:
            return f"{grouped(joules * factor)} {unit}"
    return f"{grouped(joules * 1e6)} uJ"


# --- how it was measured ----------------------------------------------------------------------------------------------


def protocol_of(measurement: Measurement) -> list[tuple[str, str]]:
    """How the measurement was made, as pairs of a word and its value."""
    has, found = measurement.protocol, []
    if "paired" in has:
        text = "every kernel in every round, in random order" if has["paired"] else "fixed, one kernel after the other"
        found.append(("protocol", text))
    if has.get("rounds"):
        repeated = has.get("repeated") or 0
        again = f"; {repeated} more were repeated because of thermal slow-down" if repeated else ""
        found.append(("rounds", f"{has['rounds']}{again}"))
    if "sets" in has:
        sets = f"{has['sets']} set{'s' * (has['sets'] != 1)} of inputs"
        covered = ", more than the cache holds" if has.get("covered") and has["sets"] > 1 else ""
        found.append(("inputs", sets + covered))
    if "flushed" in has:
        found.append(("L2 emptied before calls", "yes, by reading" if has["flushed"] else "no"))
    if has.get("paired") and "rest" in has and measurement.mode not in ("cpu", "sustained"):
        found.append(("rests", _rests(has["rest"])))
    if measurement.aa:
        ratio, low, high = measurement.aa
        against = f"{measurement.baseline} against itself"
        found.append(("A/A", f"{ratio3(ratio)}, interval {ratio3(low)} to {ratio3(high)}: {against}"))
    found.append(("margin", f"differences {_below(measurement.margin)}"))
    if measurement.took_s is not None:
        found.append(("took", duration(measurement.took_s)))
    return found


def _rests(rest: float) -> str:
    if not rest:
        return "none: the GPU worked without a pause"
    return f"before each block about {'' if rest == 1 else f'{rest:g} times '}as long as it works, at most 250 ms"


def telemetry_of(seen: dict[str, Any]) -> list[tuple[str, str]]:
    """What the device did meanwhile: median, and from where to where."""
    found = []
    for key, name, unit in (
        ("sm_mhz", "SM clock", "MHz"),
        ("power_w", "power", "W"),
        ("temperature_c", "temperature", "C"),
    ):
        if value := seen.get(key):
            least, most = (f"{value[end]:,.0f}" for end in ("min", "max"))
            extent = f", from {least} to {most}" if least != most else ", steady"
            found.append((name, f"{value['median']:,.0f} {unit}{extent}"))
    if reasons := seen.get("throttled"):
        found.append(("held back by", ", ".join(THROTTLING.get(reason, reason) for reason in reasons)))
    if found and seen.get("samples"):
        found.append(("readings", f"{seen['samples']:,}"))
    return found


# --- the same in other forms ------------------------------------------------------------------------------------------


def samples_csv(request: HttpRequest, pk: int, result_pk: int) -> HttpResponse:
    """Every raw sample. Rounds and places in them count from 1."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("round", "position", "ns"))
    for number, ticks in enumerate(_get(pk, result_pk).ticks_ns or [], 1):
        writer.writerows((number, position, ns) for position, ns in enumerate(ticks, 1))
    name = f"run-{pk}-result-{result_pk}.csv"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(out.getvalue(), content_type="text/csv; charset=utf-8", headers=headers)


def result_json(request: HttpRequest, pk: int, result_pk: int) -> HttpResponse:
    """Everything of this result, raw samples included, with what belongs to its measurement."""
    found = _get(pk, result_pk)
    alone = Prefetch("results", Result.objects.filter(pk=result_pk).select_related("kernel", "version"))
    measurement = Measurement.objects.select_related("workload").prefetch_related(alone).get(pk=found.measurement_id)
    event = measurement.as_event(raw=True)
    (own,) = event.pop("results")
    environment = found.measurement.run.environment
    data = {"run": pk, "fingerprint": environment.fingerprint if environment else ""}
    return JsonResponse(data | {"measurement": event, "result": own | {"verdict": found.verdict}})


def _spec(request: HttpRequest, pk: int, result_pk: int, name: str) -> dict[str, Any]:
    theme, narrow = request.GET.get("theme", "light"), "narrow" in request.GET
    if name not in distribution.NAMES or theme not in THEMES:
        raise Http404(f"there is no chart '{name}' in '{theme}'")
    found = _get(pk, result_pk)
    arms = distribution.arms_of(found, baseline_of(found))
    if not arms:
        raise Http404("nothing was timed here")
    return distribution.spec_of(arms, name, theme, narrow, is_paired(found.measurement))


def chart_json(request: HttpRequest, pk: int, result_pk: int, name: str) -> HttpResponse:
    return JsonResponse(_spec(request, pk, result_pk, name))


def chart_svg(request: HttpRequest, pk: int, result_pk: int, name: str) -> HttpResponse:
    svg = distribution.svg_of(_spec(request, pk, result_pk, name))
    return HttpResponse(svg, content_type="image/svg+xml")

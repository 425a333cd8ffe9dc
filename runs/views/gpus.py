"""Devices: the table of all, and a page of each with its ceilings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.db.models import F
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST

from kernels.analysis.peaks import Peak, peak_of
from kernels.dtypes import DTYPE_SHORT
from runs.models import Calibration, Gpu, Run
from runs.queries.outcomes import with_outcomes
from runs.queries.queue import queue_of
from runs.templatetags.figures import grouped, percent
from runs.views.downloads import csv_file
from runs.views.sandbox import kept_apart, sandbox_of

RECENT = 10
MODES = ("cold", "graph", "e2e", "cpu")
FIELDS = (
    "id",
    "uuid",
    "kind",
    "name",
    "host",
    "index",
    "state",
    "driver",
    "capability",
    "memory_bytes",
    "copy_gb_per_s",
    "fp16_tflops",
    "bf16_tflops",
    "fp32_tflops",
    "runs",
    "seen_at",
)


# --- ceilings ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ceiling:
    """One measured ceiling beside the speed of light and the datasheet's figure."""

    what: str
    unit: str
    measured: float
    light: float | None = None
    """Of the dtype at the device's maximum clock; of the memory the datasheet's bandwidth."""
    datasheet: float | None = None
    interval: tuple[float, float] | None = None

    @property
    def shown(self) -> str:
        return digits(self.measured)

    @property
    def between(self) -> str:
        """The interval in words; empty if there is none."""
        return f"{digits(self.interval[0])} to {digits(self.interval[1])}" if self.interval else ""

    @property
    def share(self) -> float | None:
        """Share of the speed of light reached."""
        return self.measured / self.light if self.light else None


def digits(value: float) -> str:
    """Four significant digits: three hide an interval."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def lights_of(peak: Peak) -> list[tuple[str, str]]:
    """(dtypes, arithmetic of their speed of light); dtypes of one light are together."""
    by_arithmetic: dict[str, list[str]] = {}
    for dtype, short in DTYPE_SHORT.items():
        by_arithmetic.setdefault(peak.light(dtype).arithmetic, []).append(short)
    return [(", ".join(names), arithmetic) for arithmetic, names in by_arithmetic.items()]


def ceilings_of(ceilings: dict[str, Any], peak: Peak | None = None) -> list[Ceiling]:
    """A calibration's figures in a fixed order, without missing ones."""
    products, empty = ceilings.get("matmul_tflops") or {}, ceilings.get("empty_us") or {}
    bandwidth = (peak.gb_per_s, peak.gb_per_s) if peak else (None, None)
    figures = [
        ("device copy", "GB/s", ceilings.get("copy_gb_per_s"), "copy_gb_per_s", bandwidth),
        ("device read", "GB/s", ceilings.get("read_gb_per_s"), "read_gb_per_s", bandwidth),
        *(
            (f"matmul {DTYPE_SHORT.get(d, d)}", "TFLOP/s", products[d], d, _limits(d, peak))
            for d in _in_usual_order(products)
        ),
        *((f"empty kernel, {mode}", "us", empty[mode], mode, (None, None)) for mode in _in_usual_order(empty)),
    ]
    intervals = ceilings.get("intervals") or {}
    return [
        Ceiling(what, unit, value, *limits, interval=intervals.get(key))
        for what, unit, value, key, limits in figures
        if value is not None
    ]


def _limits(dtype: str, peak: Peak | None) -> tuple[float | None, float | None]:
    """The speed of light of a dtype, and the datasheet's figure."""
    return (peak.light(dtype).tflops, peak.tflops(dtype)) if peak and dtype in DTYPE_SHORT else (None, None)


def _in_usual_order(names: Iterable[str]) -> list[str]:
    """Known dtypes and modes in their usual order, then others: databases do not keep the order of keys."""
    usual = (*DTYPE_SHORT, *MODES)
    return sorted(names, key=lambda name: (usual.index(name) if name in usual else len(usual), name))


def ceilings_headline(ceilings: list[Ceiling]) -> tuple[str, str]:
    """The best bandwidth and matrix product, and their shares of the speed of light, in words."""
    units = ("GB/s", "TFLOP/s")
    best = [max(same, key=lambda c: c.measured) for unit in units if (same := [c for c in ceilings if c.unit == unit])]
    figures = " and ".join(f"{grouped(c.measured)} {c.unit} ({c.what.split(maxsplit=1)[-1]})" for c in best)
    shares = " and ".join(percent(c.share) for c in best if c.share)
    return figures and f"Reaches {figures}", shares and f"{shares} of the speed of light"


def present(gpu: Gpu) -> Calibration | None:
    """The loaded calibration of a device's present driver."""
    return next((c for c in gpu.calibrations.all() if c.driver == gpu.driver), None)


def by_driver(calibrations: list[Calibration]) -> dict[str, Any]:
    """Calibrations as a table: {"columns": all their figures, "rows": (calibration, values)}."""
    figures_of = [(c, {(f.what, f.unit): f.measured for f in ceilings_of(c.ceilings)}) for c in calibrations]
    columns = list(dict.fromkeys(column for _, figures in figures_of for column in figures))
    return {"columns": columns, "rows": [(c, [figures.get(column) for column in columns]) for c, figures in figures_of]}


# --- all devices ------------------------------------------------------------------------------------------------------


def devices() -> list[Gpu]:
    return list(Gpu.objects.with_runs().in_order().defer("catalogue").prefetch_related("calibrations__environment"))


def row_of(gpu: Gpu) -> dict[str, Any]:
    """A device as a row of FIELDS. None: unknown."""
    calibration = present(gpu)
    ceilings = calibration.ceilings if calibration else {}
    products = ceilings.get("matmul_tflops") or {}
    return {
        "id": gpu.pk,
        "uuid": gpu.uuid,
        "kind": gpu.kind,
        "name": gpu.name,
        "host": gpu.host,
        "index": gpu.index,
        "state": gpu.state,
        "driver": gpu.driver,
        "capability": gpu.capability,
        "memory_bytes": gpu.memory_bytes,
        "copy_gb_per_s": ceilings.get("copy_gb_per_s"),
        "fp16_tflops": products.get("float16"),
        "bf16_tflops": products.get("bfloat16"),
        "fp32_tflops": products.get("float32"),
        "runs": gpu.run_count,  # type: ignore[attr-defined]
        "seen_at": gpu.seen_at.isoformat() if gpu.seen_at else None,
    }


def gpus(request: HttpRequest) -> HttpResponse:
    known = devices()
    rows = [(gpu, row_of(gpu), gib(gpu)) for gpu in known]
    return render(request, "gpus.html", {"page": "gpus", "rows": rows, "headline": headline(known)})


def gib(gpu: Gpu) -> float | None:
    return gpu.memory_bytes / 2**30 if gpu.memory_bytes else None


def headline(gpus: list[Gpu]) -> str:
    """The number of devices and their states."""
    if not gpus:
        return "No device has reported yet"
    if len(gpus) == 1:
        return f"1 device, {gpus[0].state}"
    states = Counter(gpu.state for gpu in gpus)
    if len(states) == 1:
        return f"{len(gpus)} devices, all {gpus[0].state}"
    counted = [f"{states[state]} {state}" for state in ("idle", "busy", "paused", "silent", "unheard") if states[state]]
    return f"{len(gpus)} devices: {', '.join(counted)}"


def gpus_csv(request: HttpRequest) -> HttpResponse:
    return csv_file([row_of(gpu) for gpu in devices()], FIELDS, "gpus.csv")


def gpus_json(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"gpus": [row_of(gpu) for gpu in devices()]})


# --- one device -------------------------------------------------------------------------------------------------------


def _get(pk: int) -> Gpu:
    return get_object_or_404(
        Gpu.objects.with_runs().select_related("paused_by").prefetch_related("calibrations__environment"), pk=pk
    )


def cannot_run(gpu: Gpu) -> list[dict[str, Any]]:
    """Kernels of the catalogue that cannot run on a device, with reasons."""
    return [kernel for kernel in gpu.catalogue if kernel.get("why_not")]


def gpu(request: HttpRequest, pk: int) -> HttpResponse:
    device = _get(pk)
    calibration, peak = present(device), peak_of(device.name, device.max_sm_mhz)
    ceilings = ceilings_of(calibration.ceilings, peak) if calibration else []
    calibrations = list(device.calibrations.all())
    host = sandbox_of(device.sandbox)
    context = {
        "page": "gpus",
        "gpu": device,
        "sandbox": kept_apart(host) if host else [],
        "host_said": host.missing if host else [],
        "gib": gib(device),
        "run": Run.objects.for_list().sent().filter(gpu=device).first(),
        "runs": with_outcomes(Run.objects.for_list().filter(gpu=device)[:RECENT]),
        "queue": queue_of(device),
        "peak": peak,
        "calibration": calibration,
        "ceilings": ceilings,
        "lights": lights_of(peak) if peak else [],
        "headline": ceilings_headline(ceilings),
        "history": by_driver(calibrations) if any(c != calibration for c in calibrations) else None,
        "cannot_run": cannot_run(device),
    }
    return render(request, "gpu.html", context)


def datasheet(peak: Peak) -> dict[str, Any]:
    tflops = {dtype: peak.tflops(dtype) for dtype in DTYPE_SHORT}
    light = {dtype: peak.light(dtype).tflops for dtype in DTYPE_SHORT}
    clock = {"max_sm_mhz": peak.max_mhz, "clock_source": peak.clock_source}
    return {"model": peak.model, "gb_per_s": peak.gb_per_s, "tflops": tflops, "light_tflops": light} | clock


def gpu_json(request: HttpRequest, pk: int) -> HttpResponse:
    """A device with all its calibrations."""
    device = _get(pk)
    peak = peak_of(device.name, device.max_sm_mhz)
    run = Run.objects.sent().filter(gpu=device).values_list("pk", flat=True).first()
    data = row_of(device) | {
        "run": run,
        "datasheet": datasheet(peak) if peak else None,
        "calibrations": [
            {
                "driver": c.driver,
                "run": c.run_id,
                "measured_at": c.measured_at.isoformat(),
                "again": c.again,
                "refused": c.refused,
                "refused_at": c.refused_at.isoformat() if c.refused_at else None,
                "ceilings": c.ceilings,
            }
            for c in device.calibrations.all()
        ],
        "cannot_run": [{name: k.get(name) for name in ("operation", "name", "why_not")} for k in cannot_run(device)],
    }
    return JsonResponse(data)


@require_POST
def recalibrate(request: HttpRequest, pk: int) -> HttpResponse:
    """Requests that the next run measures the device's ceilings with its present driver. Until then the old figures
    stay valid."""
    device = get_object_or_404(Gpu.objects.defer("catalogue"), pk=pk)
    device.calibrations.filter(driver=device.driver).update(again_of=F("measured_at"))
    messages.info(request, "The next run on this device measures its ceilings.")
    return redirect("gpu", pk)

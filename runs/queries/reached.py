"""The highest rates that this site has measured on a GPU model."""

from __future__ import annotations

from collections.abc import Iterator

from django.urls import reverse

from kernels.analysis.peaks import Peak, Reached, peak_of
from kernels.workload import Ceilings
from runs.models import Environment, Gpu
from runs.queries import measurements


def reached_here(peak: Peak, dtype: str) -> tuple[list[Reached], list[Reached]]:
    """(TFLOP/s of a dtype, GB/s) on devices of a model: of the fastest result that is ok, and of quiet calibrations."""
    calibrated = list(_calibrated(peak))
    products = [(found.matmul_tflops.get(dtype), where, link) for found, where, link in calibrated]
    reads = [(found.bandwidth_gb_per_s, where, link) for found, where, link in calibrated]
    fastest = _fastest(peak, dtype)
    return (
        [*fastest, *(Reached(rate, f"matrix product, {where}", link) for rate, where, link in products if rate)],
        [Reached(rate, f"device copy or read, {where}", link) for rate, where, link in reads],
    )


def _fastest(peak: Peak, dtype: str) -> list[Reached]:
    """The highest rate of a result that is ok, from an uncontended run on a workload with a usual margin."""
    named = Environment.objects.values_list("pk", "body__device")
    environments = [pk for pk, name in named if (of := peak_of(name or "")) and of.model == peak.model]
    best = measurements.fastest(environments, dtype)
    if best is None:
        return []
    pk, tflops, kernel, run, label = best
    assert tflops is not None
    return [Reached(tflops, f"{kernel} on {label}, run {run} of this site", reverse("result", args=[run, pk]))]


def _calibrated(peak: Peak) -> Iterator[tuple[Ceilings, str, str]]:
    """(ceilings, where, link) of the quiet calibrations of devices of a model."""
    for gpu in Gpu.objects.defer("catalogue").prefetch_related("calibrations__environment"):
        of = peak_of(gpu.name)
        if of is None or of.model != peak.model:
            continue
        for calibration in gpu.calibrations.all():
            if calibration.ceilings.get("intervals") and not calibration.refused:
                where = f"ceilings of {gpu.place} on this site"
                yield Ceilings.model_validate(calibration.ceilings), where, reverse("gpu", args=[gpu.pk])

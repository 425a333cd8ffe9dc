"""Migrations that rewrite what columns hold."""

import importlib

import pytest
from django.apps import apps

from kernels.analysis.peaks import peak_of
from kernels.analysis.roofline import speed_of_light_ms
from kernels.contract.export import read_export
from kernels.workload import Workload
from runs.models import Result
from runs.pipeline import importer
from runs.queries import measurements

UNITS = importlib.import_module("runs.migrations.0009_columns_name_their_units")
LIGHT = importlib.import_module("runs.migrations.0210_light_of_older_results")
COLD_1 = {"n": 144, "p50": 0.0152, "p90": 0.0157, "p95": 0.0161, "p99": 0.0167}


@pytest.mark.django_db
def test_figures_of_single_cold_calls_get_their_unit_and_lose_it_again():
    run = importer.load(read_export(next(importer.folder().glob("h200-*.json")).read_bytes()), "x.json")
    before = list(Result.objects.order_by("pk").values_list("cold", flat=True))
    one = Result.objects.exclude(cold=None).first()
    Result.objects.filter(pk=one.pk).update(cold=COLD_1)
    UNITS.name_units(apps, None)
    one.refresh_from_db()
    assert one.cold == {"n": 144, "p50_ms": 0.0152, "p90_ms": 0.0157, "p95_ms": 0.0161, "p99_ms": 0.0167}
    assert next(arm.cold.p90_ms for m in measurements.of_run(run) for arm in m.results if arm.pk == one.pk) == 0.0157
    UNITS.forget_units(apps, None)
    one.refresh_from_db()
    assert one.cold == COLD_1
    UNITS.name_units(apps, None)
    others = Result.objects.exclude(pk=one.pk).order_by("pk").values_list("cold", flat=True)
    place = list(Result.objects.order_by("pk").values_list("pk", flat=True)).index(one.pk)
    assert list(others) == [*before[:place], *before[place + 1 :]], "what has its units already stays"


@pytest.mark.django_db
def test_results_of_older_harnesses_get_the_speed_of_light_of_today():
    """Only what was bound by the datasheet's rate changes, and only once."""
    run = importer.load(read_export(next(importer.folder().glob("h200-*.json")).read_bytes()), "x.json")
    results = Result.objects.filter(measurement__run=run).exclude(limit_ms=None).order_by("pk")
    today = list(results.values_list("limit_ms", "limit_share"))
    peak, older = peak_of(run.device_name), 0
    for one in results.select_related("measurement__workload"):
        shape = one.measurement.workload
        problem = Workload(operation=shape.operation, dtype=shape.dtype, sizes=shape.sizes).problem
        by_datasheet = problem.flops() / (peak.tflops(problem.dtype) * 1e9)
        if speed_of_light_ms(problem, peak) == one.limit_ms and by_datasheet > one.limit_ms:
            share = one.limit_share * by_datasheet / one.limit_ms
            older += Result.objects.filter(pk=one.pk).update(limit_ms=by_datasheet, limit_share=share)
    assert 0 < older < len(today) and list(results.values_list("limit_ms", "limit_share")) != today
    for _ in range(2):
        LIGHT.renew(apps, None)
        now = list(results.values_list("limit_ms", "limit_share"))
        assert now == [pytest.approx(one) for one in today]

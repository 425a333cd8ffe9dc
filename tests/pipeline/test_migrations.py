"""Migrations that rewrite what columns hold."""

import importlib

import pytest
from django.apps import apps

from kernels.contract.export import read_export
from runs.models import Result
from runs.pipeline import importer
from runs.queries import measurements

UNITS = importlib.import_module("runs.migrations.0009_columns_name_their_units")
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

"""Lists of many results: as many queries for many devices as for one, rows in the order of their fields, statistics."""

import gc
from dataclasses import fields

import pytest
from django.db import connection

from runs.pipeline import keeping
from runs.queries import point_rows
from runs.queries.points import Point


def test_what_is_read_of_a_result_is_in_the_order_of_its_fields():
    read = [*point_rows.READ, *point_rows.PLACE, "base_sha256", "base_p50_ms", "how"]
    assert read == [field.name for field in fields(Point)]


@pytest.mark.parametrize("path", ["/kernels/", "/leaderboard/", "/tiers/", "/kernels/attention/sdpa/"])
def test_many_devices_take_no_more_than_twelve_queries(owner, measured, make_gpu, path, django_assert_max_num_queries):
    for number in range(4):
        measured(1, on=make_gpu(f"GPU-M{number}", name=f"NVIDIA L{number}", host="gpu-9"), device=f"NVIDIA L{number}")
    with django_assert_max_num_queries(12):
        assert "NVIDIA L3" in owner.get(path).content.decode() or path == "/kernels/"


def test_sqlite_is_told_how_its_tables_are_filled(demo):
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL keeps its statistics by itself")
    keeping.refresh_statistics()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM sqlite_stat1 WHERE idx = 'results_by_kernel'")
        assert cursor.fetchone() == (1,)


def test_what_was_read_is_freed_when_nothing_needs_it(demo):
    """Without the garbage collector: it would stop a later request for 0.2 s."""
    gc.collect()
    gc.disable()
    try:
        found = point_rows.points(point_rows.tried())
        assert len(found) > 50
        del found
        assert not [one for one in gc.get_objects() if type(one) is Point]
    finally:
        gc.enable()

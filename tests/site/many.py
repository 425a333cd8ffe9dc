"""Many results, for tests of speed and of plans: real results of a stored run, repeated by the database itself."""

import itertools
from datetime import UTC, datetime, timedelta

from django.contrib.auth.models import User
from django.db import connection

from kernels.workload import Workload as WorkloadSpec
from runs.models import Gpu, Measurement, Result, Run, Workload

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
PEOPLE = ("ada", "ben", "cy")
CARDS = (("NVIDIA H200", "gpu-1"), ("NVIDIA H200", "gpu-2"), ("NVIDIA H100", "gpu-3"), ("NVIDIA L4", "gpu-4"))
SHARED = 1_000_000_000
"""Row ids above those of anything else, so that copies know their originals."""


def many(template: Run, runs: int) -> None:
    """So many copies of a stored run, one an hour, on four cards, of three people, over 240 workloads of its operation.

    The figures of each copy differ by up to 10%. Samples and logs are left out.
    """
    workloads = _workloads()
    made = _runs(template, runs)
    first = made[0].pk
    measurements = list(template.measurements.order_by("pk").values_list("pk", flat=True))
    numbers = f"WITH RECURSIVE copies(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM copies WHERE n < {runs - 1})"
    places = ", ".join(f"({pk}, {place})" for place, pk in enumerate(measurements))
    at = f"(copies.n * {len(measurements)} + places.place)"
    ids = {"id": f"{SHARED} + {at}", "run_id": f"{first} + copies.n", "workload_id": f"{workloads} + {at} % 240"}
    table, columns, values = _copied(Measurement, ids | {"aa_samples_ns": "NULL"})
    source = f"copies CROSS JOIN places JOIN {table} t ON t.id = places.pk"
    with connection.cursor() as cursor:
        more = f"{numbers}, places(pk, place) AS (VALUES {places})"
        cursor.execute(f"INSERT INTO {table} ({columns}) {more} SELECT {values} FROM {source}")
        factor = "(1 + ((copies.n * 37 + places.place * 11) % 100) / 1000.0)"
        scaled = {name: f"{name} * {factor}" for name in ("speedup", "speedup_low", "speedup_high", "p50_ms", "tflops")}
        count = template.measurements.model.objects.filter(run=template).count()
        last = Result.objects.order_by("-pk").values_list("pk", flat=True)[0]
        own = f"{SHARED} + copies.n * {last + 1} + t.id"
        nothing = {"samples_ns": "NULL", "log": "''"}
        assert count == len(measurements)
        table, columns, values = _copied(Result, {"id": own, "measurement_id": ids["id"]} | scaled | nothing)
        source = f"copies CROSS JOIN places JOIN {table} t ON t.measurement_id = places.pk"
        cursor.execute(f"INSERT INTO {table} ({columns}) {more} SELECT {values} FROM {source} ORDER BY copies.n, t.id")
        cursor.execute("ANALYZE")  # as it is done after a while (runs/pipeline/keeping.py)


def _copied(model, changed):
    """(table, columns, values) of a statement that copies rows, with some of their columns changed."""
    names = [field.column for field in model._meta.concrete_fields if not field.generated]
    quoted = ", ".join(f'"{name}"' for name in names)
    return model._meta.db_table, quoted, ", ".join(changed.get(name, f't."{name}"') for name in names)


def _workloads() -> int:
    """The row id of the first of 240 workloads in a row."""
    sizes = itertools.product((1, 2, 4, 8, 16), (8, 16, 32), (512, 1024, 2048, 4096), (64, 128), (False, True))
    rows = []
    for number, (batch, heads, seq_len, head_dim, causal) in enumerate(sizes):
        values = {"batch": batch, "heads": heads, "seq_len": seq_len, "head_dim": head_dim, "causal": causal}
        dtype = ("float16", "bfloat16")[number % 2]
        spec = WorkloadSpec(operation="attention", dtype=dtype, sizes=values)
        fields = {"operation": "attention", "dtype": dtype, "sizes": spec.sizes, "label": spec.label}
        rows.append(Workload(pk=SHARED + number, key=f"{number:016x}", **fields))
    Workload.objects.bulk_create(rows)
    return SHARED


def _runs(template, count):
    cards = [
        Gpu.objects.create(uuid=f"GPU-many-{number}", kind="cuda", name=name, host=host)
        for number, (name, host) in enumerate(CARDS)
    ]
    people = [User.objects.create(username=name) for name in PEOPLE]
    rows = []
    for number in range(count):
        when = BEGIN + timedelta(hours=number)
        rows.append(
            Run(
                pk=SHARED + number, user=people[number % 3], title=f"night {number // 24}", config={}, gpu=cards[number % 4],
                config_name="many", state="done", total=8, done=8, environment=template.environment, created_at=when,
                started_at=when, finished_at=when,
            )
        )  # fmt: skip
    return Run.objects.bulk_create(rows, batch_size=500)

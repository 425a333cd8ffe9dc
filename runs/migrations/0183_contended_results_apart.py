"""The newest results of contended runs are noted apart: until now they hid older ones of uncontended runs. They are not
confirmed, and neither are those with a margin above 5%, and those whose second opinion came from another card."""

import hashlib
from typing import Any

from django.db import migrations
from django.db.models import Exists, F, OuterRef, Q

WIDEST_MARGIN, THOROUGH = 0.05, 5


def fill(apps: Any, schema_editor: Any) -> None:
    """Notes again what was measured on workloads where a contended run has a newest result, oldest first."""
    Measurement, Newest, Result = (apps.get_model("runs", name) for name in ("Measurement", "Newest", "Result"))
    held = Newest.objects.filter(result__measurement__run__contended=True)
    workloads = set(held.values_list("workload", flat=True))
    wrong = Result.objects.filter(confirmed=True).filter(
        Q(measurement__run__contended=True) | Q(measurement__margin__gt=WIDEST_MARGIN) | _lacks_an_opinion(Result)
    )
    workloads |= set(wrong.values_list("measurement__workload", flat=True))
    Result.objects.filter(pk__in=wrong.values("pk")).update(confirmed=False)
    for workload in workloads:
        Newest.objects.filter(workload=workload).delete()
        rows: dict[str, Any] = {}
        known = Measurement.objects.filter(workload=workload, run__withdrawn_at=None).exclude(mode="verify")
        for one in known.select_related("run").defer("run__config").order_by("pk").iterator():
            results = one.results.exclude(status="unsupported").order_by("pk")
            for pk, kernel, name, status, confirmed in results.values_list(
                "pk", "kernel", "kernel__name", "status", "confirmed"
            ):
                if name != one.baseline or status == "ok":
                    terms = _terms(one, kernel, confirmed)
                    rows[terms] = Newest(terms=terms, result_id=pk, workload_id=workload, confirmed=confirmed)
        Newest.objects.bulk_create(rows.values(), batch_size=300)


def _lacks_an_opinion(Result: Any) -> Q:
    """Of the shared process, and no isolated result of the same kernel, card and fingerprint is there."""
    run = "measurement__run"
    same = ("kernel", "measurement__workload", f"{run}__demo", f"{run}__gpu", f"{run}__environment__fingerprint")
    opinions = Result.objects.filter(
        measurement__isolated=True, measurement__protocol__processes__gte=THOROUGH, measurement__run__contended=False,
        measurement__run__withdrawn_at=None, **{field: OuterRef(field) for field in same},
    )  # fmt: skip
    return Q(measurement__isolated=False) & ~Q(kernel__name=F("measurement__baseline")) & ~Exists(opinions)


def _terms(one: Any, kernel: int, confirmed: bool) -> str:
    run = one.run
    terms = [
        kernel,
        one.workload_id,
        run.gpu_id,
        run.demo,
        run.environment_id,
        one.mode,
        one.group,
        one.baseline,
        confirmed,
    ]
    how = [one.protocol.get("paired"), one.protocol.get("rest")] + ["contended"] * run.contended
    return hashlib.sha256(repr(terms + how).encode()).hexdigest()[:32]


class Migration(migrations.Migration):
    dependencies = [("runs", "0182_host_half_width")]

    operations = [migrations.RunPython(fill, migrations.RunPython.noop, elidable=True)]

"""Results of harness 5 and older get today's speed of light: theirs was the datasheet's rate, which a GPU exceeds at its maximum
clock. Imported files have it since they are read so."""

from typing import Any

from django.db import migrations
from django.db.models import F

from kernels.analysis.peaks import peak_of
from kernels.analysis.roofline import renewed_ms
from kernels.workload import Workload

OF_WORKLOAD, DEVICE = "measurement__workload__", "measurement__run__environment__body__device"


def renew(apps: Any, schema_editor: Any) -> None:
    Result = apps.get_model("runs", "Result")
    known = Result.objects.filter(limit_ms__gt=0).order_by()
    shapes = ("measurement__workload", *(OF_WORKLOAD + field for field in ("operation", "dtype", "sizes")))
    every = list(known.values_list(*shapes, DEVICE, "limit_ms").distinct())
    for row, operation, dtype, sizes, device, limit_ms in every:
        problem = Workload(operation=operation, dtype=dtype, sizes=sizes).known_problem
        peak = peak_of(device or "")
        if problem is None or peak is None or (now_ms := renewed_ms(limit_ms, problem, peak)) == limit_ms:
            continue
        rows = known.filter(**{DEVICE: device}, measurement__workload=row, limit_ms=limit_ms)
        rows.update(limit_ms=now_ms, limit_share=F("limit_share") * now_ms / limit_ms)


class Migration(migrations.Migration):
    dependencies = [("runs", "0183_contended_results_apart")]

    operations = [migrations.RunPython(renew, migrations.RunPython.noop)]

"""Intervals of results before harness 6 leave the process out: the spread between processes is added in quadrature, and
their verdicts follow."""

from django.db import migrations

from kernels.analysis.processes import pooled, spread_of
from kernels.analysis.statistics import word
from kernels.contract.arm_result import Ratio


def widen(apps, schema_editor):
    Result = apps.get_model("runs", "Result")
    rows = Result.objects.filter(speedup__gt=0, paired=True, process_half_width=None)
    rows = rows.select_related("measurement__run__environment").defer("samples_ns", "log", "measurement__aa_samples_ns")
    for row in rows.iterator(chunk_size=500):
        measurement = row.measurement
        environment = measurement.run.environment
        device = environment.body.get("device", "") if environment else ""
        whole = pooled([Ratio(row.speedup, row.speedup_low, row.speedup_high)], spread_of(device, measurement.mode))
        row.speedup_low, row.speedup_high = whole.ratio.low, whole.ratio.high
        row.rounds_half_width, row.process_half_width = whole.rounds_half_width, whole.process_half_width
        if row.status == "ok":
            row.verdict = word(row.speedup_low, row.speedup_high, measurement.margin, row.rounds or 0, paired=True)
        row.save(
            update_fields=["speedup_low", "speedup_high", "rounds_half_width", "process_half_width", "verdict"]
        )


class Migration(migrations.Migration):
    dependencies = [("runs", "0012_the_process_belongs_to_the_interval")]

    operations = [migrations.RunPython(widen, migrations.RunPython.noop)]

from django.db import migrations, models

TIMES = ("mean", "std", "min", "max", "p5", "p25", "p50", "p75", "p90", "p95", "p99", "p50_low", "p50_high")
COLD = ("p50", "p90", "p95", "p99")


def name_units(apps, schema_editor):
    """The figures of single cold calls are milliseconds, too: their names say so now."""
    rename(apps, {name: f"{name}_ms" for name in COLD})


def forget_units(apps, schema_editor):
    rename(apps, {f"{name}_ms": name for name in COLD})


def rename(apps, names):
    Result = apps.get_model("runs", "Result")
    changed = []
    for result in Result.objects.exclude(cold=None).only("pk", "cold").iterator(chunk_size=500):
        result.cold = {names.get(name, name): value for name, value in result.cold.items()}
        changed.append(result)
        if len(changed) == 500:
            Result.objects.bulk_update(changed, ["cold"])
            changed = []
    Result.objects.bulk_update(changed, ["cold"])


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0008_session"),
    ]

    operations = [
        *(migrations.RenameField("result", name, f"{name}_ms") for name in TIMES),
        migrations.RenameField("result", "ticks_ns", "samples_ns"),
        migrations.RenameField("result", "left_after", "left_after_round"),
        migrations.RenameField("measurement", "aa_ticks_ns", "aa_samples_ns"),
        migrations.RenameField("run", "fruitless", "attempts_without_progress"),
        migrations.RenameField("gpu", "held", "active_attempts"),
        migrations.AddField("measurement", "process", models.PositiveSmallIntegerField(default=0)),
        migrations.AddField("measurement", "isolated", models.BooleanField(default=False)),
        migrations.RemoveConstraint("measurement", "measured_once"),
        migrations.AddConstraint(
            "measurement",
            models.UniqueConstraint(fields=["run", "workload", "mode", "group", "process"], name="measured_once"),
        ),
        migrations.RunPython(name_units, forget_units),
    ]

import hashlib

import django.db.models.deletion
from django.db import migrations, models

AT_ONCE = 300
THOROUGH = 5


def fill(apps, schema_editor):
    """From the oldest measurement to the newest: a later one takes the place of an earlier one."""
    Measurement, Result, Newest = (apps.get_model("runs", name) for name in ("Measurement", "Result", "Newest"))
    last = 0
    while chunk := list(
        Measurement.objects.filter(pk__gt=last).exclude(mode="verify").select_related("run").order_by("pk").only(
            "workload", "mode", "group", "baseline", "protocol", "run__gpu", "run__demo", "run__environment"
        )[:AT_ONCE]
    ):
        last = chunk[-1].pk
        known = {one.pk: one for one in chunk}
        rows = {}
        arms = Result.objects.filter(measurement__in=list(known)).exclude(status="unsupported").order_by("pk")
        for pk, of, kernel, name, status in arms.values_list("pk", "measurement", "kernel", "kernel__name", "status"):
            one = known[of]
            if name == one.baseline and status != "ok":
                continue
            confirmed = (one.protocol.get("processes") or 1) >= THOROUGH
            terms = [kernel, one.workload_id, one.run.gpu_id, one.run.demo, one.run.environment_id, one.mode, one.group,
                     one.baseline, confirmed, one.protocol.get("paired"), one.protocol.get("rest")]
            digest = hashlib.sha256(repr(terms).encode()).hexdigest()[:32]
            rows[digest] = Newest(terms=digest, result_id=pk, workload_id=one.workload_id, confirmed=confirmed)
        Newest.objects.bulk_create(
            rows.values(),
            update_conflicts=True,
            unique_fields=["terms"],
            update_fields=["result", "workload", "confirmed"],
        )


class Migration(migrations.Migration):

    dependencies = [
        ("runs", "0030_results_in_order"),
    ]

    operations = [
        migrations.CreateModel(
            name="Newest",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("terms", models.CharField(max_length=32, unique=True)),
                ("confirmed", models.BooleanField()),
                ("result", models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name="newest", to="runs.result")),
                ("workload", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to="runs.workload")),
            ],
        ),
        migrations.RunPython(fill, migrations.RunPython.noop, elidable=True),
    ]

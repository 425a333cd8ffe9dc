"""Whether a result is confirmed becomes a column: five fresh processes, and for a kernel that is no baseline an isolated measurement
that agrees. Results so far: thorough baselines, and what was measured thoroughly and isolated."""

from typing import Any

from django.db import migrations, models
from django.db.models import F, Q

THOROUGH = 5


def fill(apps: Any, schema_editor: Any) -> None:
    Result, Newest = apps.get_model("runs", "Result"), apps.get_model("runs", "Newest")
    thorough = apps.get_model("runs", "Measurement").objects.filter(protocol__processes__gte=THOROUGH)
    rows = Result.objects.filter(measurement__in=thorough.values("pk"), status="ok")
    rows = rows.filter(Q(measurement__isolated=True) | Q(kernel__name=F("measurement__baseline")))
    Result.objects.filter(pk__in=rows.order_by().values("pk")).update(confirmed=True)
    Newest.objects.filter(confirmed=True, result__confirmed=False).update(confirmed=False)


class Migration(migrations.Migration):
    dependencies = [("runs", "0150_results_by_kernel")]

    operations = [
        migrations.AddField(model_name="result", name="confirmed", field=models.BooleanField(default=False)),
        migrations.RunPython(fill, migrations.RunPython.noop),
        migrations.AddIndex(
            model_name="result",
            index=models.Index(fields=["measurement"], condition=Q(confirmed=True), name="confirmed_results"),
        ),
    ]

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0144_tags")]

    operations = [
        migrations.AddIndex(
            model_name="result",
            index=models.Index(fields=["kernel", "id", "status", "measurement"], name="results_by_kernel"),
        ),
    ]

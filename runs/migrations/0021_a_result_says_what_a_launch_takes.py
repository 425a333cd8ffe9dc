from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0020_chart_names"),
    ]

    operations = [
        migrations.AddField("result", "local_bytes", models.BigIntegerField(null=True)),
        migrations.AddField("result", "static_shared_bytes", models.IntegerField(null=True)),
        migrations.AddField("result", "dynamic_shared_bytes", models.IntegerField(null=True)),
        migrations.AddField("result", "grid", models.CharField(blank=True, default="", max_length=50), preserve_default=False),
        migrations.AddField("result", "block", models.CharField(blank=True, default="", max_length=50), preserve_default=False),
        migrations.AddField("result", "occupancy", models.FloatField(null=True)),
    ]

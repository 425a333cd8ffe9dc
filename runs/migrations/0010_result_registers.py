from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0009_columns_name_their_units"),
    ]

    operations = [
        migrations.AddField("result", "registers", models.IntegerField(null=True)),
    ]

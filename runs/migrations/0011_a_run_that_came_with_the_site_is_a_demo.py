from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0010_result_registers"),
    ]

    operations = [
        migrations.RenameField("run", "sample", "demo"),
    ]

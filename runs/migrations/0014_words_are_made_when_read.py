from django.db import migrations


class Migration(migrations.Migration):
    """A word depends on rules that change; kernels/analysis/verdicts.py makes it from the figures."""

    dependencies = [
        ("runs", "0013_intervals_of_stored_results_include_the_process"),
    ]

    operations = [
        migrations.RemoveField("result", "verdict"),
    ]

from django.db import migrations


class Migration(migrations.Migration):
    """A word depends on rules that change; kernels/analysis/verdicts.py makes it from the figures."""

    dependencies = [
        ("runs", "0040_a_run_that_came_with_the_site_is_a_demo"),
    ]

    operations = [
        migrations.RemoveField("result", "verdict"),
    ]


from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("runs", "0014_words_are_made_when_read"),
    ]

    operations = [
        migrations.AddField(
            model_name='calibration',
            name='refused',
            field=models.TextField(blank=True),
        ),
        migrations.AddField(
            model_name='calibration',
            name='refused_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='gpu',
            name='max_sm_mhz',
            field=models.FloatField(blank=True, null=True),
        ),
    ]

from django.db import migrations, models

FIVE = [
    ["Good", "B", 2.0],
    ["Very Good", "B+", 3.0],
    ["Excellent", "A", 5.0],
    ["Outstanding", "A+", 13.0],
    ["Breakthrough", "A++", 64.0],
]


def add_first(apps, schema_editor):
    apps.get_model("runs", "TierScale").objects.create(name="Five tiers", body=FIVE)


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0005_effective_sample_size'),
    ]

    operations = [
        migrations.CreateModel(
            name='TierScale',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=60, unique=True)),
                ('body', models.JSONField()),
            ],
            options={
                'ordering': ['id'],
            },
        ),
        migrations.RunPython(add_first, migrations.RunPython.noop),
    ]

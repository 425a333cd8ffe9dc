from django.db import migrations, models


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
    ]

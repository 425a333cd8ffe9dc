"""Accounts that there are: superusers are admins, all others engineers, who could do everything before."""

from django.conf import settings
from django.db import migrations


def give_roles(apps, schema_editor):
    users = apps.get_model(settings.AUTH_USER_MODEL).objects
    people = apps.get_model("runs", "Person").objects
    people.bulk_create(
        people.model(user_id=pk, role="admin" if is_superuser else "engineer")
        for pk, is_superuser in users.filter(person=None).values_list("pk", "is_superuser")
    )


class Migration(migrations.Migration):
    dependencies = [("runs", "0142_people_and_audit")]
    operations = [migrations.RunPython(give_roles, migrations.RunPython.noop)]

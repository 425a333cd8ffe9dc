"""Before, one link opened one status page of everything: it is now a page with every target, kernel and device."""

from django.db import migrations

BODY = [["targets", "*"], ["kernels", "*"], ["devices", "*"]]


def make_page(apps, schema_editor):
    shares = apps.get_model("runs", "Share").objects.filter(run=None, session=None, page=None)
    pages = apps.get_model("runs", "StatusPage").objects
    for share in shares:
        page = pages.create(title="Status", body=BODY, user_id=share.user_id)
        shares.model.objects.filter(pk=share.pk).update(page=page)


def forget_pages(apps, schema_editor):
    """Backwards there is one link without a page at most."""
    shares = apps.get_model("runs", "Share").objects
    shares.filter(page__isnull=False).delete()
    shares.exclude(ended_at=None).delete()


class Migration(migrations.Migration):
    dependencies = [("runs", "0140_status_pages")]
    operations = [migrations.RunPython(make_page, forget_pages)]

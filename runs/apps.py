from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class RunsConfig(AppConfig):
    name = "runs"
    verbose_name = "Runs"

    def ready(self) -> None:
        post_migrate.connect(add_first_scale, sender=self)


def add_first_scale(using: str, **_: Any) -> None:
    """A site always has a tier scale."""
    from runs.models import TierScale

    if not TierScale.objects.using(using).exists():
        TierScale.objects.using(using).create(name="Five tiers", body=TierScale.FIVE)

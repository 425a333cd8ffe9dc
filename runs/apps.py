from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class RunsConfig(AppConfig):
    name = "runs"
    verbose_name = "Runs"

    def ready(self) -> None:
        post_migrate.connect(add_first_scales, sender=self)


def add_first_scales(using: str, **_: Any) -> None:
    """A site always has a tier scale."""
    from runs.models import TierScale

    scales = TierScale.objects.using(using)
    if not scales.exists():
        scales.create(name="Way to the speed of light", kind=TierScale.Kind.LIGHT, body=TierScale.WAY)
        scales.create(name="Five tiers", body=TierScale.FIVE)

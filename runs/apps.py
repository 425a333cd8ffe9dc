from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate, post_save


class RunsConfig(AppConfig):
    name = "runs"
    verbose_name = "Runs"

    def ready(self) -> None:
        post_migrate.connect(add_first_scales, sender=self)
        from django.contrib.auth import get_user_model  # known only now

        post_save.connect(add_person, sender=get_user_model())


def add_first_scales(using: str, **_: Any) -> None:
    """A site always has a tier scale."""
    from runs.models import TierScale

    scales = TierScale.objects.using(using)
    if not scales.exists():
        scales.create(name="Way to the speed of light", kind=TierScale.Kind.LIGHT, body=TierScale.WAY)
        scales.create(name="Five tiers", body=TierScale.FIVE)


def add_person(instance: Any, created: bool, raw: bool, using: str, **_: Any) -> None:
    """An account always has a role."""
    from runs.models import Person, Role

    if created and not raw:
        role = Role.ADMIN if instance.is_superuser else Role.ENGINEER
        Person.objects.using(using).get_or_create(user=instance, defaults={"role": role})

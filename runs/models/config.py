"""Named configs of the form: the files in kernels/configs/, read at start."""

from __future__ import annotations

from django.db import models

from kernels.config_files import configs
from kernels.workload import Config as ConfigSpec


class ConfigManager(models.Manager["Config"]):
    def read_files(self) -> None:
        """Updates the table from the files."""
        files = configs()
        for config in files:
            body = config.model_dump(mode="json")
            self.update_or_create(name=config.name, defaults={"title": config.title, "body": body})
        self.exclude(name__in=[c.name for c in files]).delete()


class Config(models.Model):
    """A named list of workloads, kernels and a protocol."""

    name = models.CharField(max_length=80, unique=True)
    title = models.CharField(max_length=200, blank=True)
    body = models.JSONField()

    objects = ConfigManager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def spec(self) -> ConfigSpec:
        return ConfigSpec(**self.body)

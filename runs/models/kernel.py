"""Kernels, and their sources as measured."""

from __future__ import annotations

from collections.abc import Mapping

from django.db import models


class KernelManager(models.Manager["Kernel"]):
    def of_each(self, backends: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], Kernel]:
        """By (operation, name). Kernels that are new get these backends."""
        names = {name for _, name in backends}
        found = {(row.operation, row.name): row for row in self.filter(name__in=names)}
        for (operation, name), backend in backends.items():
            if (operation, name) not in found:
                made = self.get_or_create(operation=operation, name=name, defaults={"backend": backend})[0]
                found[operation, name] = made
        return found


class KernelVersionManager(models.Manager["KernelVersion"]):
    def of_each(self, sources: Mapping[tuple[int, str], str], commit: str) -> dict[tuple[int, str], KernelVersion]:
        """By (kernel's id, sha256). Versions that are new get these sources."""
        found = {(row.kernel_id, row.sha256): row for row in self._known(sources)}
        for (kernel, sha256), source in sources.items():
            if (kernel, sha256) not in found:
                defaults = {"source": source, "commit": commit}
                found[kernel, sha256] = self.get_or_create(kernel_id=kernel, sha256=sha256, defaults=defaults)[0]
        return found

    def _known(self, sources: Mapping[tuple[int, str], str]) -> models.QuerySet[KernelVersion]:
        return self.filter(sha256__in={sha256 for _, sha256 in sources}).defer("source")


class Kernel(models.Model):
    """A kernel: one implementation of an operation."""

    operation = models.CharField(max_length=50)
    name = models.CharField(max_length=100)
    backend = models.CharField(max_length=50, blank=True)

    objects = KernelManager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["operation", "name"], name="kernel_by_name")]

    def __str__(self) -> str:
        return f"{self.operation}/{self.name}"


class KernelVersion(models.Model):
    """The source of a kernel as executed."""

    kernel = models.ForeignKey(Kernel, models.CASCADE, related_name="versions")
    sha256 = models.CharField(max_length=64)
    source = models.TextField(blank=True)
    commit = models.CharField(max_length=50, blank=True)
    first_seen = models.DateTimeField(auto_now_add=True)

    objects = KernelVersionManager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["kernel", "sha256"], name="kernel_version_by_hash")]

    def __str__(self) -> str:
        return f"{self.kernel} {self.sha256[:12]}"

"""Kernels, and their sources as measured."""

from __future__ import annotations

from django.db import models


class Kernel(models.Model):
    """A kernel: one implementation of an operation."""

    operation = models.CharField(max_length=50)
    name = models.CharField(max_length=100)
    backend = models.CharField(max_length=50, blank=True)

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

    class Meta:
        constraints = [models.UniqueConstraint(fields=["kernel", "sha256"], name="kernel_version_by_hash")]

    def __str__(self) -> str:
        return f"{self.kernel} {self.sha256[:12]}"

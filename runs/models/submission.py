"""Submissions: kernels that came through the site. Their files travel with each run; see kernels/submission.py."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import models
from django.urls import reverse
from django.utils import timezone

from kernels.catalog import AT, PROBLEM
from kernels.formats.bringing import Brought
from kernels.git_source import GitSource
from kernels.submission import VERSION_DIGITS, Unreadable, kernel_of, version_of
from kernels.submission import Submission as SubmissionSpec

if TYPE_CHECKING:
    from django.contrib.auth.models import User

MOST_ANCESTORS = 50


class SubmissionManager(models.Manager["Submission"]):
    def store_read(self, read: Brought, *, user: User | None = None, **told: Any) -> tuple[Submission, bool]:
        """As `store`, and first the problem that came with the kernel. Raises Unreadable."""
        if read.problem:
            self.store(read.problem, user=user)
        one, new = self.store(read.kernel, user=user, **told)
        return one, new

    def store(
        self, files: dict[str, str], *, user: User | None = None, message: str = "", parent: Submission | None = None
    ) -> tuple[Submission, bool]:
        """(the submission of these files, whether it is new). The same files are one submission: the first one stays as
        it is. Raises Unreadable."""
        info = kernel_of(files)
        _must_be_of(parent, info.operation)
        said = {"operation": info.operation, "name": info.name, "backend": info.backend, "doc": info.doc}
        one, new = self.get_or_create(
            sha256=version_of(files),
            defaults=said | {"files": files, "user": user, "message": message, "parent": parent},
        )
        return one, new

    def store_git(
        self,
        source: GitSource,
        operation: str,
        *,
        user: User | None = None,
        message: str = "",
        parent: Submission | None = None,
    ) -> tuple[Submission, bool]:
        """The same of a kernel in a repository that agents fetch it from. Its files are not read here."""
        _must_be_of(parent, operation)
        said = {"operation": operation, "name": source.kernel, "git": source.model_dump(), "files": {}}
        one, new = self.get_or_create(
            sha256=source.sha256, defaults=said | {"user": user, "message": message, "parent": parent}
        )
        if one.operation != operation:
            raise Unreadable(f"this commit is stored already as a kernel of {one.operation}")
        return one, new

    def named(self, operation: str, kernel: str) -> Submission | None:
        """The submission whose kernel has this name, such as mine@0123456789."""
        name, _, version = kernel.replace("\x00", "").partition(AT)
        if len(version) != VERSION_DIGITS:
            return None
        return self.filter(operation=operation, name=name, sha256__startswith=version).first()

    def among(self, kernels: Iterable[tuple[str, str]]) -> list[Submission]:
        """The submissions among kernels: (operation, name). Raises Unreadable if one is not stored here."""
        found = []
        for operation, name in kernels:
            if AT in name:
                if (one := self.named(operation, name)) is None:
                    raise Unreadable(f"the submission of {operation}/{name} is not stored here")
                found.append(one)
        return found


def _must_be_of(parent: Submission | None, operation: str) -> None:
    """A change is of the same operation as its parent. Raises Unreadable."""
    if parent and parent.operation != operation:
        raise Unreadable(
            f"{parent.kernel} is a kernel of {parent.operation}, so no kernel of {operation} is a change of it: "
            "submit it without a parent"
        )


class Submission(models.Model):
    """The files of one kernel. It never changes: a change is another submission, whose parent it is."""

    sha256 = models.CharField(max_length=64, unique=True)
    """Of names and contents of all files; of those in a repository, of where they lie."""
    operation = models.CharField(max_length=50)
    name = models.CharField(max_length=100)
    """As its file declares it, without the version."""
    backend = models.CharField(max_length=50, blank=True)
    doc = models.TextField(blank=True)
    files = models.JSONField()
    """File name -> text; empty if they lie in a repository."""
    git = models.JSONField(null=True, blank=True)
    """Fields of GitSource: where agents fetch the files."""
    message = models.TextField(blank=True, max_length=2000)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True)
    parent = models.ForeignKey("self", models.SET_NULL, null=True, blank=True, related_name="children")
    created_at = models.DateTimeField(default=timezone.now)

    objects = SubmissionManager()

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["operation", "name"], name="submissions_of_a_kernel")]

    def __str__(self) -> str:
        return self.kernel

    def save(self, *args: Any, **kwargs: Any) -> None:
        if self.pk is not None:
            raise TypeError("a submission never changes: store another one")
        super().save(*args, **kwargs)

    @property
    def version(self) -> str:
        return self.sha256[:VERSION_DIGITS]

    @property
    def kernel(self) -> str:
        """Its kernel's name in runs and results."""
        return f"{self.name}{AT}{self.version}"

    @property
    def spec(self) -> SubmissionSpec:
        return SubmissionSpec(operation=self.operation, files=self.files, git=self.source)

    @property
    def source(self) -> GitSource | None:
        """Where its files lie, if not here."""
        return GitSource.model_validate(self.git) if self.git else None

    @cached_property
    def problem(self) -> str:
        """The kernel of the problem that came with it, which it is for; its own if it is a problem. Empty: it is for an
        operation."""
        if self.operation != PROBLEM:
            return ""
        (named,) = kernel_of(self.files).limits.get(PROBLEM, (self.kernel,))
        return str(named)

    @property
    def of_a_problem(self) -> str:
        """The problem that it is, or which problem it is for, as its files say; empty: it is for an operation."""
        return self.doc if self.operation == PROBLEM else ""

    def as_declared(self) -> dict[str, Any]:
        """As an agent declares the kernels of its host."""
        said = {"operation": self.operation, "name": self.kernel, "backend": self.backend, "doc": self.doc}
        return said | {"dtypes": [], "limits": {}, "sha256": self.sha256, "folder": "", "why_not": ""}

    def get_absolute_url(self) -> str:
        return reverse("submission", args=[self.version])

    def line(self) -> list[Submission]:
        """It and its ancestors, newest first."""
        found, seen = [self], {self.pk}
        while len(found) <= MOST_ANCESTORS and (one := found[-1].parent) and one.pk not in seen:
            found.append(one)
            seen.add(one.pk)
        return found

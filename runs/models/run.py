"""Runs: a config executed on a device. The row is the queue and the truth; the state only moves forward."""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import models, transaction
from django.db.models import Q
from django.urls import reverse
from django.utils import timezone

from kernels.tune_plan import TunePlan
from kernels.workload import Config as ConfigSpec
from kernels.workload import RunSpec
from runs.messages import ask_dispatch, tell_cancel
from runs.models.audit import Audit
from runs.models.gpu import Gpu
from runs.models.session import Session
from runs.models.submission import Submission
from runs.models.tag import Tag

if TYPE_CHECKING:
    from django.contrib.auth.models import User


log = logging.getLogger(__name__)


class State(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


ACTIVE = (State.QUEUED, State.RUNNING)
FINAL = (State.DONE, State.FAILED, State.CANCELLED, State.LOST)
NO_ANSWER = "Cancelled; its device did not answer."
ATTEMPTS = 1024
"""Attempts count from a random multiple of this, so (run, attempt) stays unique across recreated databases."""


def kernels_of(spec: ConfigSpec) -> list[tuple[str, str]]:
    """(operation, name) of each kernel of a config."""
    return [(operation, name) for operation in spec.operations for name in spec.kernels_of(operation)]


class Environment(models.Model):
    """Everything that can change a number. Results are comparable only with the same fingerprint."""

    digest = models.CharField(max_length=64, unique=True)
    fingerprint = models.CharField(max_length=12, db_index=True)
    body = models.JSONField()

    def __str__(self) -> str:
        return self.fingerprint

    @classmethod
    def of(cls, body: dict[str, Any], fingerprint: str) -> Environment:
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        return cls.objects.get_or_create(digest=digest, defaults={"fingerprint": fingerprint, "body": body})[0]


class RunQuerySet(models.QuerySet["Run"]):
    def active(self) -> RunQuerySet:
        return self.filter(state__in=ACTIVE)

    def sent(self) -> RunQuerySet:
        """Runs on a device, as far as the site knows."""
        return self.active().filter(sent_at__isnull=False)

    def waiting(self) -> RunQuerySet:
        return self.filter(state=State.QUEUED, sent_at__isnull=True)

    def for_list(self) -> RunQuerySet:
        return (
            self.select_related("gpu", "user", "withdrawn_by")
            .defer("config", "log", "preflight", "timing", "gpu__catalogue")
            .order_by("-id")
        )


class RunManager(models.Manager["Run"]):
    def submit(
        self,
        config: ConfigSpec,
        *,
        gpu: Gpu | None = None,
        device_name: str = "",
        user: User | None = None,
        title: str = "",
        note: str = "",
        priority: int = 0,
        repeats: Run | None = None,
        profile_of: int | None = None,
        session: Session | None = None,
        tune: TunePlan | None = None,
        wake: bool = True,
    ) -> Run:
        """Stores a queued run. It waits in the database for the dispatcher.

        tune: search the best settings of the config's only kernel.
        profile_of: the row id of the result whose kernel it profiles.
        wake: also notify the dispatcher; otherwise it is found at the next hello.
        """
        run = self.create(
            config=config.model_dump(mode="json"),
            config_name=config.name,
            title=title or config.title or config.name,
            note=note,
            gpu=gpu,
            device_name=device_name,
            user=user,
            priority=priority,
            repeats=repeats,
            profile_of_id=profile_of,
            session=session,
            total=tune.trials if tune else len(config.workloads),
            tune=tune.model_dump(mode="json") if tune else None,
            attempt=secrets.randbelow(2**20) * ATTEMPTS,
        )
        log.info("submitted", extra={"run": run.pk})
        if user is not None:
            Audit.objects.note(user, Audit.Kind.LAUNCHED, f"run {run.pk}: {run.title}", run.get_absolute_url())
        if wake:
            transaction.on_commit(ask_dispatch)
        return run

    @transaction.atomic
    def submit_on_each(self, config: ConfigSpec, device_names: list[str], **options: Any) -> list[Run]:
        """Stores a queued run for any device of each name."""
        runs = [self.submit(config, device_name=name, **options) for name in device_names]
        self.filter(pk__in=[run.pk for run in runs]).update(together=runs[0])
        return runs


class Run(models.Model):
    """A config on one device."""

    State = State

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="runs")
    title = models.CharField(max_length=200)
    note = models.TextField(blank=True)
    config_name = models.CharField(max_length=80, blank=True)
    config = models.JSONField()
    tune = models.JSONField(null=True, blank=True)
    """Of a search for the best settings of a kernel: its plan (kernels/tune_plan.py). Its trials are Trial rows."""
    gpu = models.ForeignKey(Gpu, models.PROTECT, null=True, blank=True, related_name="runs")
    """The chosen device, or the one that took the run."""
    device_name = models.CharField(max_length=200, blank=True)
    """If no device was chosen: any device of this name."""
    priority = models.IntegerField(default=0)
    repeats = models.ForeignKey("self", models.SET_NULL, null=True, blank=True, related_name="repeated_by")
    together = models.ForeignKey("self", models.SET_NULL, null=True, blank=True, related_name="companions")
    """Of runs that were launched together on several models: the first of them."""
    profile_of = models.ForeignKey("Result", models.CASCADE, null=True, blank=True, related_name="profiling_runs")
    """The result whose kernel this run profiles; it measures nothing. None: a run that measures."""
    session = models.ForeignKey(Session, models.SET_NULL, null=True, blank=True, related_name="runs")
    tags = models.ManyToManyField(Tag, blank=True, related_name="runs")
    demo = models.CharField(max_length=200, blank=True)
    """For a run that came with the site: where and when it was measured."""

    state = models.CharField(max_length=10, choices=State.choices, default=State.QUEUED)
    message = models.TextField(blank=True)
    """Why it failed, was lost, ..., as a sentence."""
    cancel_requested = models.BooleanField(default=False)
    attempt = models.IntegerField(default=0)
    """Number of the last attempt sent; starts at a random multiple of ATTEMPTS."""
    seq = models.IntegerField(default=0)
    """Highest contiguous event of the current attempt that is stored."""
    attempts_without_progress = models.IntegerField(default=0)
    """Attempts in a row that started but measured no workload."""
    expected_s = models.FloatField(null=True, blank=True)
    """Estimated device time when it was queued (runs/queries/queue.py)."""
    total = models.IntegerField(default=0)
    done = models.IntegerField(default=0)
    """Number of workloads measured; of a search, of trials."""

    environment = models.ForeignKey(Environment, models.PROTECT, null=True, blank=True, related_name="runs")
    preflight = models.JSONField(default=dict, blank=True)
    contended = models.BooleanField(default=False)
    """Others used the device: another process was on the GPU, or took core time of the CPU."""
    timing = models.JSONField(default=dict, blank=True)
    """Seconds by phase outside its measurements: kernels/contract/events.py."""
    log = models.TextField(blank=True)
    samples_deleted_at = models.DateTimeField(null=True, blank=True)
    """When its raw samples were deleted to save space (runs/pipeline/keeping.py). Its figures stay."""

    withdrawn_at = models.DateTimeField(null=True, blank=True)
    """When somebody took its figures back. They count nowhere from then on, and every quote is struck through."""
    withdrawn_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+")
    withdrawn_why = models.CharField(max_length=300, blank=True)

    created_at = models.DateTimeField(default=timezone.now)
    sent_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    progress_at = models.DateTimeField(null=True, blank=True)
    """Time of the last event."""
    looked_at = models.DateTimeField(null=True, blank=True)
    """When its results were looked at for changes; unknown: not yet."""

    objects = RunManager.from_queryset(RunQuerySet)()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["gpu"], condition=Q(state__in=ACTIVE, sent_at__isnull=False), name="one_run_per_device"
            )
        ]
        indexes = [
            models.Index(fields=["state", "sent_at"], name="what_is_queued_or_running"),
            models.Index(fields=["user", "-id"], name="runs_of_a_person"),
            models.Index(fields=["started_at", "gpu"], name="runs_by_start"),
            models.Index(fields=["id"], condition=Q(looked_at=None), name="not_looked_at"),
        ]

    def __str__(self) -> str:
        return f"run {self.pk}: {self.title}"

    def get_absolute_url(self) -> str:
        return reverse("run", args=[self.pk])

    @cached_property
    def spec(self) -> ConfigSpec:
        """Its config, parsed once: a run's config never changes."""
        return ConfigSpec(**self.config)

    @cached_property
    def plan(self) -> TunePlan | None:
        """Of a search."""
        return TunePlan(**self.tune) if self.tune else None

    @property
    def parts(self) -> str:
        """What `done` and `total` count."""
        return "trials" if self.tune else "workloads"

    def run_spec(self) -> RunSpec:
        """The agent's job: the config, and the workloads or trials already measured."""
        done = list(self.measurements.values_list("workload__key", flat=True).distinct())
        tried = [one.body for one in self.trials.all()] if self.tune else []
        fingerprint = self.environment.fingerprint if self.environment and (done or tried) else ""
        assert self.gpu is not None
        return RunSpec.of(
            self.spec,
            self.gpu.uuid,
            run=self.pk,
            attempt=self.attempt,
            done=done,
            fingerprint=fingerprint,
            ceilings=self.gpu.ceilings,
            profile=self.profile_of.kernel.name if self.profile_of else "",
            submissions=[one.spec for one in Submission.objects.among(kernels_of(self.spec))],
            tune=self.plan,
            tried=tried,
        )

    @property
    def attempts(self) -> int:
        """Number of attempts sent."""
        return self.attempt % ATTEMPTS

    @property
    def is_active(self) -> bool:
        return self.state in ACTIVE

    @property
    def elapsed_s(self) -> float | None:
        if self.started_at is None:
            return None
        return max(0.0, ((self.finished_at or timezone.now()) - self.started_at).total_seconds())

    def advance(self, state: str, *, message: str = "", at: datetime | None = None, **more: Any) -> bool:
        """Moves an active run to `state`, once. False if another process has moved it already."""
        changes: dict[str, Any] = {"state": state} | more
        if message:
            changes["message"] = message
        if state in FINAL:
            changes["finished_at"] = at or timezone.now()
        moved = Run.objects.active().filter(pk=self.pk).update(**changes)
        if moved:
            self.refresh_from_db()
        return bool(moved)

    def cancel(self, by: User | None = None) -> str:
        """Requests the run to stop. Returns a sentence about the outcome."""
        said, asked = self._cancel()
        if asked and by is not None:
            Audit.objects.note(by, Audit.Kind.CANCELLED, f"run {self.pk}: {self.title}", self.get_absolute_url())
        return said

    def _cancel(self) -> tuple[str, bool]:
        """(the sentence, whether there was something to cancel)."""
        if Run.objects.waiting().filter(pk=self.pk).update(state=State.CANCELLED, finished_at=timezone.now()):
            return "Cancelled before it was sent to a device.", True
        self.refresh_from_db()
        if not self.is_active:
            return f"This run is {self.state} already.", False
        Run.objects.active().filter(pk=self.pk).update(cancel_requested=True)
        if self.gpu and not self.gpu.is_online:
            self.advance(State.CANCELLED, message=NO_ANSWER)
            return "Cancelled. The device does not answer now. It stops the run when it is online again.", True
        tell_cancel(self.pk, self.attempt)
        return "Cancelling. The device is free within seconds.", True


class RejectedEvent(models.Model):
    """An event that could not be stored, kept for inspection. It is confirmed to its agent."""

    run = models.BigIntegerField(null=True)
    attempt = models.IntegerField(null=True)
    seq = models.IntegerField(null=True)
    reason = models.CharField(max_length=300)
    body = models.TextField()
    at = models.DateTimeField(auto_now_add=True)

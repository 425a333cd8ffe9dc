"""Schedules: runs that repeat daily. This is what fills a history."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import models
from django.utils import timezone

from runs.models.run import Run

if TYPE_CHECKING:
    from django.contrib.auth.models import User

LONGEST = timedelta(days=366)


class Schedule(models.Model):
    """Repeats a run's config on its device once a day, until a date; the day is that of the site's time zone."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="schedules")
    """The run that is repeated."""
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="schedules")
    until = models.DateField()
    """The last day."""
    ended_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["run"], condition=models.Q(ended_at=None), name="one_schedule_of_a_run")
        ]

    def __str__(self) -> str:
        return f"run {self.run_id}, daily until {self.until}"

    @classmethod
    def begin(cls, run: Run, user: User, until: date) -> Schedule:
        """Replaces the run's schedule, if it has one. Its own day counts as done."""
        cls.objects.filter(run=run, ended_at=None).update(ended_at=timezone.now())
        schedule = cls.objects.create(run=run, user=user, until=until)
        schedule.days.create(day=timezone.localdate(), started=run)
        return schedule

    def end(self) -> None:
        Schedule.objects.filter(pk=self.pk, ended_at=None).update(ended_at=timezone.now())


class ScheduledDay(models.Model):
    """What became of one day of a schedule: its run, or why there is none yet."""

    schedule = models.ForeignKey(Schedule, models.CASCADE, related_name="days")
    day = models.DateField()
    started = models.ForeignKey(Run, models.SET_NULL, null=True, blank=True, related_name="+")
    is_over = models.BooleanField(default=True)
    """False: it may still start on this day."""
    skipped = models.CharField(max_length=300, blank=True)
    """Why it has not started, as a sentence."""

    class Meta:
        ordering = ["-day"]
        constraints = [models.UniqueConstraint(fields=["schedule", "day"], name="one_run_a_day")]

    def __str__(self) -> str:
        return f"{self.day}: {self.skipped or self.started_id}"

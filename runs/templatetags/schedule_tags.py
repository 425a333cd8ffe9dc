"""The schedule of a run, for its page."""

from __future__ import annotations

from datetime import timedelta

from django import template
from django.db.models import Prefetch
from django.utils import timezone

from runs.models import Run, Schedule, ScheduledDay

register = template.Library()
USUAL = timedelta(days=30)


@register.simple_tag
def schedule_of(run: Run) -> Schedule | None:
    """The schedule that repeats this run, or that has started it, with `today`: what became of this day."""
    today = Prefetch("days", ScheduledDay.objects.filter(day=timezone.localdate()), to_attr="of_today")
    of = [run.pk] if run.repeats_id is None else [run.pk, run.repeats_id]
    found = (
        Schedule.objects.filter(run__in=of, ended_at=None, until__gte=timezone.localdate())
        .prefetch_related(today)
        .first()
    )
    if found:
        found.today = next(iter(found.of_today), None)  # type: ignore[attr-defined]
    return found


@register.simple_tag
def usual_until() -> str:
    return f"{timezone.localdate() + USUAL:%Y-%m-%d}"

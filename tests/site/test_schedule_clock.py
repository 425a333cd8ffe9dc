"""Schedules while the clock of the host jumps, while devices are silent, and with a config that cannot be read."""

from datetime import timedelta

import pytest
from django.utils import timezone

from runs.models import Gpu, Run, Schedule, ScheduledDay
from runs.pipeline.schedules import start_scheduled

TOMORROW = timedelta(days=1)


@pytest.fixture
def schedule(make_run, owner):
    return Schedule.begin(make_run(state="done"), owner.user, timezone.localdate() + timedelta(days=30))


def skipped_tomorrow():
    return ScheduledDay.objects.get(day=timezone.localdate() + TOMORROW).skipped


def end_runs():
    Run.objects.filter(state="queued").update(state="done")


@pytest.mark.parametrize("ahead", [10, 400])
def test_a_clock_that_jumps_ahead_and_back_does_not_stop_a_schedule(schedule, ahead):
    """Also beyond its last day."""
    today = timezone.localdate()
    started = start_scheduled(today + timedelta(days=ahead))
    assert len(started) == (ahead < 30)
    end_runs()
    assert len(start_scheduled(today + TOMORROW)) == 1
    end_runs()
    assert start_scheduled(today + TOMORROW) == []


def test_after_its_last_day_nothing_starts(schedule):
    assert start_scheduled(timezone.localdate() + timedelta(days=31)) == []


def test_a_day_is_skipped_while_every_device_of_the_name_is_silent(make_run, owner, gpu):
    run = make_run(gpu=None, device_name=gpu.name, state="done")
    Schedule.begin(run, owner.user, timezone.localdate() + timedelta(days=30))
    Gpu.objects.update(seen_at=timezone.now() - timedelta(hours=1))
    assert start_scheduled(timezone.localdate() + TOMORROW) == []
    assert skipped_tomorrow() == f"Every {gpu.name} is offline."


def test_a_config_that_cannot_be_read_is_a_sentence_of_that_day_once(schedule, caplog):
    Run.objects.filter(pk=schedule.run.pk).update(config={"name": "x"})
    for _ in range(3):
        start_scheduled(timezone.localdate() + TOMORROW)
    assert skipped_tomorrow() == "Its run could not be created. The reason is in the site's log."
    assert len(caplog.records) == 1

"""Runs that repeat daily: one a day, whoever asks and how often; none on a silent or busy device."""

from datetime import timedelta

import pytest
from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from runs.models import Run, Schedule, ScheduledDay
from runs.pipeline import schedules
from runs.pipeline.schedules import start_scheduled


@pytest.fixture
def today():
    return timezone.localdate()


@pytest.fixture
def done(make_run):
    return make_run(state="done", finished_at=timezone.now())


@pytest.fixture
def schedule(done, owner, today):
    return Schedule.begin(done, owner.user, today + timedelta(days=10))


def finish(runs):
    Run.objects.filter(pk__in=[run.pk for run in runs]).update(state="done")


def test_it_starts_once_a_day_from_tomorrow_on(schedule, done, today):
    assert start_scheduled(today) == []
    for days in (1, 2, 3):
        (run,) = start_scheduled(today + timedelta(days=days))
        assert (run.repeats, run.config, run.gpu, run.user, run.title) == (
            done, done.config, done.gpu, done.user, done.title,
        )  # fmt: skip
        finish([run])
        assert start_scheduled(today + timedelta(days=days)) == []


def test_two_reapers_at_once_start_one_run(schedule, today, monkeypatch):
    """The second finds the day due, too, and comes to it while the first is about to start."""
    tomorrow, real, others = today + timedelta(days=1), schedules.why_not, []

    def second_comes(of):
        monkeypatch.setattr(schedules, "why_not", real)
        others.append(schedules._start(of, tomorrow))
        return ""

    monkeypatch.setattr(schedules, "why_not", second_comes)
    first = start_scheduled(tomorrow)
    assert [len(first), others[0] is not None] == [0, True]
    assert Run.objects.filter(repeats=schedule.run).count() == 1


def test_a_day_has_one_row(schedule, today):
    with pytest.raises(Exception, match=r"(?i)unique"), transaction.atomic():
        ScheduledDay.objects.create(schedule=schedule, day=today)


def test_a_clock_that_jumps_starts_no_day_twice_and_makes_nothing_up(schedule, today):
    for days, started in ((5, 1), (3, 1), (5, 0), (3, 0), (6, 1)):
        runs = start_scheduled(today + timedelta(days=days))
        assert len(runs) == started, days
        finish(runs)
    assert Run.objects.filter(repeats=schedule.run).count() == 3


def test_a_silent_device_is_waited_for_on_that_day(schedule, gpu, today):
    gpu.seen_at = timezone.now() - timedelta(hours=1)
    gpu.save()
    tomorrow = today + timedelta(days=1)
    assert start_scheduled(tomorrow) == []
    assert schedule.days.get(day=tomorrow).skipped == "NVIDIA H200 on gpu-1 is offline."
    gpu.seen_at = timezone.now()
    gpu.save()
    assert len(start_scheduled(tomorrow)) == 1
    assert schedule.days.get(day=tomorrow).skipped == ""


def test_runs_do_not_pile_up(schedule, today):
    (waiting,) = start_scheduled(today + timedelta(days=1))
    assert start_scheduled(today + timedelta(days=2)) == []
    day = schedule.days.get(day=today + timedelta(days=2))
    assert day.skipped == f"Run {waiting.pk} with the same config is still queued."


def test_after_its_last_day_it_starts_nothing_and_the_page_offers_another(schedule, owner, today):
    assert len(start_scheduled(schedule.until)) == 1
    Run.objects.update(state="done")
    assert start_scheduled(schedule.until + timedelta(days=1)) == []
    Schedule.objects.update(until=today - timedelta(days=1))
    page = owner.get(schedule.run.get_absolute_url()).content.decode()
    assert "Repeats daily until" not in page and "Repeat daily" in page


def test_one_that_fails_does_not_stop_the_others(schedule, make_run, owner, today):
    other = Schedule.begin(make_run(state="done"), owner.user, today + timedelta(days=9))
    Run.objects.filter(pk=schedule.run_id).update(config={"nonsense": True})
    assert [run.repeats_id for run in start_scheduled(today + timedelta(days=1))] == [other.run_id]


def test_the_page_of_a_run_repeats_it_and_ends_that(owner, done, today):
    page = owner.get(done.get_absolute_url()).content.decode()
    assert f'value="{today + timedelta(days=30)}"' in page
    until = today + timedelta(days=7)
    page = owner.post(reverse("repeat_run", args=[done.pk]), {"until": until}, follow=True).content.decode()
    assert f"It repeats daily until {until}, from tomorrow on." in page and f"Repeats daily until {until}." in page
    schedule = Schedule.objects.get()
    page = owner.post(reverse("end_schedule", args=[schedule.pk]), follow=True).content.decode()
    assert "It no longer repeats." in page and "Repeat daily" in page
    assert start_scheduled(today + timedelta(days=1)) == []


@pytest.mark.parametrize("until", ["", "yesterday", "2020-01-01", "2999-01-01", "2026-02-31"])
def test_a_wrong_date_is_refused(owner, done, until):
    page = owner.post(reverse("repeat_run", args=[done.pk]), {"until": until}, follow=True).content.decode()
    assert "Until when? A date from tomorrow to" in page
    assert not Schedule.objects.exists()


def test_a_run_has_one_schedule(schedule, owner, done, today):
    new = Schedule.begin(done, owner.user, today + timedelta(days=3))
    assert list(Schedule.objects.filter(ended_at=None)) == [new]


def test_a_stranger_and_a_demo_run_repeat_nothing(stranger, owner, demo, done):
    address = reverse("repeat_run", args=[done.pk])
    assert "login" in stranger.post(address, {"until": "2999-01-01"}).headers["Location"]
    assert owner.post(reverse("repeat_run", args=[demo.pk])).status_code == 404
    assert owner.get(address).status_code == 405

"""Old raw samples, share links and rejected events go; figures, words and pages stay, and say what is gone."""

import json
import re
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.urls import reverse
from django.utils import timezone

from kernels.contract.export import read_export
from runs.models import Measurement, RejectedEvent, Result, Run, Share, StatusPage
from runs.pipeline import importer, keeping
from runs.tasks import prune

GONE = re.compile(r'<p class="quiet">\s*Its samples were deleted on .*?</p>', re.DOTALL)
CHARTS = re.compile(
    r'<div class="grid">\s*<section class="panel">\s*<h2>Distribution of samples.*?</section>\s*</div>', re.DOTALL
)
LINK = re.compile(r'<a href="[^"]*">csv of all samples</a> ·')


@pytest.fixture
def old(measured):
    """A run of this site's device that ended 100 days ago."""
    run = measured()
    Run.objects.filter(pk=run.pk).update(finished_at=timezone.now() - timedelta(days=100))
    run.refresh_from_db()
    return run


@pytest.fixture
def result(old):
    return Result.objects.filter(measurement__run=old, kernel__name="triton-flash").first()


def addresses(run, result):
    one = [run.pk, result.pk]
    workload = [result.kernel.operation, result.kernel.name, result.measurement.workload.key]
    shown = {name: reverse(name, args=[run.pk]) for name in ("run", "run_csv", "run_md", "run_jsonl")}
    shown |= {name: reverse(name) for name in ("runs", "results", "tiers", "kernels", "status")}
    shown |= {"kernel_workload": reverse("kernel_workload", args=workload), "result": reverse("result", args=one)}
    return shown | {"chart": reverse("chart_svg", args=[run.pk, "speedup"])}


def read(client, run, result):
    answers = {name: client.get(address) for name, address in addresses(run, result).items()}
    assert {answer.status_code for answer in answers.values()} == {200}
    return {name: answer.getvalue().decode() for name, answer in answers.items()}


def without(text, *patterns):
    for pattern in patterns:
        text = pattern.sub("", text)
    return " ".join(re.sub(r"[\w-]*csrf[^>]*>|nonce=\S+", "", text).split())


def samples_of(run):
    return Result.objects.filter(measurement__run=run).exclude(samples_ns=None).count()


def test_words_and_pages_of_a_pruned_run_stay(owner, old, result, settings):
    """All but the charts of samples, in whose place a sentence says since when they are gone."""
    settings.KEEP_SAMPLES_DAYS = 90
    before = read(owner, old, result)
    assert samples_of(old) and CHARTS.search(before["result"]) and LINK.search(before["result"])
    assert keeping.prune()["samples of runs"] == 1
    after = read(owner, old, result)
    assert not samples_of(old) and not Measurement.objects.filter(run=old).exclude(aa_samples_ns=None).exists()
    assert not CHARTS.search(after["result"]) and not LINK.search(after["result"])
    assert f"Its samples were deleted on {timezone.now():%Y-%m-%d}, to save space" in after["result"]
    for name in before:
        assert without(after[name], GONE) == without(before[name], CHARTS, LINK), name


def test_what_needs_samples_says_that_they_are_gone(owner, old, result, settings):
    settings.KEEP_SAMPLES_DAYS = 90
    keeping.prune()
    one = [old.pk, result.pk]
    answer = owner.get(reverse("result_csv", args=one))
    assert answer.status_code == 410
    assert answer.content.decode().startswith(f"The samples of this run were deleted on {timezone.now():%Y-%m-%d}")
    assert owner.get(reverse("result_chart_json", args=[*one, "samples"])).status_code == 404
    assert json.loads(owner.get(reverse("result_json", args=one)).content)["samples_deleted_at"]
    whole = owner.get(reverse("run_json", args=[old.pk])).content
    again = importer.load(read_export(whole), "again.json")
    assert again.samples_deleted_at, "who gets the run as a file is told, too"


def test_only_old_runs_of_this_site_lose_samples_and_only_once(old, measured, demo, settings):
    settings.KEEP_SAMPLES_DAYS = 90
    new = measured(1)
    running = measured(1)
    Run.objects.filter(pk=new.pk).update(finished_at=timezone.now() - timedelta(days=89))
    Run.objects.filter(pk=running.pk).update(finished_at=None, state="running")
    Run.objects.filter(pk=demo.pk).update(finished_at=timezone.now() - timedelta(days=4000))
    assert keeping.prune()["samples of runs"] == 1
    assert all(samples_of(run) for run in (new, running, demo))
    assert keeping.prune()["samples of runs"] == 0


def test_without_a_setting_everything_is_kept(old, settings):
    assert settings.KEEP_SAMPLES_DAYS is None and settings.KEEP_SHARES_DAYS is None
    Share.objects.create(run=old)
    Share.objects.update(created_at=timezone.now() - timedelta(days=4000))
    prune()
    assert samples_of(old) and Share.objects.exists()


def test_old_links_and_rejected_events_go(old, stranger, settings, capsys):
    settings.KEEP_SHARES_DAYS = 30
    share = Share.objects.create(run=old)
    Share.objects.create(run=None)
    Share.objects.filter(pk=share.pk).update(created_at=timezone.now() - timedelta(days=31))
    for days in (89, 91):
        RejectedEvent.objects.create(reason=f"{days} days ago", body="")
        RejectedEvent.objects.filter(reason=f"{days} days ago").update(at=timezone.now() - timedelta(days=days))
    call_command("prune")
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if not line.endswith(": 0 deleted")] == [
        "share links: 1 deleted",
        "rejected events: 1 deleted",
    ]
    assert stranger.get(share.get_absolute_url()).status_code == 302
    assert [one.run for one in Share.objects.all()] == [None]
    assert [one.reason for one in RejectedEvent.objects.all()] == ["89 days ago"]


def test_the_link_of_a_status_page_stays_as_long_as_it_opens_something(db, settings):
    settings.KEEP_SHARES_DAYS = 30
    page, long_ago = StatusPage.objects.create(title="A wall"), timezone.now() - timedelta(days=400)
    live = Share.objects.create(page=page)
    later = Share.objects.create(
        page=StatusPage.objects.create(title="B"), expires_at=timezone.now() + timedelta(days=1)
    )
    Share.objects.create(page=page, ended_at=long_ago)
    Share.objects.create(page=StatusPage.objects.create(title="C"), expires_at=long_ago)
    Share.objects.update(created_at=long_ago)
    prune()
    assert set(Share.objects.all()) == {live, later}

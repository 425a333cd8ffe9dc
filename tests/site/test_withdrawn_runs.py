"""A withdrawn run: readable, struck through, and in no best, mean, history or leaderboard. It can be taken back."""

import json

import pytest
from django.urls import reverse

from kernels.analysis.peaks import peak_of
from runs.models import Change, Newest, Run
from runs.pipeline import withdrawal
from runs.queries import leaders, point_rows
from runs.queries.reached import reached_here


@pytest.fixture
def two(measured, owner):
    """Two runs of one workload, of the owner; triton-flash is faster in the second."""
    runs = measured(count=1), measured(count=1, edit={"triton-flash": 1.5})
    Newest.objects.all().delete()  # they were stored as demo runs
    Run.objects.update(user=owner.user)
    for run in runs:
        Newest.objects.note([run.measurements.select_related("run").get()])
    return runs


def withdrawn(client, run, why="The clock was locked."):
    return client.post(reverse("withdraw_run", args=[run.pk]), {"why": why}, follow=True).content.decode()


def leader():
    (place,) = leaders.board().places
    return place.shown.point


def test_the_leaderboard_falls_back_to_the_run_before(owner, two):
    before, last = two
    assert leader().run == last.pk
    withdrawn(owner, last)
    assert leader().run == before.pk
    assert not Newest.objects.filter(result__measurement__run=last).exists()
    owner.post(reverse("restore_run", args=[last.pk]))
    assert leader().run == last.pk


def test_taking_an_old_run_back_hides_no_newer_one(owner, two):
    before, last = two
    withdrawn(owner, before)
    assert leader().run == last.pk
    owner.post(reverse("restore_run", args=[before.pk]))
    assert leader().run == last.pk


def test_no_history_no_tier_and_no_highest_rate_has_it(owner, two):
    _, last = two
    withdrawn(owner, last)
    runs = {point.run for point in point_rows.points(point_rows.tried())}
    assert runs == {two[0].pk}
    for found in reached_here(peak_of("NVIDIA H200"), "float16"):
        assert all(f"run {last.pk} " not in one.source for one in found)
    assert f"/runs/{last.pk}/" not in owner.get(reverse("tiers")).content.decode()


def test_its_changes_go_and_the_watch_looks_again(owner, two):
    run = two[1]
    Run.objects.filter(pk=run.pk).update(looked_at="2026-11-01T00:00:00Z")
    result = run.measurements.get().results.get(kernel__name="triton-flash")
    values = {
        "t": 9.0,
        "ratio": 1.5,
        "low": 1.4,
        "high": 1.6,
        "runs_before": 12,
        "runs_after": 12,
        "facts": [],
        "rule": {},
    }
    more = {
        "level_before_ms": 1.0,
        "level_after_ms": 1.5,
        "verdict": "regression",
        "at": run.created_at,
        "mode": "graph",
    }
    Change.objects.create(
        kernel=result.kernel,
        workload=run.measurements.get().workload,
        gpu=run.gpu,
        run=run,
        before=two[0],
        **values,
        **more,
    )
    withdrawn(owner, run)
    run.refresh_from_db()
    assert not Change.objects.exists() and run.looked_at is None


def test_it_is_struck_through_where_it_is_quoted(owner, two):
    _, last = two
    page = withdrawn(owner, last)
    assert "The clock was locked." in page and "Its figures do not count." in page
    assert '<h1 id="headline" class="struck">' in page
    assert '<tr class="withdrawn">' in owner.get(reverse("runs")).content.decode()
    assert '<tr class="struck">' in owner.get(reverse("results")).content.decode()
    result = last.measurements.get().results.get(kernel__name="triton-flash")
    page = owner.get(reverse("result", args=[last.pk, result.pk])).content.decode()
    assert '<h1 class="struck">' in page and "Its run is withdrawn: The clock was locked." in page
    page = owner.get(reverse("compare", args=[two[0].pk, last.pk])).content.decode()
    assert f"run {last.pk} is withdrawn: The clock was locked." in page
    lines = owner.get(reverse("results_jsonl")).getvalue().decode().splitlines()
    assert {row["run"] for row in map(json.loads, lines) if row["withdrawn"]} == {last.pk}


def test_a_reason_is_needed_and_an_active_run_is_cancelled_first(owner, two, make_run):
    assert "Enter a reason." in withdrawn(owner, two[0], "  ")
    assert "at most 300 fit: xxx" in withdrawn(owner, two[0], "x" * 301)
    assert "Cancel it first" in withdrawn(owner, make_run())
    assert not Run.objects.exclude(withdrawn_at=None).exists()
    withdrawn(owner, two[0])
    assert "withdrawn already" in withdrawn(owner, two[0])
    assert Run.objects.get(pk=two[0].pk).withdrawn_by == owner.user


def test_a_visitor_by_link_withdraws_nothing(owner, stranger, two):
    owner.post(reverse("share_run", args=[two[0].pk]))
    two[0].refresh_from_db()
    page = stranger.get(two[0].shares.get().get_absolute_url()).content.decode()
    assert "Withdraw" not in page
    assert stranger.post(reverse("withdraw_run", args=[two[0].pk]), {"why": "x"}).status_code == 302
    assert not Run.objects.exclude(withdrawn_at=None).exists()


def test_withdrawing_twice_at_once_counts_once(two):
    assert withdrawal.withdraw(two[0], "a") and not withdrawal.withdraw(two[0], "b")
    assert withdrawal.restore(two[0]) and not withdrawal.restore(two[0])


def test_the_tiers_of_a_device_whose_runs_are_withdrawn_say_so(owner, two):
    for run in two:
        withdrawn(owner, run)
    page = owner.get(reverse("tiers"), {"device": two[0].gpu.name})
    assert page.status_code == 200
    assert "No result counts here: its runs are withdrawn, or have no time" in page.content.decode()
    for unknown in ("no such card", "a\x00b"):
        assert owner.get(reverse("tiers"), {"device": unknown}).status_code == 404, "PostgreSQL has no texts with NUL"

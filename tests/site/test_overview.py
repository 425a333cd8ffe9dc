"""The first page: what changed, which records fell, how far the targets are, what the devices do, what ran last."""

import json
import re
from datetime import timedelta

import pytest
from cast import thorough
from daily import fill, look_at_all, step
from django.db.models import F
from django.urls import reverse
from django.utils import timezone

from runs.models import Change, Gpu, Pin, Result, Run, Target
from runs.queries import leaders, week
from runs.views.overview import RECENT

PAGE = reverse("overview")


def page_of(client):
    return client.get(PAGE).content.decode()


def strong(client):
    return client.get(PAGE).context["story"].strong


def told(client):
    return " ".join(client.get(PAGE).context["story"].rest)


def ago(days):
    return timezone.now() - timedelta(days=days)


# --- a site on which nothing has run ----------------------------------------------------------------------------------


def test_without_devices_it_says_how_one_gets_here(owner):
    page = page_of(owner)
    assert "No device has reported yet" in page and "make agent" in page


def test_a_new_site_tells_the_sample_and_has_one_button(owner, demo, gpu):
    page = page_of(owner)
    assert "<h1>Nothing has run here yet</h1>" in page and "This is a sample run" in page
    assert "<b>Faster, unconfirmed.</b>" in page and "certain." not in page
    assert "▲ 1.48x" in page and "▼ 0.82x" in page, "its own figures, also where it is slower"
    main = page.split('<main id="main">')[1]
    assert main.count('class="btn"') == 1 and "Start the first run" in main
    assert f'data-chart="/runs/{demo.pk}/charts/speedup.json"' in page


def test_after_the_first_run_it_is_the_page_of_the_site(owner, demo, make_run):
    make_run()
    page = page_of(owner)
    assert "No change was found this week" in page and "Nothing has run here yet" not in page


def test_a_run_that_ended_before_many_demo_runs_counts(owner, demo, make_run):
    make_run(state="done")
    row = {field.name: getattr(demo, field.name) for field in Run._meta.concrete_fields if field.name != "id"}
    Run.objects.bulk_create(Run(**row) for _ in range(RECENT))
    assert "Nothing has run here yet" not in page_of(owner)


def test_a_cancelled_run_with_results_is_called_cancelled(owner, measured):
    run = measured()
    listed = page_of(owner).split('id="runs"')[1]
    assert "cancelled" not in listed
    Run.objects.filter(pk=run.pk).update(state="cancelled")
    listed = page_of(owner).split('id="runs"')[1]
    assert "triton-flash" in listed and "cancelled" in listed


def test_while_nothing_runs_the_last_run_keeps_its_chart(owner, measured, make_run):
    run = measured()
    page = page_of(owner)
    running = page.split('id="running"')[1].split("</section>")[0]
    assert "Nothing runs" in running and "Last: " in running and f'id="last-{run.pk}"' in running
    assert f"/runs/{run.pk}/charts/speedup-narrow.json?done={run.done}" in running
    chart = reverse("chart_json", args=[run.pk, "speedup-narrow"])
    assert owner.get(chart).status_code == 200
    Result.objects.filter(measurement__run=run).update(status="failed")
    running = page_of(owner).split('id="running"')[1].split("</section>")[0]
    assert f'id="last-{run.pk}"' in running and "data-chart" not in running, "nothing was compared: there is no chart"
    live = make_run()
    Run.objects.filter(pk=live.pk).update(state="running", sent_at=timezone.now(), started_at=timezone.now())
    running = page_of(owner).split('id="running"')[1].split("</section>")[0]
    assert "Running now" in running and f'id="last-{run.pk}"' not in running


# --- what changed -----------------------------------------------------------------------------------------------------


def test_regressions_come_first_with_their_cause(owner, gpu):
    fill(gpu, step(20, 10, 0.93, source="b"), "triton-flash", ago(30))
    fill(gpu, step(20, 10, 1.04, environment={"torch": "2.11.0"}), "compiled", ago(30), seed=2)
    look_at_all()
    assert strong(owner) == "Found this week: compiled got slower and triton-flash got faster"
    page = page_of(owner)
    assert page.index(">compiled<") < page.index(">triton-flash<")
    at = timezone.localtime(Change.objects.get(kernel__name="compiled").at)
    assert f"It changed on {at.day} {at:%B}, when torch went from 2.10.0 to 2.11.0." in page
    assert re.search(r"4\.\d% slower</b> <small class=\"nb\">3\.\d to 4\.\d%", page)


def test_a_change_that_was_found_earlier_is_not_of_this_week(owner, gpu):
    fill(gpu, step(20, 10, 1.04), "compiled", ago(60))
    look_at_all()
    assert strong(owner) == "Found this week: compiled got slower", "found now: that is news"
    Change.objects.update(found_at=ago(8))
    assert strong(owner) == "No change was found this week"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_trend_of_a_change(owner, gpu, theme):
    fill(gpu, step(40, 10, 1.04), "compiled", ago(50))
    look_at_all()
    change = Change.objects.get()
    spec = owner.get(reverse("trend_json", args=[change.pk]), {"theme": theme}).json()
    rows = [row for data in spec["datasets"].values() for row in data if set(row) == {"x", "y"}]
    assert len(rows) == 30 + 10, "runs before and after, no more"
    assert all(0 <= row["x"] <= 330 and 0 <= row["y"] <= 56 for row in rows)
    levels = {
        row["y"] for data in spec["datasets"].values() for row in data if set(row) == {"x", "y", "to"} and row["y"]
    }
    assert len(levels) == 2
    texts = [row["text"] for data in spec["datasets"].values() for row in data if "text" in row]
    at = timezone.localtime(change.at)
    assert f"{at.day} {at:%b}" in texts
    assert owner.get(reverse("trend_svg", args=[change.pk])).content.startswith(b"<svg")
    assert owner.get(reverse("trend_json", args=[change.pk]), {"theme": "odd"}).status_code == 404


def test_the_best_workload_of_the_sample_is_the_one_with_the_highest_low_end(owner, demo, gpu):
    mine = Result.objects.filter(measurement__run=demo, kernel__name="triton-flash").order_by("pk")
    mine.filter(pk=mine[0].pk).update(speedup=3.0, speedup_low=1.2, speedup_high=9.0)
    mine.filter(pk=mine[1].pk).update(speedup=2.0, speedup_low=1.9, speedup_high=2.1)
    best = owner.get(reverse("overview")).context["best"]
    assert (best.speedup, best.speedup_low) == (2.0, 1.9)


# --- records ----------------------------------------------------------------------------------------------------------


def test_a_first_record_did_not_fall_and_stands_behind_those_that_beat_another(owner, measured):
    thorough(measured(count=1, edit={"triton-flash": 0.9}), ago(40))
    thorough(measured(count=1), ago(3))
    thorough(measured(count=2), ago(1))
    assert strong(owner) == "No change was found this week. One record was broken. One workload has its first record"
    page = page_of(owner)
    assert page.index(", was 1.34x") < page.index(", the first")


def test_a_record_says_what_it_was(owner, measured):
    thorough(measured(count=1, edit={"triton-flash": 0.9}), ago(40))
    thorough(measured(count=1, edit={"triton-flash": 0.8}), ago(30))
    run = thorough(measured(count=1), ago(1))
    assert strong(owner) == "No change was found this week. One record was broken"
    page = page_of(owner)
    assert re.search(r"<b>1.48x</b> <small>±0\.[3-6]%, was 1.34x ±0\.[3-6]%</small>", page)
    key = run.measurements.get().workload.key
    spec = owner.get(reverse("record_steps_json", args=[key]), {"gpu": "NVIDIA H200"}).json()
    assert "1.34x" in json.dumps(spec["datasets"])
    assert owner.get(reverse("record_steps_json", args=[key]), {"gpu": "NVIDIA L4"}).status_code == 404


def test_a_record_of_another_driver_is_not_what_it_was(owner, measured):
    thorough(measured(count=1, edit={"triton-flash": 0.9}, driver="470.1"), ago(40))
    thorough(measured(count=1), ago(1))
    page = page_of(owner)
    assert ", was 1.34x" not in page
    assert re.search(r"Earlier record: 1\.34x ±0\.[3-6]%\. Its driver differed\.", page)


@pytest.mark.parametrize("why", ["earlier", "contended", "one process", "lower", "demo", "withdrawn"])
def test_what_is_no_record_of_this_week(owner, measured, why):
    thorough(measured(count=1), ago(40))
    factor = 0.9 if why == "lower" else 1.2
    run = thorough(measured(count=1, edit={"triton-flash": factor}), ago(8 if why == "earlier" else 1))
    if why == "contended":
        Run.objects.filter(pk=run.pk).update(contended=True)
    elif why == "withdrawn":
        Run.objects.filter(pk=run.pk).update(withdrawn_at=timezone.now())
    elif why == "demo":
        Run.objects.filter(pk=run.pk).update(demo="from elsewhere")
    elif why == "one process":
        Result.objects.filter(measurement__run=run).update(confirmed=False)
    assert "record" not in strong(owner)


def times(run, factor, *kernels):
    """The same sources, so many times as fast; of these kernels, or of all."""
    rows = Result.objects.filter(measurement__run=run, speedup__isnull=False)
    rows = rows.filter(kernel__name__in=kernels) if kernels else rows
    rows.update(**{name: factor * F(name) for name in ("speedup", "speedup_low", "speedup_high")})
    return run


def test_the_two_rules_of_a_record_agree(measured):
    """The page reads what rises, the leaderboard all results of a place."""
    for number, factor in enumerate((0.9, 0.8, 1.0, 0.95, 1.002, 1.1)):
        thorough(measured(count=2, edit={"triton-flash": factor}), ago(50 - number))
    for place in leaders.board().places:
        mine = [one.point.pk for one in week.steps(place.workload, place.gpu)]
        assert mine == [one.point.pk for one in leaders.steps(place)] and len(mine) == 3


def test_a_first_run_breaks_no_record_and_sets_one_of_each_workload(owner, measured):
    times(thorough(measured(count=2), ago(1)), 2.0, "sdpa-flash", "triton-flash")
    assert strong(owner) == "No change was found this week. Two workloads have their first record"
    assert all(len(leaders.steps(place)) == 1 for place in leaders.board().places)


def test_a_run_breaks_a_record_once(owner, measured):
    thorough(measured(count=1), ago(40))
    factors = {"triton-flash": 1.1, "sdpa-flash": 3.0}
    run = thorough(measured(count=1, edit=factors), ago(1))
    assert strong(owner) == "No change was found this week. One record was broken"
    (place,) = leaders.board().places
    first, last = leaders.steps(place)
    assert (first.point.kernel, last.point.run, last.point.kernel) == ("triton-flash", run.pk, "sdpa-flash")


def test_a_tie_and_the_same_source_again_break_no_record(owner, measured):
    first = thorough(measured(count=1), ago(40))
    thorough(measured(count=1, edit={"triton-flash": 1.004}), ago(3))
    again = times(thorough(measured(count=1), ago(2)), 1.2)
    assert "record" not in strong(owner)
    thorough(measured(count=1, edit={"triton-flash": 1.15}), ago(1))
    assert "record" not in strong(owner), "the holder was faster when it was measured again"
    (place,) = leaders.board().places
    mine = [one.point.pk for one in week.steps(place.workload, place.gpu)]
    assert mine == [one.point.pk for one in leaders.steps(place)] and len(mine) == 1
    assert leaders.steps(place)[0].point.run == first.pk < again.pk


def test_a_holder_that_the_run_measures_too_is_compared_as_it_is_now(measured):
    """A new driver may make every kernel faster: that breaks no record."""
    thorough(measured(count=1), ago(40))
    times(thorough(measured(count=1, edit={"sdpa-flash": 1.0001}), ago(1)), 1.2, "triton-flash")
    run = Run.objects.latest("pk")
    holder = Result.objects.get(measurement__run=run, kernel__name="triton-flash")
    figures = {"speedup": holder.speedup, "speedup_low": holder.speedup_low, "speedup_high": holder.speedup_high}
    close = {name: 1.0002 * figure for name, figure in figures.items()}
    Result.objects.filter(measurement__run=run, kernel__name="sdpa-flash").update(**close)
    (place,) = leaders.board().places
    assert place.record.point.kernel == "sdpa-flash", "it leads, tied"
    assert len(leaders.steps(place)) == len(week.steps(place.workload, place.gpu)) == 1


# --- targets ----------------------------------------------------------------------------------------------------------


def aim(run, factor, user=None, **more):
    one = run.measurements.first()
    return Target.objects.create(
        workload=one.workload, device="NVIDIA H200", mode=one.mode, factor=factor, owner=user, **more
    )


def test_a_target_says_what_is_missing_and_whose_it_is(owner, measured):
    run = thorough(measured(count=1))
    aim(run, 2.0, owner.user, due=timezone.localdate() + timedelta(days=3))
    page = page_of(owner)
    assert told(owner).startswith("The target is not reached.")
    assert '<b class="ink">1.72 µs</b> to go' in page, "sdpa at 9.92 us / 1.485 = 6.68, / 2 = 4.96"
    assert "triton-flash at 6.68 µs · olga, until" in page and "target 2x, 4.96 µs" in page
    Target.objects.update(factor=1.4)
    assert told(owner).startswith("The target is reached.")


def test_of_two_targets_none_is_reached(owner, measured):
    for one in thorough(measured(count=2)).measurements.all():
        Target.objects.create(workload=one.workload, device="NVIDIA H200", mode=one.mode, factor=2.0)
    assert told(owner).startswith("None of two targets is reached.")


def test_a_target_that_an_unconfirmed_result_reaches_is_called_so(owner, measured):
    aim(measured(count=1), 1.4)
    assert told(owner).startswith("The target is reached, unconfirmed.")


def test_a_target_beyond_the_speed_of_light_says_so(owner, measured):
    aim(thorough(measured(count=1)), 40.0)
    assert "beyond the speed of light" in page_of(owner)


def test_a_bar_that_rests_on_one_process_is_hatched(owner, measured):
    run = measured(count=1)
    aim(run, 2.0)
    assert '<i class="hatched"' in page_of(owner) and "unconfirmed" in page_of(owner)
    thorough(run)
    assert '<i class="hatched"' not in page_of(owner)


def test_a_pinned_baseline_that_drifts_is_flagged_and_noise_is_not(owner, measured):
    first = thorough(measured(count=1))
    base = Result.objects.get(measurement__run=first, kernel__name="sdpa")
    one = first.measurements.get()
    target = aim(first, 1.4)
    figures = {name: getattr(base, name) for name in ("p50_ms", "p50_low_ms", "p50_high_ms")}
    Pin(workload=one.workload, device="NVIDIA H200", mode=one.mode, kernel="sdpa", run=first, **figures).keep()
    target.refresh_from_db()
    assert target.pin is not None
    later = thorough(measured(count=1))
    now = Result.objects.filter(measurement__run=later, kernel__name="sdpa")
    now.update(**{name: 1.009 * value for name, value in figures.items()})
    assert "drift" not in page_of(owner), "0.9% is within the margin"
    now.update(**{name: 1.05 * value for name, value in figures.items()})
    assert "One pinned baseline has drifted." in told(owner)
    assert "sdpa since it was pinned: +5.0% time" in page_of(owner)
    later.measurements.update(margin=0.06)
    assert "drift" not in page_of(owner), "noise is no drift"


# --- devices and runs -------------------------------------------------------------------------------------------------


def test_the_page_says_how_many_devices_are_up(owner, gpu, make_gpu, make_run):
    make_run(state="done")
    assert told(owner) == "1 device, idle."
    other = make_gpu("GPU-2", host="gpu-2")
    assert told(owner) == "Two of two devices are up."
    other.seen_at = None
    other.save()
    make_run(title="waiting")
    assert told(owner) == "One of two devices is up; 1 run waiting."
    Gpu.objects.update(seen_at=None)
    assert told(owner) == "None of two devices is up; 1 run waiting."


def test_a_device_says_what_it_does(owner, make_gpu, make_run, silent):
    busy = make_gpu("GPU-2", host="gpu-2")
    run = make_run(gpu=busy, state="running", sent_at=timezone.now(), total=8, done=3)
    make_run(gpu=busy, title="waiting")
    page = page_of(owner)
    there = page.split(f'id="device-{busy.pk}"')[1].split("</figure>")[0]
    assert f'href="/runs/{run.pk}/">run {run.pk}</a>' in there and "1 in the queue" in there
    assert "3 of 8 workloads" in page.split('id="running"')[1]
    quiet = page.split(f'id="device-{silent.pk}"')[1].split("</figure>")[0]
    assert quiet.count("silent") == 1
    assert f"{silent.seen_at:%Y-%m-%d %H:%M} UTC</time>" in quiet


def test_a_device_says_how_warm_it_was(owner, measured, gpu):
    run = measured(count=1)
    run.measurements.update(telemetry={"temperature_c": {"median": 50.6}, "power_w": {"median": 412.4}})
    assert "51 °C, 412 W" in page_of(owner)


def test_the_day_of_a_device():
    begin = week.midnight(timezone.now())
    hour = timedelta(hours=1)
    made = week.day(begin, begin + 6 * hour, [(begin, begin + hour), (begin + 1.25 * hour, begin + 1.75 * hour)])
    assert made.slots[:5] == [1.0, 1.0, 0.5, 0.5, 0.0]
    assert made.share == pytest.approx(0.25) and made.passed == 13


def test_a_run_counts_for_today_only_since_midnight(owner, gpu, make_run):
    now = week.midnight(timezone.now()) + timedelta(hours=2)
    begun = now - timedelta(hours=3)
    make_run(state="done", started_at=begun, finished_at=begun + timedelta(hours=1.5))
    make_run(state="running", sent_at=begun, started_at=now - timedelta(minutes=30))
    make_run(state="done", started_at=begun - timedelta(days=3), finished_at=begun - timedelta(days=2.9))
    assert week.days(now)[gpu.pk].share == pytest.approx(0.5)
    spec = owner.get(reverse("gpu_day_json", args=[gpu.pk])).json()
    assert spec["width"] == 330
    assert owner.get(reverse("gpu_day_svg", args=[gpu.pk])).content.startswith(b"<svg")


def test_polling_gets_the_part_that_changes(owner, gpu, make_run):
    make_run(state="running", sent_at=timezone.now())
    part = owner.get(PAGE, headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in part and "Changes found" not in part
    replaced = re.search(r'hx-swap="none" hx-select-oob="([^"]+)"', page_of(owner)).group(1).split(",")
    assert replaced == ["#running", "#runs", f"#device-{gpu.pk}"]
    for text in (part, page_of(owner)):
        for name in replaced:
            assert text.count(f'id="{name[1:]}"') == 1, name


def test_what_a_poll_replaces_has_ids_so_that_focus_stays(owner, make_gpu, make_run):
    """htmx focuses again what has an id."""
    make_run(gpu=make_gpu("GPU-2", host="gpu-2"), state="running", sent_at=timezone.now())
    part = owner.get(PAGE, headers={"HX-Request": "true"}).content.decode()
    swapped = part.split('<ul class="latest"')[1] + part.split('id="running"')[1].split("</section>")[0]
    for link in re.findall(r"<(?:a|button) [^>]*>", swapped):
        assert " id=" in link or 'href=""' in link, link


@pytest.mark.parametrize("gpus, runs", [(1, 1), (8, 40)])
def test_no_more_than_twelve_queries(owner, measured, make_gpu, make_run, gpus, runs, django_assert_max_num_queries):
    made = [make_gpu(f"GPU-{n}", host=f"gpu-{n}") for n in range(100, 100 + gpus)]
    for number in range(runs):
        make_run(gpu=made[number % gpus], title=f"run {number}")
    for device in made:
        make_run(gpu=device, state="running", sent_at=timezone.now())
        fill(device, step(9, 9, 1.05), "compiled", ago(18))
    look_at_all()
    aim(thorough(measured(count=2), ago(2)), 1.4, owner.user)
    Run.objects.update(done=1)
    with django_assert_max_num_queries(12):
        answer = owner.get(PAGE)
    assert "Two workloads have their first record" in answer.context["story"].strong
    assert " got slower" in answer.context["story"].strong
    assert len(answer.context["now"].latest) == 8
    with django_assert_max_num_queries(8):
        owner.get(PAGE, headers={"HX-Request": "true"})

"""The page of a run: while it waits, while it is measured, when it is done, when it went wrong; and cancelling."""

import json
import re
from datetime import timedelta

import pytest
from cast import NO_SPEEDUP, load, shortened, spec
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from shown import all_figures

from kernels.report import comparison, tables
from kernels.report.summary import summary
from runs.charts.run_charts import drawn, rows_of
from runs.models import Measurement, Result, Run, Workload
from runs.queries import live as live_queries
from runs.queries import measurements, point_rows, tallies
from runs.queries.live import remaining
from runs.queries.measurements import export_of
from runs.queries.outcomes import with_outcomes
from runs.templatetags import figures, parts
from runs.templatetags.figures import DASH
from runs.views import run as run_view
from runs.views.run import reproduce


def page_of(client, run):
    answer = client.get(reverse("run", args=[run.pk]))
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.fixture
def live(monkeypatch):
    """What the agent shows, as if a broker had it."""
    shown = {}
    monkeypatch.setattr(live_queries.BrokerKeys, "shown", lambda keys, run: dict(shown))
    return shown


# --- a run with results -----------------------------------------------------------------------------------------------


def test_a_done_run_shows_its_verdict_its_table_and_where_it_was_measured(owner, demo):
    page = page_of(owner, demo)
    said = summary(tables.rows(measurements.of_run(demo)), "attention")
    assert f'<h1 id="headline">{said.strong}</h1>' in page
    table = page.split('<table class="cells">')[1].split("</table>")[0]
    assert table.count('scope="row"') == 8
    assert page.index('<table class="cells">') < page.index("data-chart") < page.index('<table class="results">')
    assert all_figures(page).split("</table>")[0].count('<tr class="group">') == 8
    assert all_figures(page).count(f"/runs/{demo.pk}/results/") == 64
    assert "attention fp16 B=16 H=96 S=4096 D=128" in page
    for fact in (
        "NVIDIA H200",
        "demo",
        "driver <b>",
        "torch <b>",
        "protocol <b>paired</b>, <b>5 to 110</b> rounds",
        "A/A <b>0.994 to 1.003</b>",
    ):
        assert fact in page, fact
    assert 'hx-trigger="every 2s"' not in page, "nothing changes any more"
    assert "chart" in page


def test_the_page_leads_to_the_throughput_of_every_kernel(owner, demo):
    page = owner.get(demo.get_absolute_url()).content.decode()
    address = f"{reverse('compare_many')}?runs={demo.pk}"
    assert f'href="{address}#charts-title"' in page
    charts = owner.get(address).content.decode()
    assert 'id="charts-title"' in charts
    png = reverse("compare_chart_png", args=("throughput",))
    assert f"{png}?runs={demo.pk}&amp;operation=attention" in charts
    assert owner.get(png, {"runs": demo.pk, "operation": "attention"}).content.startswith(b"\x89PNG")


def test_every_result_stands_in_the_table_with_its_word_and_figures(owner, demo):
    page = page_of(owner, demo)
    for result in Result.objects.filter(measurement__run=demo).select_related("kernel"):
        row = all_figures(page).split(f"/results/{result.pk}/", 1)[1].split("</tr>", 1)[0]
        _, _, arm = measurements.of_result(demo.pk, result.pk)
        assert arm.verdict.lower() in row
        if result.speedup is not None:
            assert f"{result.speedup:.3f}x" in row
            assert (f"<b>{result.speedup:.3f}x</b>" in row) == (arm.verdict in ("FASTER", "SLOWER", "SAME"))


def test_a_ratio_without_a_reference_is_marked_and_counts_nowhere(owner, exported):
    data = json.loads(json.dumps(exported))
    for measured in data["measurements"]:
        for result in measured["results"]:
            if result["kernel"] != measured["baseline"]:
                result["correctness"] = {"correct": None}
    run = load(data, "unknown.json")
    page = page_of(owner, run)
    results = all_figures(page).split("</table>")[0]
    with_ratio = Result.objects.filter(measurement__run=run, speedup__isnull=False)
    assert results.count("correctness unknown") == with_ratio.count() > 8
    assert "Measured; the correctness is unknown, because there is no reference" in page
    assert not {"FASTER", "SLOWER"} & {row.verdict for row in tables.rows(measurements.of_run(run))}
    ((_, outcome),) = with_outcomes([run])
    assert (outcome.first, outcome.row()["kernel"]) == (None, "")
    assert {row.kernel for row in drawn(rows_of(run))} == {"sdpa"}
    detail = owner.get(f"/runs/{run.pk}/results/{with_ratio[0].pk}/").content.decode()
    assert "correctness unknown" in detail
    assert comparison.rows(export_of(run), export_of(run))
    moved = {row.verdict for row in comparison.rows(export_of(run), export_of(run)) if row.speedup_after}
    assert moved == {comparison.NOT_COMPARED}


def test_a_ratio_of_other_work_is_marked_and_counts_nowhere(owner, exported):
    data = json.loads(json.dumps(exported))
    for measured in data["measurements"]:
        for result in measured["results"]:
            if result["kernel"] != measured["baseline"]:
                result |= {"correctness": {"correct": None}, "other_work": "reads nothing", "tflops": None}
    run = load(data, "other.json")
    page = page_of(owner, run)
    results = all_figures(page).split("</table>")[0]
    with_ratio = Result.objects.filter(measurement__run=run, speedup__isnull=False)
    assert results.count("not the same work") == with_ratio.count() > 8
    assert re.search(r"±[\d.]+% not the same work", page), "the interval stands beside the ratio"
    assert "correctness unknown" not in page and "Measured; no comparison" in page
    ((_, outcome),) = with_outcomes([run])
    assert (outcome.first, outcome.row()["kernel"]) == (None, "")
    assert {row.kernel for row in drawn(rows_of(run))} == {"sdpa"}
    detail = owner.get(f"/runs/{run.pk}/results/{with_ratio[0].pk}/").content.decode()
    assert "It does other work: it reads nothing." in detail
    moved = [row for row in comparison.rows(export_of(run), export_of(run)) if row.speedup_after]
    assert {(row.verdict, row.why) for row in moved} == {(comparison.NOT_COMPARED, "not the same work")}
    points = point_rows.points(point_rows.tried().filter(measurement__run=run))
    assert {point.verdict for point in points if point.speedup} == {"not the same work"}
    assert not any(point.ratio for point in points), "a tier would be reached by it"
    assert set(tallies.checks([with_ratio[0].pk]).values()) == {"not the same work"}
    csv = owner.get(f"/runs/{run.pk}.csv").content.decode()
    assert "not the same work: it reads nothing" in csv


def test_a_run_that_ended_before_its_cross_check_has_no_verdict_in_colour(owner, exported):
    data = shortened(exported, 1)
    run = load(data, "cut.json")

    def tone():
        (part,) = owner.get(run.get_absolute_url()).context["sections"]
        return part.headline.tone

    assert tone() == "faster"
    assert [one.style for _, one in with_outcomes([run])] == ["faster"]
    Run.objects.filter(pk=run.pk).update(state=Run.State.CANCELLED)
    run.refresh_from_db()
    assert tone() == "same" and "Not cross-checked: triton-flash is faster" in page_of(owner, run)
    ((_, outcome),) = with_outcomes([run])
    assert (outcome.style, outcome.mark) == ("same", "")


@pytest.mark.parametrize(
    "factors, said",
    [
        ((1.2, 0.8), "Not cross-checked: triton-flash is faster than sdpa on 1, slower on 1 of 2 workloads"),
        ((1.0, 1.0), "Not cross-checked: triton-flash is as fast as sdpa"),
    ],
)
def test_every_verdict_of_a_run_that_was_cancelled_says_that_it_is_not_cross_checked(owner, exported, factors, said):
    run = load(shortened(exported, 2), "cut.json")
    Run.objects.filter(pk=run.pk).update(state=Run.State.CANCELLED)
    results = Result.objects.filter(measurement__run=run)
    results.exclude(kernel__name__in=("sdpa", "triton-flash")).delete()
    for result, factor in zip(results.filter(kernel__name="triton-flash").order_by("pk"), factors, strict=True):
        figures = {"speedup": factor, "speedup_low": factor / 1.002, "speedup_high": factor * 1.002}
        Result.objects.filter(pk=result.pk).update(**figures)
    assert owner.get(run.get_absolute_url()).context["sections"][0].headline.strong == said


def test_the_table_names_the_kernel_that_is_nearest_to_the_speed_of_light(owner, exported):
    run = load(shortened(exported, 1), "one.json")
    shares = {result.kernel.name: result.limit_share or 0 for result in Result.objects.filter(measurement__run=run)}
    best = max(shares, key=lambda name: shares[name])
    (line,) = owner.get(run.get_absolute_url()).context["sections"][0].matrix.lines
    assert (line.light.kernel, line.light.share) == (best, shares[best])
    assert f"{figures.percent(shares[best])}<small>{best}</small>" in page_of(owner, run)


def test_kernels_that_are_equally_near_to_the_speed_of_light_are_not_told_apart(owner, exported):
    run = load(shortened(exported, 1), "one.json")
    every = Result.objects.filter(measurement__run=run, limit_share__isnull=False)
    best = every.order_by("-limit_share").first()
    other = every.exclude(pk=best.pk).order_by("-limit_share").first()
    every.filter(pk=other.pk).update(p50_low_ms=best.p50_ms)
    (line,) = owner.get(run.get_absolute_url()).context["sections"][0].matrix.lines
    assert line.light.kernel == f"{best.kernel.name} or {other.kernel.name}"
    every.exclude(pk=best.pk).update(p50_low_ms=best.p50_ms)
    (line,) = owner.get(run.get_absolute_url()).context["sections"][0].matrix.lines
    assert line.light.kernel == f"{every.count()} kernels"


def test_a_wide_interval_is_written_as_its_ends(owner, exported):
    """±357% of 0.63x: no speedup is 357% lower."""
    run = load(shortened(exported, 1), "one.json")
    wide = {"speedup": 0.63, "speedup_low": 0.14, "speedup_high": 2.7}
    Result.objects.filter(measurement__run=run, kernel__name="triton-flash").update(**wide)
    page = page_of(owner, run)
    assert "0.63x<small>0.14 to 2.70" in page and "±3" not in page


def test_a_workload_of_two_lines_says_which_was_launched_call_by_call(owner, exported):
    data = json.loads(json.dumps(exported))
    data["measurements"].insert(1, data["measurements"][0] | {"group": "eager-launch", "mode": "cold"})
    page = page_of(owner, load(data, "groups.json"))
    assert page.count("<small>launched call by call</small>") == 1


def test_the_page_and_the_files_say_the_environment_of_a_process(owner, exported):
    data = json.loads(json.dumps(exported))
    for result in data["measurements"][0]["results"]:
        result["environment"] = {"MY_SWITCH": "1", "OTHER": "on"}
    run = load(data, "environment.json")
    page, count = page_of(owner, run), len(data["measurements"][0]["results"])
    assert page.count("with MY_SWITCH=1, OTHER=on") == count + 1, "once in the table of workloads"
    assert "in a process with MY_SWITCH=1, OTHER=on" in page
    first = Result.objects.filter(measurement__run=run)[0]
    detail = owner.get(f"/runs/{run.pk}/results/{first.pk}/").content.decode()
    assert "<code>MY_SWITCH=1</code>, <code>OTHER=on</code>" in detail
    assert export_of(run).measurements[0].results[0].environment == {"MY_SWITCH": "1", "OTHER": "on"}
    assert owner.get(f"/runs/{run.pk}.csv").content.decode().count("MY_SWITCH=1, OTHER=on") == count


def test_the_page_says_where_the_seconds_went_if_the_run_does(owner, demo, exported):
    assert "Where the time went" not in page_of(owner, demo)
    measured = [m | {"timing": {"rounds": 2.0, "rests": 1.0}} for m in exported["measurements"]]
    run = load(exported | {"measurements": measured, "timing": {"start": 6.0, "rests": 2.0}}, "timed.json")
    part = page_of(owner, run).split('id="timing"')[1].split("</details>")[0]
    rows = [re.findall(r">([^<>]+)</td>", row) for row in part.split("<tr>")[2:]]
    assert rows == [
        ["start of processes: Python, torch, the device", DASH, "6.00", "19%"],
        ["rounds: blocks of timed calls", "16.00", "16.00", "50%"],
        ["rests before blocks", "8.00", "10.00", "31%"],
    ]


def test_workloads_stand_in_the_order_of_the_config(owner, exported):
    backwards = exported | {"measurements": exported["measurements"][::-1]}
    page = page_of(owner, run := load(backwards, "x.json"))
    places = [page.index(f'scope="rowgroup">{w.label} <small>') for w in run.spec.workloads]
    assert places == sorted(places)


def test_a_result_that_failed_says_why_where_its_times_would_be(owner, exported):
    data = shortened(exported, 1)
    results = [dict(result) for result in data["measurements"][0]["results"]]
    results[1] = {"kernel": results[1]["kernel"], "status": "crashed", "why": "compile: killed by <SIGSEGV>"}
    data["measurements"] = [data["measurements"][0] | {"results": results}]
    page = page_of(owner, load(data, "x.json"))
    assert "compile: killed by &lt;SIGSEGV&gt;" in page
    assert "1 result crashed (sdpa-flash)." in page


def test_a_run_in_which_nothing_worked_says_so(owner, exported):
    data = shortened(exported, 1)
    failed = [
        {"kernel": result["kernel"], "status": "crashed", "why": "no driver"}
        for result in data["measurements"][0]["results"]
    ]
    data["measurements"] = [data["measurements"][0] | {"results": failed, "aa": None}]
    page = page_of(owner, load(data, "x.json"))
    assert "No kernel could be measured" in page
    assert "8 kernels crashed" in page
    assert "data-chart" not in page


def test_eight_by_eight_take_as_many_queries_as_one_by_eight(owner, exported, django_assert_max_num_queries):
    def queries(run):
        with CaptureQueriesContext(connection) as seen:
            page_of(owner, run)
        return len(seen)

    small, large = load(shortened(exported, 1), "small.json"), load(exported, "large.json")
    with django_assert_max_num_queries(
        6
    ):  # session, user, run, tags, measurements with workloads, results with kernels
        page_of(owner, large)
    assert queries(small) == queries(large)


def test_the_page_does_not_load_raw_samples_logs_and_sources(owner, demo):
    with CaptureQueriesContext(connection) as seen:
        page_of(owner, demo)
    text = " ".join(query["sql"] for query in seen)
    for column in ("samples_ns", '"runs_result"."log"', '"runs_kernelversion"."source"'):
        assert column not in text


# --- a run that waits, or is being measured ---------------------------------------------------------------------------


def test_a_waiting_run_says_for_what_and_which_it_is(owner, make_run, silent):
    first, second = make_run(), make_run()
    assert "next on this device" in page_of(owner, first)
    assert "number 2 in the queue" in page_of(owner, second)
    assert "Waiting for NVIDIA H200." in page_of(owner, first)
    waits = page_of(owner, make_run(gpu=silent))
    assert "NVIDIA H200 on gpu-9 has been silent since" in waits
    assert 'hx-trigger="every 2s"' in waits
    assert "No results" not in waits


def test_a_run_that_is_measured_shows_what_its_agent_does(owner, make_run, live):
    live |= {
        "position": 1, "total": 3, "kernel": "eager", "workload": "attention <x>", "step": "round 7, at most 60",
        "log": "compiling <b>", "telemetry": {"sm_mhz": 1980, "power_w": 412.6, "temperature_c": 51},
    }  # fmt: skip
    run = make_run(
        spec("eager", workloads=3), state="running", sent_at=timezone.now(), done=1, attempt=1,
        started_at=timezone.now() - timedelta(seconds=30),
    )  # fmt: skip
    measured(run, after_s=25)
    page = page_of(owner, run)
    for text in (
        "1 of 3 workloads measured · 30 s so far · about 45 s left", "2 of 3, eager on attention &lt;x&gt;",
        "round 7, at most 60", "<dd>1980 MHz</dd>", "<dd>413 W</dd>", "<dd>51 °C</dd>",
        "compiling &lt;b&gt;", '<progress max="3" value="1">',
    ):  # fmt: skip
        assert text in page, text


def test_numbers_come_with_the_rounds_and_words_only_at_the_end(owner, make_run, live):
    run = make_run(spec("eager", workloads=2), state="running", sent_at=timezone.now(), started_at=timezone.now())
    first, second = run.spec.workloads
    live |= {
        "position": 0, "total": 2, "kernel": "eager", "workload": first.label, "step": "round 3", "log": "", "telemetry": {},
        "so_far": {"eager": [0.5, 0.52, 0.51], "sdpa (A/A)": [1.0, 1.01, 1.0]}, "rounds": 3,
    }  # fmt: skip
    page = page_of(owner, run)
    table = page.split('<table class="cells">')[1].split("</table>")[0]
    assert table.count('scope="row"') == 2, "every planned workload has its row: nothing jumps when it is measured"
    assert ">0.51x<small>0.50 to 0.52</small>" in table and "waiting" in table
    assert not {"faster", "slower", "▲", "▼"} & set(table.split()) and "Rounds so far: 3" in page
    polled = owner.get(reverse("run_live", args=[run.pk]), {"seen": "running-0"}).content.decode()
    assert f'<tr id="line-{first.key}" hx-swap-oob="true"' in polled and second.key not in polled
    assert 'id="now" hx-swap-oob="true"' in polled and 'id="results"' not in polled
    assert polled.count("<polyline") == 2 and 'class="aa"' in polled


def test_a_poll_that_sees_the_end_keeps_the_place_of_the_bar(owner, demo):
    polled = owner.get(reverse("run_live", args=[demo.pk]), {"seen": "running-7"}).content.decode()
    assert '<section id="progress" class="panel"' in polled and "All results are final." in polled
    assert '<section id="progress" class="gone"' in page_of(owner, demo)


def test_many_results_are_another_address(owner, exported, monkeypatch):
    run = load(shortened(exported, 2), "x.json")
    assert "table-attention" in page_of(owner, run) and '<table class="results">' in page_of(owner, run)
    monkeypatch.setattr(run_view, "MOST_ROWS_UNASKED", 15)
    page = page_of(owner, run)
    assert '<table class="results">' not in page and '<a href="?figures=all#all-attention">All figures</a>' in page
    for query in ("?figures=all", "?sort=p50_ms", "?columns=mean_ms"):
        assert '<table class="results">' in owner.get(run.get_absolute_url() + query).content.decode()


def lines_of(client, run, query=""):
    page = client.get(run.get_absolute_url() + query).content.decode()
    table = page.split('<table class="cells">')[1].split("</table>")[0]
    return [row.split("</tr>")[0] for row in table.split("<tr")[2:]]


def test_workloads_are_sorted_by_a_kernel_and_back(owner, demo):
    measured = {m.label: m for m in measurements.of_run(demo)}
    plain = lines_of(owner, demo)
    for query, key in {
        "?by=-kernel:triton-flash": lambda m: -m.arm("triton-flash").speedup,
        "?by=kernel:compiled": lambda m: m.arm("compiled").speedup,
        "?by=baseline": lambda m: m.base.p50_ms,
    }.items():
        wanted = [f"/results/{m.base.pk}/" for m in sorted(measured.values(), key=key)]
        found = [re.search(r"/results/\d+/", row)[0] for row in lines_of(owner, demo, query)]
        assert found == wanted, query
    page = owner.get(demo.get_absolute_url() + "?by=-kernel:triton-flash").content.decode()
    assert page.count('aria-sort="descending"') == 1 and "?by=kernel:triton-flash#table-attention" in page
    assert lines_of(owner, demo, "?by=kernel:none") == lines_of(owner, demo, "?by=<script>") == plain


def test_kernels_far_behind_are_shown_on_request(owner, demo):
    page = page_of(owner, demo)
    assert "<b>eager</b>" not in page and "show sdpa-efficient, eager, sdpa-math</a>" in page
    assert "<b>eager</b>" in owner.get(demo.get_absolute_url() + "?kernels=all").content.decode()


def test_on_a_phone_the_first_tab_is_the_kernel_of_the_chart(owner, demo):
    demo.measurements.update(margin=0.09)
    Result.objects.filter(kernel__name="compiled").update(speedup=2.3, speedup_low=2.2, speedup_high=2.4)
    page = page_of(owner, demo)
    tabs = page.split('aria-label="Column">')[1].split("</nav>")[0]
    assert re.findall(r'data-column="0" aria-current="true">([^<]+)<', tabs) == ["compiled"]
    assert "compiled over sdpa</h2>" in page


def test_only_what_is_faster_is_bold_and_every_word_can_be_heard(owner, demo):
    for row in lines_of(owner, demo, "?kernels=all"):
        for cell in row.split("<td")[2:]:
            for word, mark in {"faster": "▲", "slower": "▼", "same": "="}.items():
                assert (f'aria-hidden="true">{mark}</i>' in cell) == (f'<span class="hidden">{word}</span>' in cell)


def test_without_a_broker_the_page_works_and_shows_less(owner, make_run):
    run = make_run(state="running", sent_at=timezone.now(), started_at=timezone.now())
    assert "Measuring." in page_of(owner, run)


def test_a_run_that_was_sent_meanwhile_does_not_wait_for_itself(make_run):
    run = make_run()
    Run.objects.filter(pk=run.pk).update(sent_at=timezone.now())
    assert run_view.running_before(run) is None, "it was read before it was sent"


def measured(run, after_s):
    """A workload of a run, stored so many seconds after its start."""
    m = Measurement.objects.create(
        run=run, workload=Workload.objects.of(run.spec.workloads[0]), mode="cpu", baseline="sdpa"
    )
    Measurement.objects.filter(pk=m.pk).update(created_at=run.started_at + timedelta(seconds=after_s))


def test_how_long_it_takes_still(make_run):
    ago = timezone.now() - timedelta(seconds=60)
    assert remaining(make_run()) is None
    run = make_run(spec(workloads=4), started_at=ago, done=3)
    measured(run, after_s=48)
    assert remaining(run) == pytest.approx(4, abs=1), (
        "of 4 times 16 s, whatever the workload takes that is measured now"
    )
    Run.objects.filter(pk=run.pk).update(started_at=ago - timedelta(seconds=5))
    run.refresh_from_db()
    assert remaining(run) == pytest.approx(64 * 53 / 48 - 65, abs=1)
    assert remaining(make_run(spec(workloads=40), started_at=timezone.now())) > 30, "from an estimate"
    assert remaining(make_run(spec(workloads=1), started_at=timezone.now() - timedelta(hours=9))) is None


def test_polling_sends_results_only_when_they_changed(owner, demo, exported):
    def polled(seen):
        return owner.get(reverse("run_live", args=[demo.pk]), {"seen": seen}).content.decode()

    assert 'id="results"' not in polled("done-8")
    assert 'id="progress"' in polled("done-8")
    news = polled("running-7")
    assert 'id="results" hx-swap-oob="true"' in news
    assert all_figures(news).count("/results/") == 64
    assert '<h1 id="headline" hx-swap-oob="true">triton-flash is faster' in news
    assert news.count("hx-swap-oob") == 3, "title, crumb and results: nothing inside of these is swapped by itself"


@pytest.mark.parametrize("state, words", [("failed", "Failed"), ("cancelled", "Cancelled"), ("lost", "Lost")])
def test_a_run_that_did_not_end_well_says_why(owner, make_run, state, words):
    run = make_run(state=state, message="The <driver> went away.", finished_at=timezone.now(), log="last <words>")
    page = page_of(owner, run)
    assert f"<h2>{words} " in page
    assert "The &lt;driver&gt; went away." in page
    assert "Cancel</button>" not in page
    assert 'hx-trigger="every 2s"' not in page


def test_what_was_measured_before_it_failed_is_there(owner, demo):
    Run.objects.filter(pk=demo.pk).update(state="failed", message="power cut", done=8, total=9, demo="")
    page = page_of(owner, demo)
    assert "8 of 9 workloads were measured." in page
    Run.objects.filter(pk=demo.pk).update(done=9)
    assert "All 9 workloads were measured." in page_of(owner, demo)
    Run.objects.filter(pk=demo.pk).update(done=1, total=1)
    assert "Its one workload was measured." in page_of(owner, demo)
    Run.objects.filter(pk=demo.pk).update(done=9, total=9)
    assert all_figures(page).count(f"/runs/{demo.pk}/results/") == 64


def test_what_was_measured_comes_before_how_the_run_ended_and_is_not_bold(owner, demo):
    Run.objects.filter(pk=demo.pk).update(state="cancelled", message="not cross-checked", demo="")
    page = page_of(owner, demo)
    answer, ended = page.index("Not cross-checked: triton-flash is faster"), page.index("<h2>Cancelled")
    assert answer < ended
    assert page.count('id="progress"') == 1
    assert "<strong" not in page[page.index('<p class="lede">') : ended]


def test_title_note_and_log_are_text_and_not_html(owner, demo):
    evil = "<img src=x onerror=alert(1)>"
    Run.objects.filter(pk=demo.pk).update(title=evil, note=f"{evil}\nsecond line", log=evil)
    page = page_of(owner, demo)
    assert evil not in page
    assert page.count("&lt;img src=x onerror=alert(1)&gt;") >= 4
    assert "&gt;<br>second line" in page


# --- cancel -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def told(monkeypatch):
    """(run, attempt) of which an agent was told to stop."""
    found = []
    monkeypatch.setattr("runs.models.run.tell_cancel", lambda *attempt: found.append(attempt))
    return found


def cancel(client, run):
    """What the page says after Cancel was pressed."""
    answer = client.post(reverse("cancel_run", args=[run.pk]), follow=True)
    assert answer.redirect_chain == [(reverse("run", args=[run.pk]), 302)]
    run.refresh_from_db()
    return [str(message) for message in answer.context["messages"]]


def test_a_waiting_run_is_cancelled_at_once(owner, make_run, told):
    run = make_run()
    assert cancel(owner, run) == ["Cancelled before it was sent to a device."]
    assert (run.state, told) == ("cancelled", [])
    assert run.finished_at


def test_a_running_one_is_asked_to_stop(owner, make_run, told):
    run = make_run(state="running", sent_at=timezone.now())
    assert cancel(owner, run) == ["Cancelling. The device is free within seconds."]
    assert (run.state, run.cancel_requested, told) == ("running", True, [(run.pk, run.attempt)])
    assert "Cancelling</h2>" in page_of(owner, run)


def test_once_it_is_cancelled_neither_button_nor_notice_stays(owner, make_run, told):
    run = make_run(state="running", sent_at=timezone.now())
    assert 'id="cancel"' in page_of(owner, run)
    cancel(owner, run)
    assert 'id="cancel"' not in page_of(owner, run)
    part = reverse("run_live", args=[run.pk])
    gone = '<div id="messages" hx-swap-oob="true"></div>'
    assert gone not in owner.get(part).content.decode()
    Run.objects.filter(pk=run.pk).update(state="cancelled", finished_at=timezone.now())
    assert gone in owner.get(part).content.decode() and '<div id="messages">' in page_of(owner, run)


def test_on_a_silent_device_it_ends_here_and_now(owner, make_run, silent, told):
    run = make_run(gpu=silent, state="running", sent_at=timezone.now())
    assert cancel(owner, run) == [
        "Cancelled. The device does not answer now. It stops the run when it is online again."
    ]
    assert run.state == "cancelled"


def test_what_has_ended_stays_as_it_ended(owner, make_run, told):
    run = make_run(state="done")
    assert cancel(owner, run) == ["This run is done already."]
    assert (run.state, run.cancel_requested, told) == ("done", False, [])


def test_cancelling_works_without_a_broker(owner, make_run):
    run = make_run(state="running", sent_at=timezone.now())
    assert cancel(owner, run) == ["Cancelling. The device is free within seconds."]


@pytest.mark.parametrize(
    "margin, said",
    [
        (0.045, "A/A of sdpa was noisy: FASTER and SLOWER need a difference of up to 4.5%."),
        (0.4, "Undecided: the margin is 40%, above 5%."),
    ],
)
def test_why_nothing_was_decided(owner, exported, margin, said):
    data = shortened(exported, 1)
    (m,) = data["measurements"]
    results = [dict(result) for result in m["results"] if result["kernel"] in ("sdpa", "triton-flash")]
    results[1] |= {"speedup": 1.02, "speedup_low": 1.01, "speedup_high": 1.03}
    data["measurements"] = [m | {"results": results, "margin": margin}]
    page = page_of(owner, load(data, "x.json"))
    assert said in page
    assert ("undecided: the margin is 40%" in page) == (margin > 0.05), "where its rows are"
    assert page.count("</span> undecided</span>") == 1
    assert '? <span class="hidden">undecided</span>1.02x<small>' in page.split("</table>")[0]


# --- how to measure it again ------------------------------------------------------------------------------------------


def test_the_command_line_that_measures_the_same(demo, make_run, configs, cpu):
    # A demo's without its commit, which may be in no repository here.
    assert reproduce(demo) == f".venv/bin/python -m kernels run run-{demo.pk}.yaml --device cuda:0", (
        "the number of checks has changed since"
    )
    older = Run.objects.get(pk=demo.pk)
    older.config["protocol"]["precision"] = 0.004
    assert reproduce(older) == f".venv/bin/python -m kernels run run-{demo.pk}.yaml --device cuda:0", (
        "defaults have changed since"
    )
    as_it_is = make_run(configs["canonical"].spec)
    assert reproduce(as_it_is) == ".venv/bin/python -m kernels run canonical --device cuda:0"
    smoke = configs["smoke"].spec
    assert reproduce(make_run(smoke, gpu=cpu)) == ".venv/bin/python -m kernels run smoke --device cpu"
    fewer = smoke.model_copy(update={"kernels": ["sdpa", "eager"]})
    assert reproduce(make_run(fewer)) == ".venv/bin/python -m kernels run smoke --kernels sdpa,eager --device cuda:0"
    typed = make_run()
    assert reproduce(typed) == f".venv/bin/python -m kernels run run-{typed.pk}.yaml --device cuda:0"
    other = smoke.model_copy(update={"workloads": smoke.workloads[:1]})
    assert reproduce(run := make_run(other)) == f".venv/bin/python -m kernels run run-{run.pk}.yaml --device cuda:0"


def test_the_command_line_names_the_folder_of_kernels_of_others(make_run, gpu):
    gpu.catalogue = [k | {"folder": "/their kernels"} if k["name"] == "eager" else k for k in gpu.catalogue]
    gpu.save()
    run = make_run(gpu=gpu)
    assert reproduce(run).startswith("KERNEL_PATH='/their kernels' .venv/bin/python -m kernels run ")


# --- what a page must not hide or blur --------------------------------------------------------------------------------


def with_result(exported, **changes):
    """A run of one workload whose second result is changed."""
    data = shortened(exported, 1)
    results = [dict(result) for result in data["measurements"][0]["results"]]
    results[1] |= changes
    data["measurements"] = [data["measurements"][0] | {"results": results}]
    return load(data, "x.json")


def test_an_impossible_time_is_no_time_and_says_why(owner, exported):
    run = with_result(exported, status="impossible", why="above the speed of light", **NO_SPEEDUP)
    result = Result.objects.get(measurement__run=run, status="impossible")
    row = all_figures(page_of(owner, run)).split(f"/results/{result.pk}/", 1)[1].split("</tr>", 1)[0]
    assert "above the speed of light. Its time was" in row
    assert "<b>" not in row


@pytest.mark.parametrize(
    "p50, low, high, shown, interval",
    [
        (0.01081, 0.01079, 0.01083, "10.81", "10.79 to 10.83"),
        (48.421, 48.412, 48.431, "48,421", "48,412 to 48,431"),
        (0.00748, 0.007, 0.008, "7.48", "7.00 to 8.00"),
        (0.2, 0.2, 0.2, "200", "200 to 200"),
    ],
)
def test_an_interval_has_two_ends(p50, low, high, shown, interval):
    result = Result(p50_ms=p50, p50_low_ms=low, p50_high_ms=high)
    assert (figures.p50_us(result), figures.interval_us(result)) == (shown, interval)


@pytest.mark.parametrize("state", ("queued", "running", "failed", "lost", "cancelled"))
def test_a_run_without_results_says_what_it_was_to_measure_how_and_what_was_logged(owner, make_run, state):
    run = make_run(spec("eager", workloads=2), state=state, log="a line of its log", title="mine")
    page = page_of(owner, run)
    for fact in ("protocol <b>paired</b>", "python -m kernels run", "sdpa, eager", "a line of its log"):
        assert fact in page, fact
    assert all(w.label in page for w in run.spec.workloads)


def test_a_waiting_run_names_what_it_waits_for(owner, make_run, gpu):
    busy = make_run(gpu=gpu, state="running", sent_at=timezone.now(), attempt=1)
    assert f'after <a id="ahead" href="/runs/{busy.pk}/">run {busy.pk}</a>' in page_of(owner, make_run(gpu=gpu))


def test_title_and_note_are_edited_while_the_run_goes_on_and_cannot_run_script(owner, stranger, make_run):
    run = make_run(title="first", state="running")
    address = reverse("name_run", args=[run.pk])
    assert f'<a href="{address}">edit title and note</a>' in owner.get(run.get_absolute_url()).content.decode()
    for sent, said in (
        ({"title": " "}, "This field is required."),
        ({"title": "x" * 201, "note": "kept"}, "at most 200"),
    ):
        page = owner.post(address, sent).content.decode()
        assert said in page and sent.get("note", "") in page
    owner.post(address, {"title": "<script>alert(1)</script>", "note": "a\nb<b>"})
    run.refresh_from_db()
    assert (run.title, run.note, run.state) == ("<script>alert(1)</script>", "a\nb<b>", "running")
    page = owner.get(run.get_absolute_url()).content.decode()
    assert "<script>alert" not in page and "a<br>b&lt;b&gt;" in page
    stranger.post(address, {"title": "stolen"})
    run.refresh_from_db()
    assert run.title != "stolen"


@pytest.mark.parametrize("share, text", [(0.63, "63%"), (0.01, "1%"), (0.003, "0.3%"), (0.0, "0%"), (None, DASH)])
def test_a_share_below_one_per_cent_is_not_0(share, text):
    assert figures.percent(share) == text


def test_facts_of_the_environment_are_words(owner, demo):
    facts = re.findall(r"<dt>([^<]*)</dt>\s*<dd>([^<]*)</dd>", page_of(owner, demo).split('<dl class="pairs">')[-1])
    assert facts and not [name for name, _ in facts if "_" in name]
    assert not [value for _, value in facts if value.startswith(("{", "[")) or value in ("True", "False")]
    assert parts.told({"gpus_of_host": 4, "part_number": "699-2", "lost": None}) == "gpus of host 4, part number 699-2"
    assert (parts.told(150109880320, "memory_bytes"), parts.told(True)) == ("140 GiB", "yes")

"""Charts: every result with a time is drawn, nothing is drawn of nothing, and each theme has colours of its own."""

import altair as alt
import pytest
from cast import shortened
from django.db import transaction
from django.urls import reverse

from kernels import report
from runs import charts, samples
from runs.charts import LEAST_SHOWN, NAMES, THEMES, chart_of, left_out
from runs.models import Chart, Result, Run


@pytest.fixture(scope="module")
def drawn(django_db_setup, django_db_blocker, exported):
    """(run's table, {(name, theme): chart}) of the sample, drawn once."""
    with django_db_blocker.unblock(), transaction.atomic():
        run = samples.load(exported, "drawn.json")
        found = {(name, theme): chart_of(run, name, theme) for name in NAMES for theme in THEMES}
        table = report.rows([m.as_event() for m in run.measurements.all()])
        transaction.set_rollback(True)
    return table, found


def points(spec, *fields):
    """Every row of data in a chart that has all of these fields."""
    rows = [row for data in spec["datasets"].values() for row in data]
    return [tuple(row[field] for field in fields) for row in rows if set(fields) <= set(row)]


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", NAMES)
def test_a_chart_is_valid_vega_lite_and_the_same_as_svg(drawn, name, theme):
    chart = drawn[1][name, theme]
    alt.Chart.from_dict(chart.spec)  # validates
    assert chart.svg.startswith("<svg")
    assert chart.svg.count("<path") > 20
    for colour in ("ink", "quiet"):
        assert THEMES[theme][colour] in chart.svg.lower(), "text in the theme's colour"


@pytest.mark.parametrize("name", NAMES)
def test_each_theme_has_its_own_colours(drawn, name):
    light, dark = (str(drawn[1][name, theme].spec) + drawn[1][name, theme].svg for theme in ("light", "dark"))
    only = {t: set(THEMES[t].values()) - set(THEMES[o].values()) for t, o in (("light", "dark"), ("dark", "light"))}
    assert not any(colour in light for colour in only["dark"])
    assert not any(colour in dark for colour in only["light"])
    assert any(colour in light for colour in only["light"])


def test_the_latency_chart_draws_every_result_that_has_a_time(drawn):
    table, found = drawn
    timed = {(row["workload"], row["kernel"]): row["p50_ms"] for row in table if row["p50_ms"] is not None}
    seen = {
        (workload, kernel): p50_us / 1e3
        for workload, kernel, p50_us in points(found["latency", "light"].spec, "workload", "kernel", "p50_us")
    }
    assert seen == pytest.approx(timed)
    assert len(seen) > 50


def test_the_speedup_chart_draws_every_speedup_that_is_not_said_to_be_left_out(drawn):
    table, found = drawn
    out = left_out(table)
    wanted = {
        (row["workload"], row["kernel"]): row["speedup"]
        for row in table
        if row["speedup"] is not None and row["kernel"] not in out
    }
    drawn_points = points(found["speedup", "light"].spec, "workload", "kernel", "speedup")
    assert {(workload, kernel): speedup for workload, kernel, speedup in drawn_points} == pytest.approx(wanted)
    assert len(drawn_points) == len(wanted) > 20


def test_speedups_off_the_axis_stand_at_its_edge_with_their_number(drawn):
    spec = drawn[1]["speedup", "light"].spec
    for speedup, at, left, text in points(spec, "speedup", "at", "from", "text"):
        assert at >= LEAST_SHOWN
        assert left >= LEAST_SHOWN
        assert f"{speedup:.2f}" in text
        assert text.startswith("◂") == (at != speedup)


def test_the_speed_of_light_stands_once_for_each_workload(drawn):
    limits = points(drawn[1]["latency", "light"].spec, "workload", "who", "limit_us")
    assert len(limits) == 8
    assert {who for _, who, _ in limits} == {"speed of light"}


def test_every_mark_is_named_by_what_is_there_to_see(drawn):
    svg = drawn[1]["latency", "light"].svg
    for text in ("sdpa", "other kernels", "speed of light", "p50 in microseconds, log"):
        assert text in svg, text
    assert "speedup over sdpa, with interval" in drawn[1]["speedup", "light"].svg


# --- what there is nothing to draw of ---------------------------------------------------------------------------------


def test_a_run_without_times_has_no_chart_and_its_page_shows_none(owner, no_results, make_run):
    for run in (no_results, make_run()):
        for name in NAMES:
            assert chart_of(run, name, "light") is None
            for view in ("chart_json", "chart_svg"):
                answer = owner.get(reverse(view, args=[run.pk, name]))
                assert answer.status_code == 404
                assert b"nothing to draw yet" in answer.content
        assert b"data-chart" not in owner.get(reverse("run", args=[run.pk])).content
    assert not Chart.objects.exists()


def test_failed_results_alone_make_no_chart(exported, db):
    data = shortened(exported, 1)
    failed = [{"kernel": r["kernel"], "status": "crashed"} for r in data["measurements"][0]["results"]]
    run = samples.load(data | {"measurements": [data["measurements"][0] | {"results": failed}]}, "x.json")
    assert [chart_of(run, name, "light") for name in NAMES] == [None, None]


def test_the_baseline_alone_has_a_latency_chart_and_no_speedups(owner, exported, db):
    data = shortened(exported, 2)
    data["measurements"] = [m | {"results": m["results"][:1]} for m in data["measurements"]]
    run = samples.load(data, "x.json")
    assert chart_of(run, "speedup", "light") is None
    assert len(points(chart_of(run, "latency", "light").spec, "kernel", "p50_us")) == 2
    page = owner.get(reverse("run", args=[run.pk])).content.decode()
    assert "Distance to the speed of light" in page
    assert "<h2>Speedup</h2>" not in page


def test_a_device_without_known_peaks_has_no_speed_of_light(exported, db):
    data = shortened(exported, 1)
    results = [r | {"limit_ms": None, "limit_share": None} for r in data["measurements"][0]["results"]]
    run = samples.load(data | {"measurements": [data["measurements"][0] | {"results": results}]}, "x.json")
    chart = chart_of(run, "latency", "light")
    assert points(chart.spec, "limit_us") == []
    assert "speed of light" not in chart.svg
    assert len(points(chart.spec, "p50_us")) == sum("stats" in r for r in results)


def test_one_kernel_beside_the_baseline_has_a_row_for_each_workload(exported, db):
    data = shortened(exported, 3)
    data["measurements"] = [m | {"results": m["results"][:2]} for m in data["measurements"]]
    chart = chart_of(samples.load(data, "x.json"), "speedup", "light")
    assert [row for (row,) in points(chart.spec, "row")] == [
        "B=1 H=8 S=512 D=64",
        "B=1 H=8 S=512 D=64 causal",
        "B=4 H=16 S=512 D=64",
    ]


def test_kernels_far_behind_are_left_out_unless_all_are(exported, db):
    def row(kernel, high):
        return {"kernel": kernel, "speedup": 0.9 * high, "speedup_high": high}

    assert left_out([row("near", 0.9), row("far", 0.3), row("far", 0.4)]) == ["far"]
    assert left_out([row("near", 0.9), row("mixed", 0.3), row("mixed", 0.6)]) == []
    assert left_out([row("far", 0.3), row("farther", 0.1)]) == []
    assert left_out([{"kernel": "sdpa", "speedup": None, "speedup_high": None}]) == []
    data = shortened(exported, 1)
    far = {"ratio": 0.03, "low": 0.029, "high": 0.031, "rounds": 5, "paired": True}
    results = [r | ({"speedup": far} if r.get("speedup") else {}) for r in data["measurements"][0]["results"]]
    run = samples.load(data | {"measurements": [data["measurements"][0] | {"results": results}]}, "x.json")
    drawn = points(chart_of(run, "speedup", "light").spec, "kernel", "at", "text")
    assert len(drawn) == sum(bool(r.get("speedup")) for r in results)
    assert {(at, text) for _, at, text in drawn} == {(LEAST_SHOWN, "◂ 0.03")}


def test_two_dtypes_are_told_apart(exported, db):
    data = shortened(exported, 1)
    first = data["measurements"][0]
    second = first | {"workload": first["workload"] | {"dtype": "bfloat16"}, "key": "other"}
    run = samples.load(data | {"measurements": [first, second]}, "x.json")
    short = {row.split("\t")[0] for (row,) in points(chart_of(run, "speedup", "light").spec, "row")}
    assert short == {"fp16 B=1 H=8 S=512 D=64", "bf16 B=1 H=8 S=512 D=64"}


# --- drawn once -------------------------------------------------------------------------------------------------------


def test_a_chart_is_drawn_once_and_again_when_the_run_has_gone_on(exported, db, monkeypatch):
    run = samples.load(shortened(exported, 1), "x.json")
    first = chart_of(run, "latency", "light")
    monkeypatch.setitem(THEMES["light"], "ink", "#123456")
    assert chart_of(run, "latency", "light").svg == first.svg
    Run.objects.filter(pk=run.pk).update(done=2)
    run.refresh_from_db()
    again = chart_of(run, "latency", "light")
    assert (again.pk, again.done) == (first.pk, 2)
    assert "#123456" in again.svg
    monkeypatch.setattr(charts, "LOOK", {"look": "new"})
    monkeypatch.setitem(THEMES["light"], "ink", "#654321")
    assert "#654321" in chart_of(run, "latency", "light").svg
    assert Chart.objects.count() == 1


def test_ended_runs_get_all_their_charts(exported, db):
    run = samples.load(shortened(exported, 1), "x.json")
    charts.draw(run.pk)
    assert set(run.charts.values_list("name", "theme")) == {(name, theme) for name in NAMES for theme in THEMES}


# --- their addresses --------------------------------------------------------------------------------------------------


def test_a_chart_comes_as_json_and_as_svg_in_the_theme_asked_for(owner, exported, db):
    run = samples.load(shortened(exported, 1), "x.json")
    for theme in THEMES:
        as_json = owner.get(reverse("chart_json", args=[run.pk, "speedup"]), {"theme": theme})
        as_svg = owner.get(reverse("chart_svg", args=[run.pk, "speedup"]), {"theme": theme})
        chart = Chart.objects.get(run=run, name="speedup", theme=theme)
        assert as_json.json() == chart.spec
        assert (as_svg["Content-Type"], as_svg.content.decode()) == ("image/svg+xml", chart.svg)
    plain = owner.get(reverse("chart_svg", args=[run.pk, "speedup"]))
    assert plain.content.decode() == Chart.objects.get(run=run, name="speedup", theme="light").svg


@pytest.mark.parametrize("name, theme", [("pie", "light"), ("speedup", "neon")])
def test_a_chart_that_does_not_exist_is_a_404(owner, sample, name, theme):
    for view in ("chart_json", "chart_svg"):
        assert owner.get(reverse(view, args=[sample.pk, name]), {"theme": theme}).status_code == 404


def test_names_in_a_chart_are_text(exported, db):
    data = shortened(exported, 1)
    evil = '<script>alert("1")</script>'
    results = data["measurements"][0]["results"]
    results = [results[0], results[1] | {"kernel": evil}]
    run = samples.load(data | {"measurements": [data["measurements"][0] | {"results": results}]}, "x.json")
    assert Result.objects.filter(kernel__name=evil).exists()
    for name in NAMES:
        assert "<script" not in chart_of(run, name, "light").svg

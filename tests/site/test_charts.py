"""Charts: every result with a time is drawn, nothing is drawn of nothing, and each theme has colours of its own."""

import re
from dataclasses import replace

import altair as alt
import pytest
from cast import load, shortened
from django.db import transaction
from django.urls import reverse

from kernels.contract.events import Measured
from kernels.report import tables
from runs.charts import run_charts
from runs.charts.run_charts import LEAST_SHOWN, NAMES, WIDTHS, _ticks, chart_of, has_limits, left_out
from runs.charts.theme import THEMES
from runs.models import Chart, Result, Run
from runs.queries import measurements


@pytest.fixture(scope="module")
def drawn(django_db_setup, django_db_blocker, exported):
    """(run's table, {(name, theme): chart}) of the demo, drawn once."""
    with django_db_blocker.unblock(), transaction.atomic():
        run = load(exported, "drawn.json")
        found = {(name, theme): chart_of(run, name, theme) for name in NAMES for theme in THEMES}
        table = tables.rows(measurements.of_run(run))
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


def measured_as(data, *changes):
    """The same export with each measurement changed so; each of `changes` is for one of them."""
    measurements = [m | change for m, change in zip(data["measurements"], changes, strict=True)]
    return load(data | {"measurements": measurements}, "x.json")


@pytest.mark.parametrize("width", ["", "-narrow"])
def test_the_latency_chart_draws_every_result_that_has_a_time(drawn, width):
    table, found = drawn
    timed = {(row.workload, row.kernel): row.p50_ms for row in table if row.p50_ms is not None}
    seen = {
        (workload, kernel): p50_us / 1e3
        for workload, kernel, p50_us in points(found[f"latency{width}", "light"].spec, "workload", "kernel", "p50_us")
    }
    assert seen == pytest.approx(timed)
    assert len(seen) > 50


@pytest.mark.parametrize("width", ["", "-narrow"])
def test_the_speedup_chart_draws_every_speedup_that_is_not_said_to_be_left_out(drawn, width):
    table, found = drawn
    out = left_out(table)
    wanted = {
        (row.workload, row.kernel): row.speedup for row in table if row.speedup is not None and row.kernel not in out
    }
    drawn_points = points(found[f"speedup{width}", "light"].spec, "workload", "kernel", "speedup")
    assert {(workload, kernel): speedup for workload, kernel, speedup in drawn_points} == pytest.approx(wanted)
    assert len(drawn_points) == len(wanted) > 20


def test_speedups_off_the_axis_stand_at_its_edge_with_their_number(drawn):
    spec = drawn[1]["speedup", "light"].spec
    fields = ("speedup", "at", "from", "text", "edge", "side")
    clipped = 0
    for speedup, at, left, text, edge, side in points(spec, *fields):
        assert at >= LEAST_SHOWN
        assert left >= LEAST_SHOWN
        assert text == f"{speedup:.3f}"
        assert edge == ("left" if at != speedup else "")
        assert not edge or side == "right", "its number stands clear of the kernels' names"
        clipped += bool(edge)
    assert clipped > 2


@pytest.mark.parametrize("name", ["speedup", "speedup-narrow"])
def test_each_workload_has_the_band_of_its_own_margin_behind_its_own_rows(exported, db, name):
    margins = (0.01, 0.14, 0.06)
    run = measured_as(shortened(exported, 3), *({"margin": margin} for margin in margins))
    spec = chart_of(run, name, "light").spec
    bands = points(spec, "workload", "margin", "low", "high", "top", "bottom")
    assert [margin for _, margin, *_ in bands] == list(margins)
    assert len({workload for workload, *_ in bands}) == 3
    for workload, margin, low, high, top, bottom in bands:
        assert (low, high) == pytest.approx((1 / (1 + margin), 1 + margin))
        for other, y in points(spec, "workload", "y"):
            assert (top < y < bottom) == (other == workload)


@pytest.mark.parametrize("name", ["speedup", "speedup-narrow"])
def test_numbers_stand_off_the_band_and_the_line_at_one(drawn, name):
    spec = drawn[1][name, "light"].spec
    margins = dict(points(spec, "workload", "margin"))
    for workload, speedup, side, beside in points(spec, "workload", "speedup", "side", "beside"):
        if speedup >= 1:
            assert (side, beside >= 1 + margins[workload]) == ("right", True)
        elif side == "left":
            assert beside <= 1 / (1 + margins[workload])
        else:
            assert speedup < 0.75


@pytest.mark.parametrize("status", ["impossible", "suspect", "incorrect"])
def test_a_result_that_is_not_ok_is_drawn_nowhere_although_it_keeps_its_times(exported, db, status):
    run = load(shortened(exported, 2), "x.json")
    result = Result.objects.get(measurement=run.measurements.first(), kernel__name="triton-flash")
    assert result.p50_ms and result.speedup
    Result.objects.filter(pk=result.pk).update(status=status)
    for name, time in (("speedup", "speedup"), ("latency", "p50_us")):
        kernels = points(chart_of(run, name, "light").spec, "workload", "kernel", time)
        assert [workload for workload, kernel, _ in kernels if kernel == "triton-flash"] == [
            "attention fp16 B=1 H=8 S=512 D=64 causal"
        ]
    Result.objects.filter(measurement__run=run).update(status=status)
    Chart.objects.all().delete()
    assert [chart_of(run, name, "light") for name in NAMES] == [None] * len(NAMES)
    table = tables.rows(measurements.of_run(run))
    assert (has_limits(table), left_out(table)) == (False, [])


def test_the_speed_of_light_stands_once_for_each_workload(drawn):
    limits = points(drawn[1]["latency", "light"].spec, "workload", "who", "limit_us")
    assert len(limits) == 8
    assert {who for _, who, _ in limits} == {"speed of light"}
    assert has_limits(drawn[0])


def test_every_mark_is_named_by_what_is_there_to_see(drawn):
    svg = drawn[1]["latency", "light"].svg
    for text in ("sdpa", "other kernels", "speed of light", "p50 in microseconds, log", ">10,000<"):
        assert text in svg, text
    assert "speedup over sdpa, with interval" in drawn[1]["speedup", "light"].svg


def test_the_speed_of_light_has_not_the_colour_of_slower(drawn):
    assert THEMES["light"]["slower"] not in str(drawn[1]["latency", "light"].spec)


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("theme", THEMES)
def test_every_mark_stands_out_from_the_panel(theme):
    panel = luminance(THEMES[theme]["panel"])
    for mark in ("ink", "quiet", "faster", "slower", "accent", "other"):
        darker, lighter = sorted((panel, luminance(THEMES[theme][mark])))
        assert (lighter + 0.05) / (darker + 0.05) >= 3, mark


@pytest.mark.parametrize("low, high", [(0.4, 80_000), (3_100, 6_400), (100, 150), (7, 63), (12, 95), (1e-3, 1e9)])
@pytest.mark.parametrize("most", [7, 9])
def test_the_latency_axis_has_a_few_round_numbers(low, high, most):
    ticks = _ticks(low, high, most)
    assert 3 <= len(ticks) <= 11
    assert ticks == sorted(ticks)
    assert all(low <= tick <= high for tick in ticks)
    assert all(float(f"{tick:.3g}") == pytest.approx(tick) for tick in ticks)


# --- what there is nothing to draw of ---------------------------------------------------------------------------------


def test_a_run_without_times_has_no_chart_and_its_page_shows_none(owner, no_results, make_run):
    for run in (no_results, make_run()):
        for name in NAMES:
            assert chart_of(run, name, "light") is None
            for view in ("chart_json", "chart_svg"):
                answer = owner.get(reverse(view, args=[run.pk, name]))
                assert answer.status_code == 404
                assert b"no data yet" in answer.content.lower()
        assert b"data-chart" not in owner.get(reverse("run", args=[run.pk])).content
    assert not Chart.objects.exists()


def test_failed_results_alone_make_no_chart(exported, db):
    data = shortened(exported, 1)
    failed = [{"kernel": r["kernel"], "status": "crashed"} for r in data["measurements"][0]["results"]]
    run = load(data | {"measurements": [data["measurements"][0] | {"results": failed}]}, "x.json")
    assert [chart_of(run, name, "light") for name in NAMES] == [None] * len(NAMES)


def test_the_baseline_alone_has_a_latency_chart_and_no_speedups(owner, exported, db):
    data = shortened(exported, 2)
    data["measurements"] = [m | {"results": m["results"][:1]} for m in data["measurements"]]
    run = load(data, "x.json")
    assert chart_of(run, "speedup", "light") is None
    assert len(points(chart_of(run, "latency", "light").spec, "kernel", "p50_us")) == 2
    page = owner.get(reverse("run", args=[run.pk])).content.decode()
    assert "Distance to the speed of light" in page
    assert "<h2>Speedup</h2>" not in page


def test_a_device_without_known_peaks_has_no_speed_of_light(exported, db):
    data = shortened(exported, 1)
    results = [r | {"limit_ms": None, "limit_share": None} for r in data["measurements"][0]["results"]]
    run = load(data | {"measurements": [data["measurements"][0] | {"results": results}]}, "x.json")
    chart = chart_of(run, "latency", "light")
    assert points(chart.spec, "limit_us") == []
    assert "speed of light" not in chart.svg
    assert "speed of light" not in str(chart.spec)
    assert not has_limits(tables.rows(measurements.of_run(run)))
    assert len(points(chart.spec, "p50_us")) == sum(r["p50_ms"] is not None for r in results)


def test_one_kernel_beside_the_baseline_has_a_row_for_each_workload(exported, db):
    data = shortened(exported, 3)
    data["measurements"] = [m | {"results": m["results"][:2]} for m in data["measurements"]]
    chart = chart_of(load(data, "x.json"), "speedup", "light")
    assert [row for (row,) in points(chart.spec, "short")] == [
        "B=1 H=8 S=512 D=64",
        "B=1 H=8 S=512 D=64 causal",
        "B=4 H=16 S=512 D=64",
    ]
    assert "speedup of sdpa-flash over sdpa, with interval" in chart.svg


def test_kernels_far_behind_are_left_out_unless_all_are(exported, db):
    data = shortened(exported, 1)
    baseline, other = tables.rows(map(Measured.model_validate, data["measurements"]))[:2]

    def row(kernel, high):
        return replace(other, kernel=kernel, speedup=0.9 * high, speedup_low=0.8 * high, speedup_high=high)

    assert left_out([row("near", 0.9), row("far", 0.3), row("far", 0.4)]) == ["far"]
    assert left_out([row("near", 0.9), row("mixed", 0.3), row("mixed", 0.6)]) == []
    assert left_out([row("far", 0.3), row("farther", 0.1)]) == []
    assert (baseline.kernel, baseline.speedup) == ("sdpa", None)
    assert left_out([baseline]) == []
    far = {"speedup": 0.03, "speedup_low": 0.029, "speedup_high": 0.031}
    results = [r | (far if r["speedup"] else {}) for r in data["measurements"][0]["results"]]
    run = load(data | {"measurements": [data["measurements"][0] | {"results": results}]}, "x.json")
    drawn = points(chart_of(run, "speedup", "light").spec, "kernel", "at", "text")
    assert len(drawn) == sum(bool(r["speedup"]) for r in results)
    assert {(at, text) for _, at, text in drawn} == {(LEAST_SHOWN, "0.030")}


def test_two_dtypes_are_told_apart(exported, db):
    data = shortened(exported, 1)
    first = data["measurements"][0]
    second = first | {"workload": first["workload"] | {"dtype": "bfloat16"}, "key": ""}
    run = load(data | {"measurements": [first, second]}, "x.json")
    short = {row for (row,) in points(chart_of(run, "speedup", "light").spec, "short")}
    assert short == {"fp16 B=1 H=8 S=512 D=64", "bf16 B=1 H=8 S=512 D=64"}


# --- drawn once -------------------------------------------------------------------------------------------------------


def test_a_chart_is_drawn_once_and_again_when_the_run_has_gone_on(exported, db, monkeypatch):
    run = load(shortened(exported, 1), "x.json")
    first = chart_of(run, "latency", "light")
    monkeypatch.setitem(THEMES["light"], "ink", "#123456")
    assert chart_of(run, "latency", "light").svg == first.svg
    Run.objects.filter(pk=run.pk).update(done=2)
    run.refresh_from_db()
    again = chart_of(run, "latency", "light")
    assert (again.pk, again.done) == (first.pk, 2)
    assert "#123456" in again.svg
    monkeypatch.setattr(run_charts, "DRAWING", {"look": "new"})
    monkeypatch.setitem(THEMES["light"], "ink", "#654321")
    assert "#654321" in chart_of(run, "latency", "light").svg
    assert Chart.objects.count() == 1


def test_ended_runs_get_all_their_charts(exported, db):
    run = load(shortened(exported, 1), "x.json")
    run_charts.draw(run.pk)
    assert set(run.charts.values_list("name", "theme")) == {(name, theme) for name in NAMES for theme in THEMES}


# --- their addresses --------------------------------------------------------------------------------------------------


def test_a_chart_comes_as_json_and_as_svg_in_the_theme_asked_for(owner, exported, db):
    run = load(shortened(exported, 1), "x.json")
    for theme in THEMES:
        as_json = owner.get(reverse("chart_json", args=[run.pk, "speedup"]), {"theme": theme})
        as_svg = owner.get(reverse("chart_svg", args=[run.pk, "speedup"]), {"theme": theme})
        chart = Chart.objects.get(run=run, name="speedup", theme=theme)
        assert as_json.json() == chart.spec
        assert (as_svg["Content-Type"], as_svg.content.decode()) == ("image/svg+xml", chart.svg)
    plain = owner.get(reverse("chart_svg", args=[run.pk, "speedup"]))
    assert plain.content.decode() == Chart.objects.get(run=run, name="speedup", theme="light").svg


@pytest.mark.parametrize("name", WIDTHS)
def test_a_narrow_page_gets_a_chart_of_its_own_with_and_without_scripts(owner, demo, name):
    page = owner.get(reverse("run", args=[demo.pk])).content.decode()
    narrow = reverse("chart_svg", args=[demo.pk, f"{name}-narrow"])
    as_json = reverse("chart_json", args=[demo.pk, f"{name}-narrow"])
    assert f'data-narrow="{as_json}"' in page
    for theme in THEMES:
        assert f'srcset="{narrow}?theme={theme}" media="' in page
        answer = owner.get(narrow, {"theme": theme})
        chart = Chart.objects.get(run=demo, name=f"{name}-narrow", theme=theme)
        assert (answer.status_code, answer.content.decode()) == (200, chart.svg)
        assert owner.get(as_json, {"theme": theme}).json() == chart.spec


@pytest.mark.parametrize("name", WIDTHS)
def test_charts_fit_their_column_unscaled_and_their_text_is_as_large_on_a_phone(drawn, name):
    room = {"speedup": (654, 332), "latency": (439, 332)}[name]
    for suffix, most in zip(("", "-narrow"), room, strict=True):
        svg = drawn[1][f"{name}{suffix}", "light"].svg
        assert most - 30 < float(re.search(r' width="([\d.]+)"', svg)[1]) <= most
        assert set(re.findall(r'font-size="([\d.]+)px"', svg)) == {"11"}


@pytest.mark.parametrize("name, theme", [("pie", "light"), ("speedup", "neon")])
def test_a_chart_that_does_not_exist_is_a_404(owner, demo, name, theme):
    for view in ("chart_json", "chart_svg"):
        assert owner.get(reverse(view, args=[demo.pk, name]), {"theme": theme}).status_code == 404


def test_names_in_a_chart_are_text(exported, db):
    data = shortened(exported, 1)
    evil = '<script>alert("1")</script>'
    results = data["measurements"][0]["results"]
    results = [results[0], results[1] | {"kernel": evil}]
    run = load(data | {"measurements": [data["measurements"][0] | {"results": results}]}, "x.json")
    assert Result.objects.filter(kernel__name=evil).exists()
    for name in NAMES:
        assert "<script" not in chart_of(run, name, "light").svg

"""Charts: every result with a time is drawn, nothing is drawn of nothing, and each theme has colours of its own."""

import json
import math
import re
from itertools import pairwise, product

import altair as alt
import pytest
from cast import load, shortened
from django.db import transaction
from django.urls import reverse
from vl_convert import vegalite_to_svg

from benchsite.queues import WHEN_IDLE
from kernels.report import tables
from runs import tasks
from runs.charts import leaderboard, run_scaling, run_stored
from runs.charts.pictures import SHARP
from runs.charts.row_labels import Place, column, labels_of, text_width
from runs.charts.run_charts import NAMES, WIDTHS, _side, leader_of, rows_of, short_labels, sizes_of
from runs.charts.run_stored import chart_of, names_of
from runs.charts.scales import log_ticks, ratio_ticks
from runs.charts.theme import STAND_INS, THEMES
from runs.models import Chart, Result, Run
from runs.queries import measurements
from runs.queries.coverage import Curve


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


@pytest.mark.parametrize("name", NAMES)
def test_a_chart_is_as_large_as_the_page_reserves(drawn, name):
    table, found = drawn
    wide, small = sizes_of(table)[name.removesuffix("-narrow")]
    size = small if name.endswith("-narrow") else wide
    head = re.search(r"<svg[^>]*>", found[name, "light"].svg)[0]
    assert (f' width="{size.width}"' in head, f' height="{size.height}"' in head) == (True, True), head


@pytest.mark.parametrize("name", ["speedup", "speedup-narrow"])
def test_the_speedup_chart_draws_the_leader_on_every_workload(drawn, name):
    table, found = drawn
    wanted = {row.workload: (row.speedup, f"{row.speedup:.2f}x") for row in table if row.kernel == "triton-flash"}
    seen = points(found[name, "light"].spec, "workload", "kernel", "speedup", "text", "low", "high")
    assert {workload: (speedup, text) for workload, _, speedup, text, *_ in seen} == wanted
    assert {kernel for _, kernel, *_ in seen} == {"triton-flash"} == {leader_of(table)}
    assert all(low < speedup < high for _, _, speedup, _, low, high in seen)


@pytest.mark.parametrize("name", ["latency", "latency-narrow"])
def test_the_other_chart_has_the_shares_of_baseline_and_leader(drawn, name):
    table, found = drawn
    wanted = {
        (row.workload, row.kernel): row.limit_share for row in table if row.kernel in ("sdpa", "triton-flash")
    }  # fmt: skip
    seen = points(found[name, "light"].spec, "workload", "kernel", "who", "value")
    assert {(workload, kernel): value for workload, kernel, _, value in seen} == wanted and len(seen) == 16
    assert {(kernel, who) for _, kernel, who, _ in seen} == {("sdpa", "baseline"), ("triton-flash", "leader")}
    for text in ("speed of light", "triton-flash", ">sdpa<", "62%"):
        assert text in found[name, "light"].svg, text


@pytest.mark.parametrize("name", ["speedup", "speedup-narrow"])
def test_each_workload_has_the_band_of_its_own_margin_behind_its_own_row(exported, db, name):
    margins = (0.01, 0.14, 0.06)
    data = shortened(exported, 3)
    changed = [m | {"margin": margin} for m, margin in zip(data["measurements"], margins, strict=True)]
    spec = chart_of(load(data | {"measurements": changed}, "x.json"), name, "light").spec
    bands = points(spec, "workload", "margin", "band_low", "band_high", "top", "bottom")
    assert [margin for _, margin, *_ in bands] == list(margins)
    for (workload, margin, low, high, top, bottom), (other, y) in zip(
        bands, points(spec, "workload", "y")[:3], strict=True
    ):
        assert (low, high) == pytest.approx((1 / (1 + margin), 1 + margin))
        assert workload == other and top < y < bottom


def test_a_number_never_covers_the_line_at_one_if_there_is_room():
    at = (0.5, 2.0, 400)
    assert [_side(ratio * 0.999, ratio * 1.001, *at) for ratio in (0.97, 1.03, 0.6, 0.51)] == [
        "left", "right", "right", "right",
    ]  # fmt: skip


@pytest.mark.parametrize("status", ["impossible", "suspect", "incorrect"])
def test_a_result_that_is_not_ok_is_drawn_nowhere_although_it_keeps_its_times(exported, db, status):
    run = load(shortened(exported, 2), "x.json")
    result = Result.objects.get(measurement=run.measurements.first(), kernel__name="triton-flash")
    assert result.p50_ms and result.speedup
    Result.objects.filter(pk=result.pk).update(status=status)
    for name, figure in (("speedup", "speedup"), ("latency", "value")):
        spec = chart_of(run, name, "light").spec
        kernels = [(w, k) for w, k, value in points(spec, "workload", "kernel", figure) if value is not None]
        assert [workload for workload, kernel in kernels if kernel == "triton-flash"] == [
            "attention fp16 B=1 H=8 S=512 D=64 causal"
        ]
    assert f">{status}<" in chart_of(run, "speedup", "light").svg, "why nothing is drawn there"
    Result.objects.filter(measurement__run=run).update(status=status)
    Chart.objects.all().delete()
    assert [chart_of(run, name, "light") for name in NAMES] == [None] * len(NAMES)


def test_the_speed_of_light_has_not_the_colour_of_slower(drawn):
    spec = drawn[1]["latency", "light"].spec
    assert THEMES["light"]["slower"] not in str(spec) and THEMES["light"]["amber"] in str(spec)


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("theme", THEMES)
def test_every_mark_stands_out_from_the_panel(theme):
    panel = luminance(THEMES[theme]["panel"])
    for mark in ("ink", "quiet", "faster", "slower", "accent", "other", "amber"):
        darker, lighter = sorted((panel, luminance(THEMES[theme][mark])))
        assert (lighter + 0.05) / (darker + 0.05) >= 3, mark


@pytest.mark.parametrize("low, high", [(0.28, 12), (7, 63), (0.4, 80_000), (12, 95), (0.205, 0.34), (2, 3.1), (1, 2.9)])
@pytest.mark.parametrize("width", [164, 272])
def test_labels_of_a_small_latency_axis_stand_apart(low, high, width):
    """With the widths of the chart beside the speedups, whose labels are up to 40 pixels wide."""
    ticks = log_ticks(low, high, width // 64)
    pixels = [width * math.log(tick / low) / math.log(high / low) for tick in ticks]
    assert len(ticks) >= 2
    assert min(after - before for before, after in pairwise(pixels)) >= 40, ticks


@pytest.mark.parametrize("low, high", [(0.4, 80_000), (3_100, 6_400), (100, 150), (7, 63), (12, 95), (1e-3, 1e9)])
@pytest.mark.parametrize("most", [7, 9])
def test_the_latency_axis_has_a_few_round_numbers(low, high, most):
    ticks = log_ticks(low, high, most)
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
    assert len(points(chart_of(run, "latency", "light").spec, "kernel", "value")) == 2
    page = owner.get(reverse("run", args=[run.pk])).content.decode()
    assert "How much of the speed of light</h2>" in page
    assert " over sdpa</h2>" not in page


def test_a_device_without_known_peaks_has_no_speed_of_light(exported, db):
    data = shortened(exported, 1)
    results = [r | {"limit_ms": None, "limit_share": None} for r in data["measurements"][0]["results"]]
    run = load(data | {"measurements": [data["measurements"][0] | {"results": results}]}, "x.json")
    chart = chart_of(run, "latency", "light")
    assert "speed of light" not in chart.svg + str(chart.spec)
    times = dict(points(chart.spec, "kernel", "value"))
    assert times == {r["kernel"]: r["p50_ms"] for r in results if r["kernel"] in ("sdpa", "triton-flash")}
    assert "µs<" in chart.svg


@pytest.mark.parametrize(
    ("base", "leader", "text", "align", "is_below"),
    [(0.3, 0.6, "60%", "left", False), (0.6, 0.3, "30%", "right", False), (0.6, 0.05, "5%", "left", True)],
)
def test_the_number_is_the_leaders_and_stands_away_from_the_baselines_mark(
    exported, db, base, leader, text, align, is_below
):
    shares = {"sdpa": base, "triton-flash": leader}
    run = load(shortened(exported, 1), "x.json")
    for kernel, share in shares.items():
        Result.objects.filter(measurement__run=run, kernel__name=kernel).update(limit_share=share)
    spec = chart_of(run, "latency", "light").spec
    (number,) = [row for rows in spec["datasets"].values() for row in rows if "shift" in row]
    assert (number["text"], number["align"], number["down"] > 0) == (text, align, is_below)


@pytest.mark.parametrize("suffix", ["", "-narrow"])
def test_the_time_and_the_name_beside_the_last_mark_have_room(exported, db, suffix):
    data = shortened(exported, 1)
    times = {"sdpa": 7.92, "triton-flash": 11.4}
    results = [
        r | {"limit_ms": None, "limit_share": None, "p50_ms": times.get(r["kernel"], r["p50_ms"])}
        for r in data["measurements"][0]["results"]
    ]
    run = load(data | {"measurements": [data["measurements"][0] | {"results": results}]}, "x.json")
    spec = chart_of(run, f"latency{suffix}", "light").spec
    domain = next(one["domain"] for one in every(spec, "scale") if one.get("type") == "log")
    after = spec["padding"]["right"] + spec["width"] * math.log(domain[1] / 11.4) / math.log(domain[1] / domain[0])
    assert after >= 11 + 6 * len("11.4 ms") and after >= 6 * len("triton-flash") - 3


def every(spec, key):
    """Each value of this key, anywhere in a spec."""
    below = spec.values() if isinstance(spec, dict) else spec if isinstance(spec, list) else ()
    own = [spec[key]] if isinstance(spec, dict) and isinstance(spec.get(key), dict) else []
    return own + [one for part in below for one in every(part, key)]


def many(exported, count):
    """A run of so many workloads: the first one of the sample, with other batches."""
    first = exported["measurements"][0]
    batches = [
        first | {"workload": first["workload"] | {"sizes": first["workload"]["sizes"] | {"batch": n}}, "key": ""}
        for n in range(1, count + 1)
    ]
    config = exported["config"] | {"workloads": [m["workload"] for m in batches]}
    return load(exported | {"config": config, "measurements": batches}, "many.json")


def test_of_many_workloads_each_kernel_has_a_row(owner, exported, db):
    run = many(exported, 200)
    page = owner.get(reverse("run", args=[run.pk])).content.decode()
    for name, kernels in (("speedup", 7), ("latency", 8)):
        spec = chart_of(run, name, "light").spec
        assert sum(len(data) for data in spec["datasets"].values()) < 5000
        marks = points(spec, "kernel", "workload", "value")
        assert len({kernel for kernel, *_ in marks}) == kernels
        size = sizes_of(rows_of(run))[name][0]
        assert f' height="{size.height}"' in chart_of(run, name, "light").svg
        assert f'width="{size.width}" height="{size.height}"' in page
    assert "Speedup over sdpa, every workload" in page


def test_two_dtypes_are_told_apart(exported, db):
    data = shortened(exported, 1)
    first = data["measurements"][0]
    second = first | {"workload": first["workload"] | {"dtype": "bfloat16"}, "key": ""}
    run = load(data | {"measurements": [first, second]}, "x.json")
    assert short_labels(rows_of(run), 112) == ([["fp16"], ["bf16"]], "B=1 H=8 S=512 D=64")
    assert ">all: B=1 H=8 S=512 D=64<" in chart_of(run, "speedup", "light").svg


# --- labels and ticks -------------------------------------------------------------------------------------------------

DECODE = [
    Place(f"attention {dtype} B={b} H=32 Hkv={hkv} S={s} Skv={skv} D={d}{causal}", "graph")
    for dtype, b, hkv, s, skv, d, causal in (
        ("bf16", 1, 8, 1, 1024, 128, ""), ("bf16", 1, 8, 1, 131072, 128, ""), ("bf16", 16, 8, 1, 1024, 128, ""),
        ("bf16", 1, 8, 16, 131072, 128, " causal"), ("fp16", 16, 8, 4, 8192, 64, " causal"),
        ("bf16", 1, 1, 1, 131072, 128, ""), ("bf16", 16, 1, 4, 8192, 128, " causal"),
    )
]  # fmt: skip


@pytest.mark.parametrize("width", [112, 206])
def test_rows_of_many_sizes_have_different_labels_that_are_not_cut_off(width):
    labels = labels_of(DECODE, width)
    assert len({tuple(lines) for lines in labels.rows}) == len(DECODE)
    assert all(len(lines) <= 2 and text_width(line) <= width for lines in labels.rows for line in lines)
    assert labels.shared == "H=32" and "H=32" not in " ".join(word for lines in labels.rows for word in lines).split()
    assert all(f"Skv={place.workload.partition('Skv=')[2].split()[0]}" in " ".join(lines).split()
               for place, lines in zip(DECODE, labels.rows, strict=True))  # fmt: skip


@pytest.mark.parametrize("width", [112, 206])
@pytest.mark.parametrize(
    "workloads, rows, shared",
    [
        (["attention fp16 B=1 H=8 S=512 D=64"], "B=1 H=8 S=512 D=64", ""),
        (["attention fp16 B=1 S=512", "attention fp16 B=4 S=512"], "B=1|B=4", "fp16 S=512"),
        (["attention fp16 B=1 S=512", "attention fp16 B=1 S=512 causal"], "B=1|B=1 causal", "fp16 S=512"),
        (["softmax bf16 16384 x 4096", "softmax bf16 4096 x 768"], "16384 x 4096|4096 x 768", "bf16"),
        (["gelu bf16 64 x 32", "gelu bf16 64 x 32 tanh"], "64 x 32|64 x 32 tanh", "bf16"),
        (
            ["nsa bf16 S=64 16 blocks of 64", "nsa bf16 S=64 8 blocks of 64"],
            "16 blocks of 64|8 blocks of 64",
            "bf16 S=64",
        ),
        (["problem fp32 mine@0123 n=4 m=8", "problem fp32 mine@0123 n=5 m=8"], "n=4|n=5", "fp32 m=8"),
    ],
)
def test_a_label_says_what_varies_and_a_row_alone_its_sizes(workloads, rows, shared, width):
    labels = labels_of([Place(workload, "graph") for workload in workloads], width)
    assert ("|".join(" ".join(lines) for lines in labels.rows), labels.shared) == (rows, shared)


def test_one_workload_that_is_timed_in_two_ways_has_two_labels():
    labels = labels_of([Place("gemm fp16 M=8 N=8 K=8", mode) for mode in ("graph", "cold")], 112)
    assert labels == ([["graph"], ["cold"]], "fp16 M=8 N=8 K=8")


def test_a_column_grows_for_labels_that_do_not_fit():
    sizes = product((8, 1 << 30), repeat=3)
    large = [Place(f"gemm fp16 M={m} N={n} K={k}", "graph") for m, n, k in sizes]
    assert column(DECODE, 112, 160) == 112 < column(large, 112, 200) < 200


@pytest.mark.parametrize("suffix", ["", "-narrow"])
def test_a_large_speedup_has_room_for_its_number(exported, db, suffix):
    data = shortened(exported, 2)
    large = {"speedup": 2222.14, "speedup_low": 2220.0, "speedup_high": 2224.0}
    first = data["measurements"][0]
    results = [one | large if one["kernel"] == "triton-flash" else one for one in first["results"]]
    run = load(data | {"measurements": [first | {"results": results}, data["measurements"][1]]}, "x.json")
    spec = chart_of(run, f"speedup{suffix}", "light").spec
    assert points(spec, "workload", "text")[0][1] == "2222.14x"
    assert spec["padding"]["right"] >= 11 + 7 * len("2222.14") + 5


@pytest.mark.parametrize("suffix", ["", "-narrow"])
def test_a_long_name_ends_inside_the_chart(exported, db, suffix):
    data = shortened(exported, 2)
    for one in data["measurements"]:
        for result in one["results"]:
            if result["kernel"] == "triton-flash":
                result |= {"limit_share": 0.97}
    long = json.loads(json.dumps(data).replace('"triton-flash"', '"triton-flash-decode"'))
    spec = chart_of(load(long, "x.json"), f"latency{suffix}", "light").spec
    names = [one for one in every(spec, "mark") if one.get("dy") == -14 and one.get("limit", 0) > 80]
    assert names
    for one in names:
        begin = spec["width"] * 0.97 + one["dx"]
        assert begin + text_width("triton-flash-decode") <= spec["width"] + spec["padding"]["right"] + 1


@pytest.mark.parametrize(
    "low, high, most, ticks",
    [
        (0.95, 3.02, 7, [1, 1.5, 2, 3]), (0.95, 3.02, 3, [1, 2, 3]), (0.7, 22.2, 7, [1, 2, 5, 10, 20]),
        (0.7, 22.2, 3, [1, 5, 20]), (0.95, 1.05, 7, [0.95, 1, 1.05]), (0.5, 2.0, 3, [0.5, 1, 2]),
    ],
)  # fmt: skip
def test_ticks_of_ratios_reach_both_ends(low, high, most, ticks):
    assert ratio_ticks(low, high, most) == ticks


@pytest.mark.parametrize("most", [4, 5, 7, 14])
@pytest.mark.parametrize("low", [0.95, 0.8, 0.5, 0.2, 0.03])
@pytest.mark.parametrize("high", [1.05, 1.4, 2.0, 3.1, 6.7, 12, 22, 60, 300])
def test_an_axis_of_ratios_has_three_to_seven_ticks_most_of_the_way(low, high, most):
    ticks = ratio_ticks(low, high, most)
    assert 3 <= len(ticks) <= min(most, 7) and 1 in ticks
    assert math.log(ticks[-1] / ticks[0]) > 0.6 * math.log(high / low), ticks


# --- how often a kernel is how fast -----------------------------------------------------------------------------------

CURVES = [
    Curve("triton-flash", [0.81, 0.92, 1.04, 1.11, 1.2, 1.43, 1.57], 7), Curve("sdpa-cudnn", [1.0] * 7, 7),
    Curve("sdpa-flash", [0.55, 0.64, 0.72, 0.81, 0.87, 0.93, 0.98], 7),
    Curve("sdpa-efficient", [0.27, 0.27, 0.36, 0.4, 0.41, 0.43, 0.48], 7),
]  # fmt: skip


@pytest.mark.parametrize("theme", THEMES)
def test_the_curves_fill_a_logarithmic_axis_and_their_names_are_in_ink(theme):
    spec = leaderboard.fast(CURVES, THEMES[theme]).to_dict()
    (scale,) = {json.dumps(one) for one in every(spec, "scale") if one.get("type") == "log"}
    low, high = json.loads(scale)["domain"]
    assert low < 0.27 and math.log(1.57 / low) > 0.75 * math.log(high / low)
    texts = [one for one in every(spec, "mark") if one["type"] == "text" and "stroke" not in one]
    assert [one["color"] for one in texts] == [THEMES[theme]["ink"]]


@pytest.mark.parametrize(
    "curves",
    [CURVES, [Curve("high", [2.0, 9.0, 9.0], 3), Curve("rare", [1.1], 9), Curve("slow", [0.1, 0.1, 0.3], 3)]],
    ids=["all", "beyond the axis"],
)
def test_a_name_stands_beside_its_own_curve(curves):
    axis = leaderboard._axis_of(curves)
    for name in leaderboard._names(curves, axis):
        below = name.curve.share(name.ratio * 1.0001)
        assert below <= name.height <= name.curve.share(name.ratio), name.curve.kernel
        assert axis.low <= name.ratio <= axis.high


def test_a_name_lies_on_no_curve_and_on_no_other_name():
    axis = leaderboard._axis_of(CURVES)
    names = leaderboard._names(CURVES, axis)
    assert [name.curve for name in names] == CURVES
    assert not [(name.curve.kernel, one.kernel) for name in names for one in CURVES if name.is_crossed(one, axis)]
    assert not any(one.is_on(other) for number, one in enumerate(names) for other in names[:number])
    assert all(name.begin >= 0 and name.end <= leaderboard.WIDTH + 1 for name in names)


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
    monkeypatch.setattr(run_stored, "DRAWING", {"look": "new"})
    monkeypatch.setitem(THEMES["light"], "ink", "#654321")
    assert "#654321" in chart_of(run, "latency", "light").svg
    assert Chart.objects.count() == len(THEMES)


def test_a_chart_is_drawn_once_for_all_themes_in_the_colours_of_each(exported, db, monkeypatch):
    run = load(shortened(exported, 1), "x.json")
    found = {theme: chart_of(run, "speedup", theme) for theme in THEMES}
    for theme, other in (("light", "dark"), ("dark", "light")):
        for text in (json.dumps(found[theme].spec), found[theme].svg):
            assert THEMES[theme]["ink"] in text and THEMES[other]["ink"] not in text
            assert not any(colour in text for colour in STAND_INS.values())
        own, stored = (
            re.sub(r"clip\d+", "clip", svg) for svg in (vegalite_to_svg(found[theme].spec), found[theme].svg)
        )
        assert own == stored, "as if it had been drawn for this theme"
    monkeypatch.setattr(run_stored, "_drawing", None)
    assert chart_of(run, "speedup", "dark").svg == found["dark"].svg, "it is there already"


def test_stand_ins_are_no_colours_of_a_theme():
    assert not set(STAND_INS.values()) & {colour for theme in THEMES.values() for colour in theme.values()}
    assert all(theme.keys() == STAND_INS.keys() for theme in THEMES.values())


def test_ended_runs_get_all_their_charts_one_after_the_other_when_nothing_else_waits(exported, db, monkeypatch):
    run, asked = load(shortened(exported, 1), "x.json"), []
    monkeypatch.setattr(tasks, "send", lambda task, *of, priority: asked.append((task, of, priority)))
    tasks.draw_charts(run.pk)
    assert (asked, run.charts.count()) == ([("draw_charts", (run.pk, 1), WHEN_IDLE)], 2 * len(THEMES))
    while asked:
        tasks.draw_charts(*asked.pop()[1])
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


@pytest.mark.parametrize("theme", THEMES)
def test_a_chart_comes_as_png_and_its_page_names_both_files(owner, demo, theme):
    svg, png = (reverse(f"chart_{kind}", args=[demo.pk, "speedup"]) for kind in ("svg", "png"))
    page = owner.get(reverse("run", args=[demo.pk])).content.decode()
    assert f'<a href="{svg}" download="run-{demo.pk}-speedup.svg">svg</a> · <a href="{png}">png</a>' in page
    answer = owner.get(png, {"theme": theme})
    assert (answer["Content-Type"], answer.content[:4]) == ("image/png", b"\x89PNG")
    assert answer["Content-Disposition"] == f'attachment; filename="run-{demo.pk}-speedup.png"'
    width = int.from_bytes(answer.content[16:20], "big")
    assert width == SHARP * WIDTHS["speedup"][0]


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
        assert most - 10 < float(re.search(r' width="([\d.]+)"', svg)[1]) <= most
        assert set(re.findall(r'font-size="([\d.]+)px"', svg)) == {"11"}


@pytest.mark.parametrize("name, theme", [("pie", "light"), ("speedup", "neon")])
def test_a_chart_that_does_not_exist_is_a_404(owner, demo, name, theme):
    for view in ("chart_json", "chart_svg"):
        assert owner.get(reverse(view, args=[demo.pk, name]), {"theme": theme}).status_code == 404


def test_a_size_has_the_letter_of_its_label():
    shown = run_scaling.letters("attention")
    assert (shown["heads"], shown["kv_heads"], shown["kv_len"]) == ("H", "Hkv", "Skv")


def test_names_in_a_chart_are_text(exported, db):
    data = shortened(exported, 1)
    evil = '<script>alert("1")</script>'
    results = data["measurements"][0]["results"]
    results = [results[0], results[1] | {"kernel": evil}]
    run = load(data | {"measurements": [data["measurements"][0] | {"results": results}]}, "x.json")
    assert Result.objects.filter(kernel__name=evil).exists()
    for name in NAMES:
        assert "<script" not in chart_of(run, name, "light").svg


def test_a_size_that_varies_has_a_chart_a_sentence_and_a_table(owner, exported, demo):
    page = owner.get(reverse("run", args=[demo.pk])).content.decode()
    assert "Time against B and H <small>S=512 D=64</small>" in page
    assert (
        "triton-flash&#x27;s time grows 3.87x ±0.2% while the work grows 16x: latency-bound below B=4 H=16; sdpa&#x27;s 2.70x"
        in page
    )
    names = [name for name in names_of(demo) if name.startswith("scaling")]
    assert names == ["scaling_batch-heads", "scaling_batch-heads-narrow"]
    for name in names:
        svg = chart_of(demo, name, "light").svg
        width = run_scaling.WIDTHS[name.endswith("narrow")]
        assert f' width="{width}" height="{run_scaling.HEIGHT}"' in svg
        lines = points(chart_of(demo, name, "light").spec, "kernel", "size", "ms", "who")
        assert len({kernel for kernel, *_ in lines}) == 8 and len({ms for _, _, ms, _ in lines}) == 24
        assert owner.get(reverse("chart_svg", args=[demo.pk, name])).status_code == 200
    one = load(shortened(exported, 1), "one.json")
    assert "Time against" not in owner.get(reverse("run", args=[one.pk])).content.decode()

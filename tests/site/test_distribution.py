"""Charts of one result: every sample is counted, what is thinned or beyond an axis is said, arms far apart are shown alike."""

import altair as alt
import numpy as np
import pytest
import vl_convert
from cast import load, shortened
from django.urls import reverse

from kernels.contract.arm_result import ArmResult
from runs.charts.distribution import (
    MOST_DOTS,
    MOST_LINES,
    NAMES,
    WIDTHS,
    Arm,
    Rounds,
    Samples,
    arms_of,
    captions,
    spec_of,
)
from runs.charts.distribution.arms import within_fences
from runs.charts.theme import THEMES
from runs.models import Result
from runs.queries import measurements

SPREAD = [10.0, 10.1, 9.9, 10.2, 9.8]


def arm(rounds, name="new", ink="accent", low=None, high=None):
    """An arm as from microseconds; its interval is its median alone unless given."""
    middle = float(np.median([tick for ticks in rounds for tick in ticks]))
    return Arm(name, ink, [list(map(float, ticks)) for ticks in rounds], low or middle, high or middle)


def base(rounds, **more):
    return arm(rounds, "base", "ink", **more)


def rows(spec, *fields):
    """Every row of data in a chart that has all of these fields."""
    found = [row for data in spec["datasets"].values() for row in data if set(fields) <= set(row)]
    return [tuple(row[field] for field in fields) for row in found]


def lines(spec, kernel):
    return [us for name, us, _, _ in rows(spec, "kernel", "us", "round", "top") if name == kernel]


def bars(spec, kernel):
    return [
        (start, end, count)
        for name, start, end, count in rows(spec, "kernel", "from", "to", "samples")
        if name == kernel
    ]


def axis_of(spec, channel="x"):
    """(title, domain) of the first layer that has one."""
    channels = [layer["encoding"][channel] for layer in spec["layer"] if "scale" in layer["encoding"].get(channel, {})]
    return channels[0]["title"], channels[0]["scale"]["domain"]


# --- what is drawn ----------------------------------------------------------------------------------------------------


def test_every_sample_is_a_line_and_is_counted_in_a_bar():
    arms = [base([[11.0, 11.1], [11.2, 11.3]]), arm([[10.0, 10.1], [9.9, 10.2]])]
    spec = spec_of(arms, "samples", "light")
    assert sorted(lines(spec, "base")) == [11.0, 11.1, 11.2, 11.3]
    assert sorted(lines(spec, "new")) == [9.9, 10.0, 10.1, 10.2]
    assert {(us, number) for us, number in rows(spec, "us", "round")} >= {(10.1, 1), (9.9, 2), (11.3, 2)}
    for one in arms:
        for start, end, count in bars(spec, one.name):
            assert count == sum(start <= us < end for us in one.values)
        assert sum(count for _, _, count in bars(spec, one.name)) == 4
    assert captions(arms)["samples"][0] == "Bars: histogram. Thin lines: one for each sample."


def test_the_median_stands_where_it_is_with_its_interval():
    arms = [base([[11.0], [11.2], [11.4]], low=11.0, high=11.4), arm([[10.0], [10.3], [10.4]], low=10.1, high=10.35)]
    spec = spec_of(arms, "samples", "light")
    middles = {name: values for name, *values in rows(spec, "kernel", "median", "low", "high")}
    assert middles == {"base": [11.2, 11.0, 11.4], "new": [10.3, 10.1, 10.35]}
    svg = vl_convert.vegalite_to_svg(spec)
    for text in ("base", "new", "median 11.2 µs, 3 samples", "median 10.3 µs, 3 samples", "microseconds"):
        assert text in svg, text


def test_the_baseline_is_above_and_both_share_an_axis_in_microseconds():
    spec = spec_of([base([SPREAD] * 3), arm([[9.0, 9.1], [9.2, 9.5]])], "samples", "light")
    title, (low, high) = axis_of(spec)
    assert title == "microseconds"
    assert low < 9.0 < 10.2 < high
    tops = dict(rows(spec, "kernel", "top"))
    assert tops["base"] < tops["new"]


def test_arms_far_apart_are_in_percent_of_their_own_medians_and_that_is_said():
    arms = [base([[100.0, 101.0], [99.0, 100.0]]), arm([[1.0, 1.02], [0.98, 1.0]])]
    spec = spec_of(arms, "samples", "light")
    title, (low, high) = axis_of(spec)
    assert title == "percent off its own median"
    assert -2.5 < low < -2 < 2 < high < 2.5
    places = {(name, us): at for name, us, at in rows(spec, "kernel", "us", "at")}
    assert places["base", 101.0] == pytest.approx(1)
    assert places["new", 1.02] == pytest.approx(2)
    assert "in percent of its own median" in " ".join(captions(arms)["samples"])
    assert "percent" not in " ".join(captions([arms[0], base([[101.0, 102.0]])])["samples"])


def test_an_extreme_sample_stands_at_the_edge_with_a_count_and_does_not_squash_the_axis():
    arms = [base([SPREAD] * 20), arm([*[SPREAD] * 19, [10.0, 10.1, 9.9, 400.0, 1000.0]])]
    spec = spec_of(arms, "samples", "light")
    assert axis_of(spec)[1][1] < 12
    assert rows(spec, "kernel", "beyond", "text", "side") == [("new", 2, "2 beyond, up to 1,000 us", "right")]
    assert "2 beyond, up to 1,000 us" in vl_convert.vegalite_to_svg(spec)
    assert "2 samples of new lie beyond the axis, up to 1,000 us." in captions(arms)["samples"]
    assert len(lines(spec, "new")) == 98
    assert sum(count for _, _, count in bars(spec, "new")) == 98


def test_a_sample_far_too_short_stands_at_the_other_edge():
    arms = [arm([*[SPREAD] * 19, [10.0, 10.1, 9.9, 10.0, 0.5]])]
    assert rows(spec_of(arms, "samples", "light"), "at", "side", "text")[0][1:] == (
        "left",
        "1 beyond, down to 0.500 us",
    )
    assert "1 sample of new lies beyond the axis, down to 0.500 us." in captions(arms)["samples"]


def test_a_second_mode_is_no_outlier():
    slow = [[10.0, 10.1, 9.9, 10.2, 9.8, 9.9, 10.0, 10.1, 10.0, 14.0]] * 20
    spec = spec_of([arm(slow)], "samples", "light")
    assert axis_of(spec)[1][1] > 14
    assert not rows(spec, "beyond")
    assert lines(spec, "new").count(14.0) == 20


def test_the_interval_is_never_cut_off():
    wide = [[10.0], [10.1], [9.9], [10.0], [90.0]]
    assert axis_of(spec_of([arm(wide, low=9.9, high=90.0)], "samples", "light"))[1][1] > 90
    assert axis_of(spec_of([arm(wide)], "samples", "light"))[1][1] < 20


def test_many_samples_are_thinned_evenly_by_rank_and_that_is_said():
    many = [[10 + number / 1000 + round_ / 1e6 for number in range(50)] for round_ in range(60)]
    arms = [base([SPREAD] * 3), arm(many)]
    spec = spec_of(arms, "samples", "light")
    shown = lines(spec, "new")
    assert len(shown) == MOST_LINES
    assert (min(shown), max(shown)) == (pytest.approx(10.0), pytest.approx(10.049059, abs=1e-4))
    assert np.median(shown) == pytest.approx(np.median(many), abs=1e-3)
    assert sum(count for _, _, count in bars(spec, "new")) == 3000
    assert len(lines(spec, "base")) == 15
    text = captions(arms)["samples"][0]
    assert "Thin lines: 300 of 3,000 samples of new, evenly spaced by rank, and every sample of the other." in text


def test_no_result_sends_more_than_about_2000_points():
    huge = [[10 + (7 * i % 50) / 100 + (i * j % 13) / 50 for i in range(50)] for j in range(1000)]
    arms = [base(huge), arm(huge)]
    sent = [sum(map(len, spec_of(arms, name, "light")["datasets"].values())) for name in NAMES]
    assert sum(sent) <= 2000
    assert min(sent) > 500


# --- the rounds -------------------------------------------------------------------------------------------------------


def offs(arms, paired=True):
    spec = spec_of(arms, "rounds", "light", paired=paired)
    return {(name, number): (off, edge) for name, number, off, edge in rows(spec, "kernel", "round", "off", "edge")}


def test_each_round_is_drawn_by_its_median_in_percent_off_the_arms_own():
    arms = [base([[20.0, 20.0], [20.2, 90.0, 20.2], [19.8]]), arm([[10.0], [10.3], [10.0]])]
    assert {where: off for where, (off, _) in offs(arms).items()} == {
        ("base", 1): 0, ("base", 2): pytest.approx(1), ("base", 3): pytest.approx(-1),
        ("new", 1): 0, ("new", 2): pytest.approx(3), ("new", 3): 0,
    }  # fmt: skip
    assert captions(arms)["rounds"] == [
        "Each dot is the median of a round.",
        "Drift of the device moves both. It cancels in the speedup.",
    ]


def test_a_throttled_stretch_is_within_the_axis_and_a_lone_spike_at_its_edge():
    slow = [[10.0 + 0.01 * (number % 5)] for number in range(54)] + [[11.0]] * 6
    spike = [[10.0 + 0.01 * (number % 5)] for number in range(59)] + [[50.0]]
    assert {edge for _, edge in offs([arm(slow)]).values()} == {""}
    assert Rounds([arm(slow)], True).axis[1] > 9
    found = offs([arm(spike)])
    assert [where for where, (_, edge) in found.items() if edge] == [("new", 60)]
    assert found["new", 60][1] == "up"
    assert Rounds([arm(spike)], True).axis[1] < 2
    assert "1 round of new lies beyond the axis, as far as +399%." in captions([arm(spike)])["rounds"]
    far = [*spike[:-1], [1847.0]]
    assert "1 round of new lies beyond the axis, as far as +18,300%." in captions([arm(far)])["rounds"]


def test_quiet_rounds_look_quiet():
    assert Rounds([arm([[10.0], [10.001]] * 10)], True).axis == (-0.5, 0.5)


def test_calls_one_after_the_other_are_called_so():
    arms = [base([[10.0]] * 30), arm([[11.0]] * 30)]
    spec = spec_of(arms, "rounds", "light", paired=False)
    assert axis_of(spec)[0] == "call"
    assert axis_of(spec_of(arms, "rounds", "light"))[0] == "round"
    text = " ".join(captions(arms, paired=False)["rounds"])
    assert text == "Each dot is a call. The kernels ran one after the other: equal round numbers are different times."


def test_neighbours_share_a_dot_where_there_are_too_many_and_the_spike_among_them_is_told():
    ticks = [[10.0 + 0.1 * (number % 3)] for number in range(1200)]
    ticks[600] = [80.0]
    arms = [arm(ticks)]
    spec = spec_of(arms, "rounds", "light", paired=False)
    dots = rows(spec, "round", "from", "to")
    assert len(dots) == 400 <= MOST_DOTS
    assert dots[:2] == [(2.0, pytest.approx(-0.990, abs=1e-3), pytest.approx(0.990, abs=1e-3)), (5.0, *dots[0][1:])]
    assert captions(arms, paired=False)["rounds"][0] == (
        "Each dot is the median of 3 calls, and the line through it spans them."
    )
    assert "1 call of new lies beyond the axis, as far as +692%." in captions(arms, paired=False)["rounds"]


@pytest.mark.parametrize(
    "count, ticks", [(1, [1]), (5, [1, 2, 3, 4, 5]), (20, [5, 10, 15, 20]), (60, [10, 20, 30, 40, 50, 60])]
)
def test_rounds_are_numbered_from_1_in_whole_steps(count, ticks):
    assert Rounds([arm([[10.0]] * count)], True).ticks() == ticks


# --- every shape ------------------------------------------------------------------------------------------------------

SHAPES = {
    "one sample": [arm([[10.0]])],
    "all alike": [base([[10.0]] * 9), arm([[10.0]] * 9)],
    "five rounds beside sixty": [base([SPREAD] * 60), arm([SPREAD] * 5)],
    "far apart": [base([[1.0]] * 9), arm([[1e6]] * 9)],
    "nothing to see": [base([[0.0]] * 9), arm([[0.0]] * 9)],
    "spikes on both sides": [arm([[1e-3, *SPREAD * 20, 1e6]])],
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.filterwarnings("error")
def test_whatever_was_measured_makes_a_valid_chart(shape, name):
    spec = spec_of(SHAPES[shape], name, "light")
    alt.Chart.from_dict(spec)
    low, high = axis_of(spec)[1]
    assert np.isfinite([low, high]).all() and low < high
    assert vl_convert.vegalite_to_svg(spec).startswith("<svg")
    assert all(text.endswith(".") for text in captions(SHAPES[shape])[name])


@pytest.mark.parametrize("name", NAMES)
def test_each_theme_has_its_own_colours(name):
    arms = [base([SPREAD] * 3), arm([SPREAD] * 3)]
    for theme, other in (("light", "dark"), ("dark", "light")):
        spec = spec_of(arms, name, theme)
        text = str(spec) + vl_convert.vegalite_to_svg(spec)
        for colour in ("ink", "accent", "quiet"):
            assert THEMES[theme][colour] in text
        assert not any(colour in text for colour in set(THEMES[other].values()) - set(THEMES[theme].values()))


@pytest.mark.parametrize("name", NAMES)
def test_a_narrow_page_gets_a_chart_of_its_own(name):
    arms = [arm([SPREAD] * 3)]
    widths = tuple(spec_of(arms, name, "light", narrow)["width"] for narrow in (False, True))
    assert widths == WIDTHS[name]
    assert widths[1] < 330


def test_names_in_a_chart_are_text():
    arms = [arm([SPREAD] * 3, name='<script>alert("1")</script>')]
    for name in NAMES:
        assert "<script" not in vl_convert.vegalite_to_svg(spec_of(arms, name, "light"))


# --- from results -----------------------------------------------------------------------------------------------------


def made(name, samples_ns):
    times = {"n": 1, "rounds": 1, "p50_ms": 0.01, "p50_low_ms": 0.009, "p50_high_ms": 0.011}
    return ArmResult(kernel=name, samples_ns=samples_ns, **times)


def test_arms_are_in_microseconds_the_baseline_first():
    new, old = made("new", [[10_000.0, 10_500.0]]), made("old", [[12_000.0]])
    arms = arms_of(new, old)
    assert [(a.name, a.ink, a.rounds) for a in arms] == [("old", "ink", [[12.0]]), ("new", "accent", [[10.0, 10.5]])]
    assert (arms[1].low, arms[1].high) == (pytest.approx(9), pytest.approx(11))
    assert [a.name for a in arms_of(old, old)] == ["old"]
    assert [a.name for a in arms_of(new, None)] == ["new"]
    assert [a.name for a in arms_of(new, made("old", None))] == ["new"]
    assert arms_of(made("new", None), old) == arms_of(made("new", [[]]), old) == []


@pytest.fixture
def first(exported, db):
    """Results of a run with one workload, by kernel."""
    run = load(shortened(exported, 1), "x.json")
    return {
        r.kernel.name: r for r in Result.objects.filter(measurement__run=run).select_related("kernel", "measurement")
    }


def address(result, kind, name):
    return reverse(f"result_chart_{kind}", args=[result.measurement.run_id, result.pk, name])


@pytest.mark.parametrize("name", NAMES)
def test_a_chart_comes_as_json_and_as_svg_in_the_theme_and_width_asked_for(owner, first, name):
    result = first["triton-flash"]
    _, measured, found = measurements.of_result(result.measurement.run_id, result.pk)
    arms = arms_of(found, measured.arm("sdpa"))
    for theme in THEMES:
        for narrow in (False, True):
            asked = {"theme": theme} | ({"narrow": ""} if narrow else {})
            wanted = spec_of(arms, name, theme, narrow)
            assert owner.get(address(result, "json", name), asked).json() == wanted
            as_svg = owner.get(address(result, "svg", name), asked)
            assert (as_svg["Content-Type"], as_svg.content.decode()) == (
                "image/svg+xml",
                vl_convert.vegalite_to_svg(wanted),
            )
    picture = owner.get(address(result, "png", name))
    assert picture.content.startswith(b"\x89PNG") and f"result-{result.pk}-{name}.png" in picture["Content-Disposition"]
    plain = owner.get(address(result, "svg", name))
    assert plain.content.decode() == vl_convert.vegalite_to_svg(spec_of(arms, name, "light"))


def test_the_protocol_of_the_measurement_decides_what_a_round_is(owner, first):
    result = first["triton-flash"]
    result.measurement.protocol["paired"] = False
    result.measurement.save()
    assert axis_of(owner.get(address(result, "json", "rounds")).json())[0] == "call"


def test_charts_that_are_not_there_are_a_404(owner, first, make_run):
    result = first["eager"]
    for kind in ("json", "svg"):
        assert owner.get(address(result, kind, "pie")).status_code == 404
        assert owner.get(address(result, kind, "samples"), {"theme": "neon"}).status_code == 404
        other = reverse(f"result_chart_{kind}", args=[make_run().pk, result.pk, "samples"])
        assert owner.get(other).status_code == 404
    Result.objects.filter(pk=result.pk).update(samples_ns=None)
    assert b"Not timed" in owner.get(address(result, "svg", "samples")).content


def test_a_chart_takes_four_queries(owner, first, django_assert_max_num_queries):
    with django_assert_max_num_queries(4):  # session, user, the result, the baseline's
        owner.get(address(first["triton-flash"], "svg", "samples"))


def test_the_axis_of_the_samples_is_the_same_in_words_and_picture():
    arms = [base([SPREAD] * 20), arm([*[SPREAD] * 19, [10.0, 10.1, 9.9, 400.0, 1000.0]])]
    assert list(Samples(arms).axis) == axis_of(spec_of(arms, "samples", "light"))[1]
    assert within_fences(np.asarray([1.0, 2.0, 3.0]), 0.0) == (1.0, 3.0)

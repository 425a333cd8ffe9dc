"""Texts beside the line of the speed of light keep off it, in charts of a few workloads and of many."""

import itertools

import pytest
from cast import load, shortened

from runs.charts.row_labels import OFF, off_light, text_width
from runs.charts.run_charts import BESIDE, Canvas, _beside_each, latency, rows_of
from runs.charts.run_strips import latency_strip
from runs.charts.theme import THEMES
from runs.models import Result

WIDTH = 164
"""Of the axis on a phone."""


def ends(share):
    """(first, last) pixel of the number of a mark on a phone."""
    text = f"{share:.0%}"
    begin = share * WIDTH + off_light(share, text, WIDTH, BESIDE)
    return begin, begin + text_width(text)


@pytest.mark.parametrize("percent", range(101))
def test_a_number_keeps_off_the_line_and_off_its_mark(percent):
    first, last = ends(percent / 100)
    assert last <= WIDTH - OFF or first >= WIDTH + OFF
    assert first >= percent / 100 * WIDTH + OFF


def test_a_number_that_would_touch_the_line_stands_behind_it():
    assert ends(0.70)[1] < WIDTH < ends(0.83)[0]
    assert ends(1.0)[0] == WIDTH + BESIDE


@pytest.fixture
def near(exported, db):
    """A run whose best results are at 83% and 97% of the speed of light."""
    run = load(shortened(exported, 2), "near.json")
    for measurement, share in zip(run.measurements.order_by("pk"), (0.83, 0.97), strict=True):
        Result.objects.filter(measurement=measurement, limit_share__isnull=False).update(limit_share=0.5 * share)
        Result.objects.filter(measurement=measurement, kernel__name="triton-flash").update(limit_share=share)
    return rows_of(run)


def shifts(chart):
    """Number -> how far behind its mark it begins."""
    rows = itertools.chain(*chart.to_dict()["datasets"].values())
    return {row["text"]: row["shift"] for row in rows if "shift" in row}


def test_on_a_phone_both_charts_have_it(near):
    few = shifts(latency(near, THEMES["light"], narrow=True))
    assert few["83%"] > BESIDE and few["97%"] > 0
    many = shifts(latency_strip(near, THEMES["light"], 326, shares=True))
    assert many["90%"] > 8, "the median stands behind the last mark, at 97%"


def test_a_chart_of_times_has_no_such_line(near):
    assert set(shifts(latency_strip(near, THEMES["light"], 326, shares=False)).values()) == {8}


def test_names_stand_before_the_line_if_both_have_room(near):
    canvas = Canvas("latency", near, THEMES["light"], narrow=True)
    at = [0.58 * canvas.width, 0.83 * canvas.width]
    (_, _), (begin, wide) = _beside_each(["sdpa", "triton-flash"], at, canvas, light=True)
    assert begin + wide <= canvas.width - OFF
    (_, _), (begin, wide) = _beside_each(["sdpa", "triton-flash"], at, canvas, light=False)
    assert begin + wide > canvas.width, "times have no line there"
    long = ["a-kernel-with-a-long-name", "another-one-with-a-long-name"]
    assert _beside_each(long, at, canvas, light=True) == _beside_each(long, at, canvas, light=False)

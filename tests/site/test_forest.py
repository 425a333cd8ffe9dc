"""Where intervals are drawn in the rows of a table."""

import pytest

from runs.charts.forest import EDGE, LEAST, WIDTH, Scale
from runs.queries.ratio import Ratio


def row(ratio, low, high, margin=0.01):
    return Ratio(ratio, low, high, margin)


def test_all_rows_share_a_scale_that_holds_them_all():
    rows = [row(1.1, 1.05, 1.2), row(0.97, 0.96, 0.98)]
    scale = Scale.of(rows)
    assert (scale.low, scale.high) == (0.96, 1.2)
    first, second = map(scale.cell, rows)
    assert first["one"] == second["one"]
    assert first["low"] + first["length"] == WIDTH - EDGE and second["low"] == EDGE
    assert second["at"] < second["one"] < first["low"] < first["at"]


def test_noise_does_not_fill_the_scale():
    scale = Scale.of([row(1.001, 0.999, 1.003)])
    assert (scale.low, scale.high) == (1 / LEAST, LEAST)
    cell = scale.cell(row(1.001, 0.999, 1.003))
    assert cell["left"] < cell["low"] and cell["low"] + cell["length"] < cell["left"] + cell["band"]
    assert cell["one"] == pytest.approx(WIDTH / 2, abs=0.1)


def test_what_is_far_away_is_drawn_at_the_edge():
    scale = Scale.of([row(30.0, 25.0, 36.0), row(0.01, 0.009, 0.011)])
    assert (scale.low, scale.high) == (0.5, 2.0)
    assert scale.cell(row(30.0, 25.0, 36.0))["at"] == WIDTH - EDGE
    assert scale.cell(row(0.01, 0.009, 0.011))["at"] == EDGE
    beyond = [scale.cell(row(ratio, 0.9 * ratio, 1.1 * ratio))["beyond"] for ratio in (0.4, 0.6, 3.0)]
    assert beyond == ["left", "", "right"]


def test_what_has_no_figure_is_not_drawn():
    assert Scale.of([None]).cell(None) is None

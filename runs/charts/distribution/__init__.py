"""Charts of one result, drawn when asked for: how its samples are spread, and how its rounds went, beside the baseline's.

Bars count every sample. What is thinned, or lies beyond an axis, is said in the picture or under it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import vl_convert

from runs.charts.distribution.arms import Arm, arms_of
from runs.charts.distribution.rounds import MOST_DOTS, Rounds
from runs.charts.distribution.samples import MOST_LINES, Samples
from runs.charts.theme import THEMES, theme

__all__ = [
    "MOST_DOTS",
    "MOST_LINES",
    "NAMES",
    "WIDTHS",
    "Arm",
    "Rounds",
    "Samples",
    "arms_of",
    "said",
    "spec_of",
    "svg_of",
]
NAMES = ("samples", "rounds")
WIDTHS = {"samples": (630, 312), "rounds": (380, 272)}
"""Of the plot, pixels: on a wide page, on a narrow one."""


def spec_of(arms: Sequence[Arm], name: str, palette: str, narrow: bool = False, paired: bool = True) -> dict[str, Any]:
    """A Vega-Lite spec of the chart with this name. Not validated here, which would take as long as the rest."""
    chart = Samples(arms) if name == "samples" else Rounds(arms, paired)
    colours = THEMES[palette]
    return theme(chart.draw(WIDTHS[name][narrow], colours), colours).to_dict(validate=False)


def svg_of(spec: dict[str, Any]) -> str:
    return vl_convert.vegalite_to_svg(spec)


def said(arms: Sequence[Arm], paired: bool = True) -> dict[str, list[str]]:
    """Sentences under each chart: how much of the data it shows, how to read it, what lies beyond."""
    return {"samples": Samples(arms).said(), "rounds": Rounds(arms, paired).said()}

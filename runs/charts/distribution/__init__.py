"""Charts of one result, drawn on request: its samples and its rounds, beside the baseline's.

Bars count every sample. The chart, or the text below it, says what is thinned or beyond an axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
    "captions",
    "spec_of",
]
NAMES = ("samples", "rounds")
WIDTHS = {"samples": (630, 312), "rounds": (380, 272)}
"""Plot sizes in pixels: (wide page, narrow page)."""


def spec_of(arms: Sequence[Arm], name: str, palette: str, narrow: bool = False, paired: bool = True) -> dict[str, Any]:
    """The Vega-Lite spec of a chart. Not validated here: that would double its time."""
    chart = Samples(arms) if name == "samples" else Rounds(arms, paired)
    colours = THEMES[palette]
    return theme(chart.draw(WIDTHS[name][narrow], colours), colours).to_dict(validate=False)


def captions(arms: Sequence[Arm], paired: bool = True) -> dict[str, list[str]]:
    """Sentences below each chart: share of the data shown, how to read it, what is beyond the axis."""
    return {"samples": Samples(arms).captions(), "rounds": Rounds(arms, paired).captions()}

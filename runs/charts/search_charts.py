"""Charts of a search: its trials with the best so far, and what screening promised against what new processes confirmed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from kernels.contract.search import Pair, Search
from kernels.settings import spelled
from runs.charts.theme import in_pixels

NAMES = ("search", "promised")
WIDTHS = {"search": (648, 326), "promised": (434, 326)}
"""Whole widths in pixels: (wide page, narrow page)."""
ROOM = {"left": 44, "top": 26, "right": 92, "bottom": 40}
PAIRS = {"left": 118, "top": 30, "right": 20, "bottom": 34}
HEIGHT = 300
ROW = 40
MOST_PAIRS = 12
"""Rows that are drawn; the table has all."""
ABOVE = 0.12
"""Share of the scale that is left free above and below."""


def size_of(search: Search, name: str, narrow: bool) -> tuple[int, int]:
    """(width, height) of a chart in pixels, known before it is drawn."""
    if name == "search":
        return WIDTHS[name][narrow], HEIGHT
    return WIDTHS[name][narrow], PAIRS["top"] + ROW * len(drawn(search)) + PAIRS["bottom"]


def draw_sizes(search: Search) -> dict[str, tuple[tuple[int, int], tuple[int, int]]]:
    """The charts that there are, each with its size on a wide page and on a phone."""
    there = {"search": any(one.score for one in search.trials), "promised": bool(search.pairs)}
    return {name: (size_of(search, name, False), size_of(search, name, True)) for name in NAMES if there[name]}


def drawn(search: Search) -> Sequence[Pair]:
    return search.pairs[:MOST_PAIRS]


def draw(search: Search, name: str, colours: dict[str, str], narrow: bool) -> Any:
    """The chart; None if there is nothing to draw."""
    if name == "search":
        return trials(search, colours, narrow) if any(one.score for one in search.trials) else None
    return promised(search, colours, narrow) if search.pairs else None


def trials(search: Search, colours: dict[str, str], narrow: bool) -> Any:
    """Speedup by trial: dots that pass the gates are filled, pruned ones are crosses on the lower edge; the best so far."""
    alive = [one for one in search.trials if one.score is not None]
    scores = [one.score or 0.0 for one in alive]
    confirmed = [one for one in search.finalists if one.score]
    every = [1.0, *scores, *(one.score or 0.0 for one in confirmed)]
    room = ABOVE * (max(every) - min(every)) or 0.05
    low, high = min(every) - room, max(every) + room
    rows = [
        {"trial": one.number, "ratio": one.score, "passes": not one.fails, "settings": spelled(one.settings)}
        for one in alive
    ]
    best = pd.DataFrame(_best_so_far(search))
    x = alt.X(
        "trial:Q",
        scale=alt.Scale(domain=[0, max(len(search.trials), 2) + 0.5], nice=False),
        axis=alt.Axis(title="trial", grid=False, tickMinStep=1, tickCount=6, format="d"),
    )
    axis = alt.Axis(title=None, tickCount=5, labelExpr="format(datum.value, '.2f') + 'x'")
    y = alt.Y("ratio:Q", scale=alt.Scale(domain=[low, high], nice=False), axis=axis)
    at = alt.X("trial:Q")
    told = ["trial:Q", "settings:N", alt.Tooltip("ratio:Q", format=".3f")]
    dots = alt.Chart(pd.DataFrame(rows)).encode(x=x, y=y, tooltip=told)
    one = alt.Chart(pd.DataFrame({"ratio": [1.0], "said": ["its own choice"]})).encode(y=y)
    parts = [
        one.mark_rule(color=colours["other"]),
        alt.Chart(best).mark_line(interpolate="step-after", color=colours["accent"], strokeWidth=2).encode(x=at, y=y),
        dots.transform_filter("!datum.passes").mark_point(size=42, color=colours["quiet"], opacity=1),
        dots.transform_filter("datum.passes").mark_point(size=42, color=colours["accent"], filled=True, opacity=1),
    ]
    if search.pruned:
        crosses = [
            {"trial": p.number, "ratio": low, "settings": spelled(p.settings), "why": p.pruned} for p in search.pruned
        ]
        parts.append(
            alt.Chart(pd.DataFrame(crosses))
            .mark_point(shape="cross", angle=45, size=46, color=colours["slower"], filled=True, opacity=1)
            .encode(x=at, y=y, tooltip=["trial:Q", "settings:N", "why:N"])
        )
    if confirmed:
        found = [{"trial": f.number, "ratio": f.score, "settings": spelled(f.settings)} for f in confirmed]
        parts.append(
            alt.Chart(pd.DataFrame(found))
            .mark_point(shape="diamond", size=90, color=colours["faster"], filled=True, opacity=1)
            .encode(x=at, y=y, tooltip=told)
        )
    ends = _named(best.iloc[-1], confirmed, search, low, high, colours)
    labels = alt.Chart(pd.DataFrame(ends)).encode(y=y, text="said:N", color=alt.Color("colour:N", scale=None))
    width = WIDTHS["search"][narrow] - ROOM["left"] - ROOM["right"]
    parts.append(labels.mark_text(align="left", dx=6).encode(x=alt.XValue(width)))
    chart = alt.layer(*parts)
    return in_pixels(chart, width, HEIGHT - ROOM["top"] - ROOM["bottom"], ROOM, colours)


def _best_so_far(search: Search) -> list[dict[str, Any]]:
    """The highest score of those that pass the gates, trial by trial; until one passes, the kernel's own choice."""
    best, rows = 1.0, [{"trial": 0, "ratio": 1.0}]
    for one in search.trials:
        if one.score is not None and not one.fails:
            best = max(best, one.score)
        rows.append({"trial": one.number, "ratio": best})
    return rows


LABELS_APART = 0.06
"""Share of the scale between two names beside the chart."""


def _named(
    best: Any, confirmed: Sequence[Any], search: Search, low: float, high: float, colours: dict[str, str]
) -> list[dict[str, Any]]:
    """Names beside the right edge, moved apart where they would cover each other."""
    wanted = [("its own choice", 1.0, "quiet")]
    if best["ratio"] > 1:
        wanted.append(("best so far", float(best["ratio"]), "accent"))
    if confirmed:
        wanted.append(("finalists", max(one.score or 0.0 for one in confirmed), "faster"))
    if search.pruned:
        wanted.append(("pruned", low, "slower"))
    placed: list[dict[str, Any]] = []
    for said, ratio, name in sorted(wanted, key=lambda one: one[1]):
        least = placed[-1]["ratio"] + LABELS_APART * (high - low) if placed else low
        placed.append({"said": said, "ratio": max(ratio, least), "colour": colours[name]})
    return placed


def promised(search: Search, colours: dict[str, str], narrow: bool) -> Any:
    """For each finalist and workload two intervals: above what screening promised, below what was confirmed."""
    pairs = drawn(search)
    width = WIDTHS["promised"][narrow] - PAIRS["left"] - PAIRS["right"]
    rows, names = [], []
    for number, pair in enumerate(pairs):
        middle = ROW * number + ROW / 2
        sizes = search.label[pair.key].split(" ", 2)[-1]
        names.append({"y": middle - 7, "said": f"trial {pair.number}", "colour": colours["ink"]})
        names.append({"y": middle + 7, "said": sizes, "colour": colours["quiet"]})
        for which, ratio, dy, colour in (
            ("promised", pair.promised, -6, colours["amber"]),
            ("confirmed", pair.confirmed, 6, colours["accent"]),
        ):
            rows.append(
                {
                    "y": middle + dy,
                    "ratio": ratio.ratio,
                    "low": ratio.low,
                    "high": ratio.high,
                    "which": which,
                    "colour": colour,
                }
            )
    data = pd.DataFrame(rows)
    low, high = min(1.0, data.low.min()), max(1.0, data.high.max())
    room = 0.06 * (high - low) or 0.02
    axis = alt.Axis(title=None, tickCount=4, labelExpr="format(datum.value, '.2f') + 'x'")
    x = alt.X("low:Q", scale=alt.Scale(domain=[low - room, high + room], nice=False), axis=axis)
    height = ROW * len(pairs)
    y = alt.Y("y:Q", scale=alt.Scale(domain=[height, 0], nice=False), axis=None)
    colour = alt.Color("colour:N", scale=None)
    told = ["which:N", *(alt.Tooltip(f"{name}:Q", format=".3f") for name in ("ratio", "low", "high"))]
    base = alt.Chart(data).encode(y=y, color=colour, tooltip=told)
    one = alt.Chart(pd.DataFrame({"low": [1.0]})).mark_rule(color=colours["other"]).encode(x=x)
    heads = pd.DataFrame(
        [
            {"said": "promised", "at": 0, "colour": colours["amber"]},
            {"said": "confirmed", "at": 74, "colour": colours["accent"]},
        ]
    )
    head = alt.Chart(heads).encode(x=alt.X("at:Q", scale=None), y=alt.YValue(-14), text="said:N", color=colour)
    left = alt.Chart(pd.DataFrame(names)).encode(y=y, x=alt.XValue(-PAIRS["left"] + 4), text="said:N", color=colour)
    chart = alt.layer(
        one,
        base.mark_rule(strokeWidth=3).encode(x=x, x2="high:Q"),
        base.mark_point(filled=True, size=44, opacity=1).encode(x=alt.X("ratio:Q")),
        head.mark_text(align="left", fontWeight=600),
        left.mark_text(align="left", limit=PAIRS["left"] - 8),
    )
    return in_pixels(chart, width, height, PAIRS, colours)

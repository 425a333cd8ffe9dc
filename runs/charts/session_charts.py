"""Charts of a session's report: the speedup of each result, and time against work, with a line for each kernel."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import altair as alt
import pandas as pd

from kernels.analysis import scaling
from kernels.analysis.scaling import Point, Time
from runs.charts import run_scaling
from runs.charts.row_labels import PART, text_width
from runs.charts.run_scaling import Scaling, letters
from runs.charts.scales import placed, ratio_ticks
from runs.charts.theme import in_pixels, written
from runs.queries.figures import Figure
from runs.templatetags.figures import grouped, ratio

WIDTHS = (640, 326)
"""Whole widths in pixels: (wide page, narrow page)."""
LEFT, ROW, TOP, BOTTOM, RIGHT = (250, 150), 24, 8, 28, 56
LINE = 11
"""Height of a line of a label."""
MANY, MOST_ROWS = 20, 40
LEAST_KERNELS = 2
"""A line alone shows nothing beside it."""
FACTORS, SCALING = "factors", "scaling"


class Drawn(NamedTuple):
    """A chart of a report."""

    name: str
    title: str
    alt: str
    height: int

    @property
    def width(self) -> int:
        return WIDTHS[0]


def charts(figures: Sequence[Figure]) -> list[Drawn]:
    """The charts that these figures have."""
    found = []
    if rows := factor_rows(figures):
        height = TOP + ROW * len(rows) + BOTTOM
        of = f" of {rows[0].kernel}" if len({one.kernel for one in rows}) == 1 else ""
        title = f"Speedup{of} over the baseline"
        found.append(Drawn(FACTORS, title, f"{title}; the numbers are in the table", height))
    if series_of(figures):
        alt_text = "Time against work for each kernel; the numbers are in the table"
        found.append(Drawn(SCALING, "Time as the work grows", alt_text, run_scaling.HEIGHT))
    return found


def draw(name: str, figures: Sequence[Figure], colours: dict[str, str], narrow: bool = False) -> Any:
    """One of them; None if there is nothing to draw."""
    if name == FACTORS:
        rows = factor_rows(figures)
        return factors(rows, colours, narrow) if rows else None
    if name == SCALING and (one := series_of(figures)):
        return run_scaling.draw(one, colours, narrow)
    return None


# --- speedups ---------------------------------------------------------------------------------------------------------


def factor_rows(figures: Sequence[Figure]) -> list[Figure]:
    """The figures with a speedup that count, in the order of the table. Of many, those of one kernel: the one that is faster
    most often, or that has the most."""
    rows = [one for one in figures if one.ratio and not one.is_baseline and not one.is_withdrawn]
    if len(rows) > MANY:
        rows = [one for one in rows if one.kernel == leader_of(rows)]
    return rows[:MOST_ROWS]


def leader_of(rows: Sequence[Figure]) -> str:
    """The kernel that is faster most often; without one, the kernel with the most results. Empty without results."""
    mine = [one for one in rows if one.ratio and not one.is_baseline]
    count = Counter(one.kernel for one in mine if _tone(one) == "faster") or Counter(one.kernel for one in mine)
    return count.most_common(1)[0][0] if count else ""


def _tone(one: Figure) -> str:
    word = str(one.verdict).lower()
    return word if word in ("faster", "slower") and not one.is_contended else "open"


def factors(rows: Sequence[Figure], colours: dict[str, str], narrow: bool = False) -> Any:
    """A point for each result on a logarithmic axis, with its interval; a claim, which has none, is hollow."""
    left, whole = LEFT[narrow], WIDTHS[narrow]
    width, height = whole - left - RIGHT, ROW * len(rows)
    labels = labels_of(rows, left - 10)
    data = pd.DataFrame([
        {
            "y": ROW * (number + 0.5), "begin": ROW * (number + 0.5) - LINE / 2 * (len(labels[number]) - 1),
            "lines": labels[number], "ratio": one.ratio.ratio, "low": one.ratio.low, "high": one.ratio.high,
            "label": " ".join(labels[number]), "word": str(one.verdict), "kernel": one.kernel,
            "tone": _tone(one), "claimed": one.is_claimed, "one": 1.0,
            "text": f"1/{grouped(1 / one.ratio.ratio)}" if one.ratio.ratio < 0.1 else f"{ratio(one.ratio.ratio)}x",
        }
        for number, one in enumerate(rows) if one.ratio
    ])  # fmt: skip
    low, high = min(0.9, data.low.min()), max(1.1, data.high.max())
    scale = alt.Scale(type="log", domain=[low / 1.05, high * 1.05], nice=False)
    axis = alt.Axis(values=ratio_ticks(low, high, width // 52), labelExpr="datum.value + 'x'", title=None)
    tones = alt.Scale(
        domain=["faster", "slower", "open"], range=[colours["faster"], colours["slower"], colours["other"]]
    )
    y = placed(alt.Y, "y:Q", height)
    colour = alt.Color("tone:N", legend=None, scale=tones)
    base = alt.Chart(data).encode(y=y)

    def x(field: str) -> Any:
        return alt.X(field, scale=scale, axis=axis)

    one = alt.Chart(data.iloc[[0]]).mark_rule(color=colours["quiet"], aria=False).encode(x=x("one:Q"))
    tooltip = [
        alt.Tooltip("kernel:N"),
        alt.Tooltip("label:N"),
        alt.Tooltip("word:N"),
        alt.Tooltip("ratio:Q", format=".4g", title="speedup"),
    ]
    begin = placed(alt.Y, "begin:Q", height)
    names = alt.Chart(data[["begin", "lines"]]).encode(y=begin, x=alt.XValue(-left + 6), text="lines:N")
    beside = {"align": "left", "baseline": "middle", "limit": left - 10, "lineHeight": LINE}
    near = data["ratio"] > math.sqrt(low * high)
    right, off = alt.Chart(data[~near]).encode(y=y, text="text:N"), alt.Chart(data[near]).encode(y=y, text="text:N")
    bar = base.mark_rule(strokeWidth=7, opacity=0.35, strokeCap="round", aria=False)
    layers = [
        one,
        bar.encode(x=x("low:Q"), x2="high:Q", color=colour),
        base.transform_filter("!datum.claimed").mark_point(filled=True, size=56, opacity=1).encode(
            x=x("ratio:Q"), color=colour, tooltip=tooltip
        ),
        base.transform_filter("datum.claimed").mark_point(size=48, opacity=1, strokeWidth=1.6).encode(
            x=x("ratio:Q"), color=colour, tooltip=tooltip
        ),
        names.mark_text(**beside, aria=False, color=colours["ink"]),
        written(right.encode(x=x("high:Q")), colours, align="left", baseline="middle", dx=9),
        written(off.encode(x=x("low:Q")), colours, align="right", baseline="middle", dx=-9),
    ]  # fmt: skip
    room = {"left": left, "top": TOP, "right": RIGHT, "bottom": BOTTOM}
    return in_pixels(alt.layer(*layers), width, height, room, colours)


def labels_of(rows: Sequence[Figure], width: float) -> list[list[str]]:
    """What tells the rows apart: the sizes that differ, the kernel and the method if there are several. Where these do not
    fit this width, kernel and method have a line of their own."""
    words = [PART.findall(one.label) for one in rows]
    common = set.intersection(*map(set, words)) if len(rows) > 1 else set()
    kernels, methods = ({getattr(one, name) for one in rows} for name in ("kernel", "method"))
    found = []
    for one, mine in zip(rows, words, strict=True):
        sizes = " ".join(word for word in mine if word not in common)
        who = [one.kernel] * (len(kernels) > 1 or len(rows) == 1) + [f"({one.method})"] * (len(methods) > 1)
        lines = [line for line in (sizes, " ".join(who)) if line]
        found.append(lines if text_width(" ".join(lines)) > width else [" ".join(lines)])
    return found


# --- time against work ------------------------------------------------------------------------------------------------


def series_of(figures: Sequence[Figure]) -> Scaling | None:
    """The series with the most growth of work, of one operation, GPU and method; measured ones before claims."""
    groups: dict[tuple[object, ...], list[Figure]] = {}
    for one in figures:
        known = one.workload.known_problem
        if one.ms and known and not one.is_withdrawn and one.verdict not in ("incorrect", "impossible", "suspect"):
            groups.setdefault((one.is_claimed, one.workload.operation, one.gpu, one.method), []).append(one)
    found = []
    for (is_claimed, operation, *_), group in groups.items():
        baseline = next((one.baseline for one in group if one.baseline), "")
        for grown in scaling.series(_points(group)):
            growths = scaling.growths(grown)
            if len(growths) >= LEAST_KERNELS:
                leader = leader_of(group) or baseline
                shown = Scaling(grown, growths, leader, baseline, letters(str(operation)))
                found.append((not is_claimed, grown.span, shown))
    return max(found, key=lambda one: one[:2])[2] if found else None


def _points(group: Sequence[Figure]) -> list[Point]:
    at: dict[str, list[Figure]] = {}
    for one in group:
        at.setdefault(one.workload.key, []).append(one)
    return [
        Point(
            {**mine[0].workload.sizes, "dtype": mine[0].workload.dtype}, mine[0].work,
            {one.kernel: Time(one.ms or 0, one.low_ms or one.ms or 0, one.high_ms or one.ms or 0) for one in mine},
        )
        for mine in at.values()
    ]  # fmt: skip

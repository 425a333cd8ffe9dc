"""The small dated charts of the first page: the trend around a change, the steps of a record, the day of a device.

Places are in pixels: the whole size is known before a chart is drawn, and the page reserves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from django.utils import timezone

from kernels.analysis.changes import Change as Verdict
from kernels.report import change_words as words
from runs.charts.scales import placed
from runs.charts.theme import in_pixels, written
from runs.models import Change
from runs.queries.leaders import Placed
from runs.queries.lines import Line
from runs.queries.week import SLOTS, Day, when
from runs.templatetags.figures import ratio as digits

WIDTH, BELOW = 330, 20
HEIGHTS = {"trend": 56, "record": 62, "day": 34}
EDGE = 5
BEFORE, MOST_RUNS = 30, 90
"""Runs before the change that are drawn, and all that are drawn."""
APART = 74
"""Pixels between two dates, at least."""


def size(name: str) -> tuple[int, int]:
    return WIDTH, HEIGHTS[name] + BELOW


def _date(at: datetime) -> str:
    local = timezone.localtime(at)
    return f"{local.day} {local:%b}"


def _layers(name: str, layers: Sequence[Any], colours: dict[str, str]) -> Any:
    height = HEIGHTS[name]
    room = {"left": 0, "right": 0, "top": 0, "bottom": BELOW}
    return in_pixels(alt.layer(*layers), WIDTH, height, room, colours)


def _chart(rows: Sequence[dict[str, Any]], height: int, **more: Any) -> Any:
    """A chart of rows with x and y in pixels."""
    base = alt.Chart(pd.DataFrame(rows))
    return base.encode(x=placed(alt.X, "x", WIDTH), y=placed(alt.Y, "y", height), **more)


def _dates(texts: Sequence[tuple[float, str, bool]], height: int, colours: dict[str, str]) -> list[Any]:
    """Dates below: (x, text, whether it is the one that matters). Each is kept inside."""
    layers = []
    for x, text, matters in texts:
        align = "left" if x < 24 else "right" if x > WIDTH - 24 else "center"
        base = _chart([{"x": min(max(x, 0), WIDTH), "y": height, "text": text}], height, text="text:N")
        ink = colours["ink"] if matters else colours["quiet"]
        layers.append(base.mark_text(align=align, dy=13, color=ink, fontWeight=700 if matters else 400))
    return layers


def trend(line: Line, change: Change, index: int, colours: dict[str, str]) -> Any:
    """p50 of the runs around a change, up is slower: grey before, coloured after, both levels drawn. index: its run."""
    first = max(0, index - BEFORE)
    last = min(len(line.points), first + MOST_RUNS)
    height, style = HEIGHTS["trend"], words.STYLES[Verdict(change.verdict)]
    ats = [line.at(number) for number in range(first, last)]
    span = max((ats[-1] - ats[0]).total_seconds(), 1.0)
    times = np.array([line.values[number].time for number in range(first, last)])
    levels = [change.level_before_ms, change.level_after_ms]
    ends = [*np.quantile(times, [0.03, 0.97]), *levels]
    low, high = min(ends), max(ends)

    def x(at: datetime) -> float:
        return float(EDGE + (WIDTH - 2 * EDGE) * (at - ats[0]).total_seconds() / span)

    def y(ms: float) -> float:
        share = (min(max(ms, low), high) - low) / ((high - low) or 1)
        return float(height - EDGE - share * (height - 2 * EDGE))

    there = x(line.at(index))
    sides = [("quiet", EDGE, there, levels[0]), (style, there, WIDTH - EDGE, levels[1])]
    layers = [
        _chart([{"x": there, "y": 0.0, "to": float(height)}], height)
        .mark_rule(color=colours["other"], strokeDash=[2, 3], aria=False)
        .encode(y2=alt.Y2("to:Q"))
    ]
    layers += [
        _chart([{"x": left, "y": y(ms), "to": right}], height)
        .mark_rule(color=colours[name if name != "quiet" else "other"], strokeWidth=1.5, aria=False)
        .encode(x2="to:Q")
        for name, left, right, ms in sides
    ]
    for name, start, end in (("other", first, index), (style, index, last)):
        rows = [{"x": x(line.at(n)), "y": y(line.values[n].time)} for n in range(start, end)]
        if rows:
            layers.append(_chart(rows, height).mark_point(filled=True, size=11, opacity=1, color=colours[name]))
    ends_at = WIDTH - EDGE
    dates = [(there, _date(line.at(index)), True)]
    if there > APART:
        dates.append((0.0, _date(ats[0]), False))
    if ends_at - there > APART:
        dates.append((float(WIDTH), _date(ats[-1]), False))
    return _layers("trend", [*layers, *_dates(dates, height, colours)], colours)


def record(steps: Sequence[Placed], now: datetime, colours: dict[str, str]) -> Any:
    """The lead of each record with its interval, by date; the first and the newest say their numbers."""
    height, first = HEIGHTS["record"], when(steps[0].point)
    span = max((now - first).total_seconds(), 1.0)
    low, high = min(step.ratio.low for step in steps), max(step.ratio.high for step in steps)
    room = 26

    def x(at: datetime) -> float:
        return EDGE + (WIDTH - 2 * EDGE) * (at - first).total_seconds() / span

    def y(value: float) -> float:
        return height - EDGE - (value - low) / ((high - low) or 1) * (height - EDGE - room)

    path: list[dict[str, Any]] = []
    for step in steps:
        at = x(when(step.point))
        if path:
            path.append({"x": at, "y": path[-1]["y"], "order": len(path)})
        path.append({"x": at, "y": y(step.ratio.ratio), "order": len(path)})
    path.append({"x": float(WIDTH - EDGE), "y": path[-1]["y"], "order": len(path)})
    marks = [
        {"x": x(when(step.point)), "y": y(step.ratio.low), "high": y(step.ratio.high), "at": y(step.ratio.ratio)}
        for step in steps
    ]
    layers = [
        _chart(marks, height).mark_rule(strokeWidth=5, opacity=0.28, color=colours["accent"], aria=False).encode(y2="high:Q"),
        _chart(path, height, order="order:Q").mark_line(color=colours["accent"], strokeWidth=1.8, strokeJoin="round"),
        _chart([one | {"y": one["at"]} for one in marks], height).mark_point(
            filled=True, size=26, opacity=1, color=colours["accent"]
        ),
        _chart([marks[-1] | {"y": marks[-1]["at"]}], height).mark_point(
            filled=True, size=80, opacity=1, color=colours["accent"]
        ),
    ]  # fmt: skip
    if len(steps) > 1 and marks[-1]["x"] > APART:
        base = _chart(
            [{"x": 0.0, "y": marks[0]["at"], "text": f"{digits(steps[0].ratio.ratio)}x"}], height, text="text:N"
        )
        layers.append(written(base, colours, quiet=True, align="left", dx=2, dy=-12))
    newest = x(when(steps[-1].point))
    dates = [(newest, _date(when(steps[-1].point)), True)]
    if newest > APART:
        dates.append((0.0, _date(first), False))
    return _layers("record", [*layers, *_dates(dates, height, colours)], colours)


def day(of: Day, colours: dict[str, str]) -> Any:
    """The share of each half hour in which runs were on a device."""
    height, wide = HEIGHTS["day"], WIDTH / SLOTS
    rows = [
        {"x": number * wide + 0.5, "to": (number + 1) * wide - 0.5, "y": height - max(1.0, share * (height - 2)), "zero": height}
        for number, share in enumerate(of.slots[: of.passed])
    ]  # fmt: skip
    end = of.passed * wide
    layers = [
        _chart([{"x": 0.0, "y": float(height), "to": float(WIDTH)}], height)
        .mark_rule(color=colours["line"], aria=False)
        .encode(x2="to:Q"),
        _chart(rows, height).mark_rect(color=colours["accent"], aria=False).encode(x2="to:Q", y2="zero:Q"),
        _chart([{"x": end, "y": 0.0, "to": float(height)}], height)
        .mark_rule(color=colours["other"], strokeDash=[2, 3], aria=False)
        .encode(y2="to:Q"),
    ]
    hours = [(WIDTH * hour / 24, f"{hour:02d}", False) for hour in (0, 6, 12, 18, 24)]
    return _layers("day", [*layers, *_dates(hours, height, colours)], colours)


def label_of_day(of: Day) -> str:
    """The same in words."""
    hours = [sum(of.slots[2 * hour : 2 * hour + 2]) / 2 for hour in range((of.passed + 1) // 2)]
    said = ", ".join(f"{hour:02d}h {share:.0%}" for hour, share in enumerate(hours) if share)
    return f"Share of each hour of today in which runs were on the device: {said or 'none'}"

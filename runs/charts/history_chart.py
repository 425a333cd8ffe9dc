"""The chart of a line: a kernel's times by date with its levels and marks, the baseline's below, and A/A.

Labels stand on the chart. Marks have the numbers of the table below it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from kernels.analysis.changes import Value
from kernels.report import change_words as words
from runs.charts.distribution.arms import within_fences
from runs.charts.theme import THEMES, theme, written
from runs.queries.beside import Beside
from runs.queries.lines import Line, Mark

WIDTHS = (1062, 258)
"""Plot widths in pixels: (wide page, narrow page)."""
HEIGHTS = (280, 110, 54)
"""Of the three parts: kernel, baseline, A/A."""
AXIS, TOP, BADGE = 48, -16, 22
LETTER = 6.3
LEAST_IQR = 0.004
"""As a share: quiet runs look quiet."""


def spec_of(kernel: str, line: Line, beside: Beside, palette: str, narrow: bool = False) -> dict[str, Any]:
    """The Vega-Lite spec. Not validated here: that would double its time."""
    drawing = Drawing(kernel, line, beside, THEMES[palette], WIDTHS[narrow], narrow)
    chart = alt.vconcat(*drawing.parts(), spacing=18)
    return theme(chart, THEMES[palette]).to_dict(validate=False)


@dataclass
class Drawing:
    kernel: str
    line: Line
    beside: Beside
    colours: dict[str, str]
    width: int
    narrow: bool

    def parts(self) -> list[Any]:
        numbers = dict(enumerate(self.line.values))
        said = "higher is slower; each point is one run, its bar the 99% interval"
        title = self._title(f"{self.kernel}, p50 in µs", said, 34)
        parts = [self._times(numbers, self._levels(), HEIGHTS[0], [*self._numbers(), *self._sides()], title)]
        of = {run: number for number, run in enumerate(point.run for point in self.line.points)}
        if self.beside.times:
            base = {of[run]: value for run, value in self.beside.times.items()}
            title = self._title(f"{self.beside.baseline}, the baseline, p50 in µs", "", 8)
            parts.append(self._times(base, [], HEIGHTS[1], [], title))
        if self.beside.aa:
            parts.append(self._aa({of[run]: ratio for run, ratio in self.beside.aa.items()}))
        return parts

    # --- axes ---------------------------------------------------------------------------------------------------------

    @cached_property
    def span(self) -> tuple[datetime, datetime]:
        first, last = self.line.at(0), self.line.at(len(self.line.points) - 1)
        room = max((last - first) * 0.012, timedelta(hours=12))
        return first - room, last + room

    def px(self, at: datetime) -> float:
        first, last = self.span
        return self.width * ((at - first) / (last - first))

    def _x(self, field: str = "at", to: bool = False) -> Any:
        """to: the layer has an x2. Vega-Lite would call the same domain, on both ends of it, a conflict: others say it."""
        domain = alt.Undefined if to else [at.isoformat() for at in self.span]
        format_ = "%-d %b %Y" if self.span[1] - self.span[0] > timedelta(days=300) else "%-d %b"
        ticks = alt.Axis(grid=False, title=None, format=format_, tickCount=self._ticks(), labelOverlap=True)
        scale = alt.Scale(type="utc", domain=domain)
        return alt.X(f"{field}:T", scale=scale, title=None, axis=ticks)

    def _ticks(self) -> Any:
        """How many dates; of a few days, whole days, so that no date stands twice."""
        most, days = 3 if self.narrow else 9, (self.span[1] - self.span[0]) / timedelta(days=1)
        return {"interval": "day", "step": math.ceil(days / most)} if days <= 3 * most else most

    def _y(self, field: str, low: float, high: float, ticks: int, sign: str = "") -> Any:
        """An axis whose labels all have as many decimals as its steps need; zero has no sign."""
        said = f"datum.value ? format(datum.value, '{sign},.{_decimals((high - low) / ticks)}f') : '0'"
        axis = alt.Axis(tickCount=ticks, labelExpr=said, minExtent=AXIS, maxExtent=AXIS, title=None)
        scale = alt.Scale(domain=[low, high], nice=False, zero=False, padding=6)
        return alt.Y(f"{field}:Q", scale=scale, title=None, axis=axis)

    def _title(self, text: str, said: str, offset: int) -> Any:
        more = {"subtitle": said, "subtitleColor": self.colours["quiet"], "subtitleFontSize": 11} if said else {}
        return alt.TitleParams(
            text=text, anchor="start", frame="group", offset=offset, fontSize=13, color=self.colours["ink"], **more
        )

    # --- times --------------------------------------------------------------------------------------------------------

    def _style(self, index: int) -> str:
        """The colour of a run: that of the change that began its level."""
        start = max(edge for edge in self.line.edges[:-1] if edge <= index)
        test = next((one for one in self.line.found if one.index == start and start not in self.line.begun), None)
        return words.STYLES.get(test.verdict, "quiet") if test else "quiet"

    def _frame(self, values: dict[int, Value], low: float, high: float, of: bool) -> pd.DataFrame:
        rows = [
            {
                "at": self.line.at(number).isoformat(), "run": self.line.points[number].run, "us": 1e3 * value.time,
                "y": min(max(1e3 * value.time, low), high), "low": min(max(1e3 * value.low, low), high),
                "high": min(max(1e3 * value.high, low), high), "colour": self._style(number) if of else "accent",
                "edge": "up" if 1e3 * value.time > high else "down" if 1e3 * value.time < low else "",
                "said": f"{1e3 * value.time:,.4g} ({1e3 * value.low:,.4g} to {1e3 * value.high:,.4g})",
            }
            for number, value in values.items()
        ]  # fmt: skip
        return pd.DataFrame(rows)

    def _times(self, values: dict[int, Value], levels: list[dict[str, Any]], height: int, more: Any, title: Any) -> Any:
        low, high = self._reach(values.values(), levels)
        data = self._frame(values, low, high, of=bool(levels))
        ticks = 5 if height > 200 else 3
        y = self._y("y", low, high, ticks)
        names = ["quiet", "slower", "faster", "accent"]
        scale = alt.Scale(domain=names, range=[self.colours[name] for name in names])
        colour = alt.Color("colour:N", legend=None, scale=scale)
        base = alt.Chart(data).encode(x=self._x())
        bar = base.mark_rule(strokeWidth=4, opacity=0.28, strokeCap="round", aria=False)
        shapes = alt.Scale(domain=["", "up", "down"], range=["circle", "triangle-up", "triangle-down"])
        point = base.mark_point(filled=True, size=16 if len(data) > 150 else 26, opacity=1)
        tooltip = [
            alt.Tooltip("run:Q", format="d"),
            alt.Tooltip("at:T", format="%-d %B %Y"),
            alt.Tooltip("said:N", title="p50, µs"),
        ]
        layers = [
            *self._rules(), *self._bands(levels, scale, low, high, ticks),
            bar.encode(y=self._y("low", low, high, ticks), y2="high:Q", color=colour),
            point.encode(y=y, color=colour, shape=alt.Shape("edge:N", legend=None, scale=shapes), tooltip=tooltip),
            *self._labels(levels, scale, low, high, ticks), *more,
        ]  # fmt: skip
        return alt.layer(*layers).properties(width=self.width, height=height, title=title)

    def _reach(self, values: Iterable[Value], levels: Sequence[dict[str, Any]]) -> tuple[float, float]:
        """(from, to) of an axis in microseconds: of the times without far outliers, 5% of it at least, with room for labels."""
        times = np.array([1e3 * value.time for value in values])
        low, high = within_fences(times, LEAST_IQR * float(np.median(times)))
        ends = [low, high, *(level["level"] for level in levels)]
        low, high = min(ends), max(ends)
        middle = (low + high) / 2
        half = max((high - low) / 2 * 1.3, 0.025 * middle)
        return middle - half, middle + half

    def _levels(self) -> list[dict[str, Any]]:
        """Where the levels are, in microseconds."""
        levels: list[dict[str, Any]] = []
        found, edges = {test.index: test for test in self.line.found}, self.line.edges
        for start, end in pairwise(edges):
            ms = float(np.median([value.time for value in self.line.values[start:end]]))
            began, ended = found.get(start), found.get(end)
            ms = (ended.level_before if ended else began.level_after if began else None) or ms
            last = end == len(self.line.points)
            text = f"{words.level(ms)} µs"
            to = self.span[1] if last else self.line.at(end)
            at = self.line.at(start) if start else self.span[0]
            top = max(1e3 * value.time for value in self.line.values[start:end])
            level = {
                "at": at.isoformat(),
                "to": to.isoformat(),
                "level": 1e3 * ms,
                "top": top,
                "text": text,
            }
            fits = self.px(to) - self.px(at) > LETTER * len(text)
            levels.append(level | {"colour": self._style(start), "fits": fits or last, "last": last and start > 0})
        return levels

    def _bands(self, levels: list[dict[str, Any]], colours: Any, low: float, high: float, ticks: int) -> list[Any]:
        """Each level with A/A around it: what is inside is noise."""
        if not levels:
            return []
        floor = self.beside.floor or 0.0
        data = pd.DataFrame(
            [one | {"f": one["level"] * (1 - floor), "t": one["level"] * (1 + floor)} for one in levels]
        )
        base = alt.Chart(data).encode(x=self._x(to=True), x2="to:T")
        line = base.mark_rule(strokeWidth=1.5, aria=False)
        return [
            base.mark_rect(color=self.colours["band"], aria=False).encode(y=self._y("f", low, high, ticks), y2="t:Q"),
            line.encode(y=self._y("level", low, high, ticks), color=alt.Color("colour:N", legend=None, scale=colours)),
        ]

    def _labels(self, levels: list[dict[str, Any]], colours: Any, low: float, high: float, ticks: int) -> list[Any]:
        """The time of each level above its runs, and how wide A/A is."""
        shown = [one | {"top": min(one["top"], high)} for one in levels if one["fits"]]
        if not shown:
            return []
        layers, data = [], pd.DataFrame(shown)
        for is_last, x, align in ((False, "at", "left"), (True, "to", "right")):
            if (part := data[data["last"] == is_last]).empty:
                continue
            side = 4 if align == "left" else -4
            mark = {"align": align, "baseline": "bottom", "dx": side, "dy": -9, "fontWeight": 600}
            base = alt.Chart(part).encode(x=self._x(x), y=self._y("top", low, high, ticks), text="text:N")
            ink = base.encode(color=alt.Color("colour:N", legend=None, scale=colours))
            layers.append(ink.mark_text(**mark))
        if self.beside.floor is not None:
            last = pd.DataFrame([levels[-1] | {"low": levels[-1]["level"] * (1 - self.beside.floor)}])
            base = alt.Chart(last).encode(x=self._x("to"), y=self._y("low", low, high, ticks))
            place: dict[str, Any] = {"align": "right", "baseline": "top", "dx": -4, "dy": 16}
            said = f"band: A/A ±{100 * self.beside.floor:.1f}%"
            layers.append(written(base.encode(text=alt.value(said)), self.colours, quiet=True, **place))
        return layers

    # --- marks --------------------------------------------------------------------------------------------------------

    def _mark_style(self, mark: Mark) -> str:
        return words.STYLES.get(mark.test.verdict, "edge") if mark.is_change and not mark.acknowledged else "edge"

    @cached_property
    def placed(self) -> list[dict[str, Any]]:
        """Marks with their number; those whose number has room, changes before others, newer before older."""
        marks: list[dict[str, Any]] = [
            {
                "number": str(number), "at": self.line.at(mark.index).isoformat(), "style": self._mark_style(mark),
                "px": self.px(self.line.at(mark.index)), "name": _short(mark), "shown": False,
            }
            for number, mark in enumerate(self.line.marks, 1)
        ]  # fmt: skip
        for mark in sorted(marks, key=lambda one: (one["style"] == "edge", -one["px"])):
            others = [one["px"] for one in marks if one["shown"]]
            mark["shown"] = all(abs(mark["px"] - px) >= BADGE for px in others)
        return marks

    def _rules(self) -> list[Any]:
        layers = []
        for style, dash, wide in (("edge", [2, 4], 1.0), ("slower", [1, 0], 1.5), ("faster", [1, 0], 1.5)):
            if data := [{"at": one["at"]} for one in self.placed if one["style"] == style]:
                colour = self.colours["other" if style == "edge" else style]
                base = alt.Chart(pd.DataFrame(data)).encode(x=self._x())
                layers.append(base.mark_rule(color=colour, strokeDash=dash, strokeWidth=wide, opacity=0.8, aria=False))
        return layers

    def _numbers(self) -> list[Any]:
        """The number of each mark in a circle above the chart, and its name where there is room."""
        shown, layers = [one for one in self.placed if one["shown"]], []
        sides = self._named(shown)
        for style in ("edge", "slower", "faster"):
            if not (data := [one for one in shown if one["style"] == style]):
                continue
            colour = self.colours["other" if style == "edge" else style]
            fill, ink = (
                (self.colours["panel"], self.colours["ink"]) if style == "edge" else (colour, self.colours["panel"])
            )
            base = alt.Chart(pd.DataFrame(data)).encode(x=self._x(), y=alt.value(TOP))
            circle = {"filled": True, "shape": "circle", "size": 300, "opacity": 1, "strokeWidth": 1}
            layers.append(base.mark_point(**circle, fill=fill, stroke=colour, aria=False))
            weight = 400 if style == "edge" else 700
            layers.append(base.mark_text(color=ink, fontWeight=weight).encode(text="number:N"))
            for side, align, dx in (("right", "left", 14), ("left", "right", -14)):
                if named := [one for one in data if sides.get(one["number"]) == side]:
                    base = alt.Chart(pd.DataFrame(named)).encode(x=self._x(), y=alt.value(TOP), text="name:N")
                    quiet = self.colours["quiet" if style == "edge" else "ink"]
                    layers.append(base.mark_text(align=align, dx=dx, color=quiet, fontWeight=weight))
        return layers

    def _named(self, shown: Sequence[dict[str, Any]]) -> dict[str, str]:
        """Number -> the side of its circle on which a mark's name fits, longer names first."""
        taken = [(one["px"] - BADGE / 2, one["px"] + BADGE / 2) for one in shown]
        sides: dict[str, str] = {}
        for mark in sorted(shown, key=lambda one: (one["style"] == "edge", -len(one["name"]))):
            wide = LETTER * len(mark["name"]) + 8
            right = (mark["px"] + BADGE / 2 + 1, mark["px"] + BADGE / 2 + wide)
            left = (mark["px"] - BADGE / 2 - wide, mark["px"] - BADGE / 2 - 1)
            for side, (start, end) in (("right", right), ("left", left)):
                free = all(end < other or start > last for other, last in taken)
                if free and mark["name"] and start >= 0 and end <= self.width:
                    sides[mark["number"]] = side
                    taken.append((start, end))
                    break
        return sides

    def _sides(self) -> list[Any]:
        """Which runs the newest change compares."""
        mark = self.line.newest_change
        if mark is None or self.narrow:
            return []
        test, at, layers = mark.test, self.line.at(mark.index).isoformat(), []
        first = self.line.at(mark.index - test.before).isoformat()
        last = self.line.at(mark.index + test.after - 1).isoformat()
        colour = self.colours[words.STYLES[test.verdict]]
        before = (first, at, self.colours["other"], f"{test.before} runs before", "right", -8)
        sides = (before, (at, last, colour, f"{test.after} after", "left", 8))
        for start, end, ink, text, align, dx in sides:
            base = alt.Chart(pd.DataFrame([{"at": start, "to": end, "mark": at}]))
            y = alt.value(HEIGHTS[0] - 10)
            layers.append(base.mark_rule(strokeWidth=3, color=ink).encode(x=self._x(to=True), x2="to:T", y=y))
            label = base.encode(x=self._x("mark"), y=alt.value(HEIGHTS[0] - 22), text=alt.value(text))
            layers.append(written(label, self.colours, align=align, dx=dx, color=self.colours["quiet"]))
        return layers

    # --- A/A ----------------------------------------------------------------------------------------------------------

    def _aa(self, ratios: dict[int, tuple[float, float, float]]) -> Any:
        """The baseline against itself, in percent off 1."""
        floor = 100 * (self.beside.floor or 0)
        most = max(1.0, 2 * floor)
        rows = [
            {"at": self.line.at(number).isoformat(), "y": min(max(100 * (ratio - 1), -most), most)}
            for number, (ratio, *_) in ratios.items()
        ]
        y = self._y("y", -most, most, 3, "+")
        first, last = (at.isoformat() for at in self.span)
        band = alt.Chart(pd.DataFrame([{"at": first, "to": last, "y": -floor, "t": floor}]))
        said = f"{self.beside.baseline} against itself (A/A), off 1 in %"
        title = self._title(said, f"band: nine in ten runs are within ±{floor:.1f}%" if floor else "", 6)
        layers = [
            band.mark_rect(color=self.colours["band"], aria=False).encode(x=self._x(to=True), x2="to:T", y=y, y2="t:Q"),
            alt.Chart(pd.DataFrame(rows)).mark_point(filled=True, size=10, opacity=1, color=self.colours["quiet"]).encode(
                x=self._x(), y=y
            ),
        ]  # fmt: skip
        return alt.layer(*layers).properties(width=self.width, height=HEIGHTS[2], title=title)


def _decimals(step: float) -> int:
    """Decimals of the labels of an axis whose round steps (1, 2 or 5) are about this large."""
    return max(0, -math.floor(math.log10(step * math.sqrt(2))))


def _short(mark: Mark) -> str:
    """The name of a mark on the chart: what changed, with its new version if it is one thing."""
    if not mark.facts:
        return ""
    names = [fact.name for fact in mark.facts]
    if len(names) == 1 and names[0] != "source":
        return f"{names[0]} {mark.facts[0].after}"
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"

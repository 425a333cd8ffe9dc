"""Charts of tiers: kernels and tiers on one axis of times, the climb of one workload, the progress of all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import altair as alt
import pandas as pd

from kernels.contract.arm_result import Verdict
from runs.charts.scales import placed
from runs.charts.theme import in_pixels, theme, written
from runs.queries.ladder import BEYOND, DECIDED, REACHED, Ladder, word_of
from runs.queries.leaders import Placed
from runs.templatetags.figures import ratio as digits
from runs.templatetags.figures import timespan

WIDTHS, LABELS = (1130, 326), (170, 96)
"""Whole widths in pixels and those of the names: (wide page, narrow page)."""
NAME, LINE = (26, 14), 12
"""Characters of a name on a line: (wide page, narrow page); pixels from one line to the next."""
TOP, ROW, BOTTOM = 24, 30, 26
APART = 56
"""Pixels between two labels of the axis, at least."""
SLOWEST = 4.0
"""Kernels that take more times the baseline's time are drawn at the edge."""
CLIMB = (330, 190)


def rows_of(one: Ladder, target_ms: float | None = None) -> list[dict[str, Any]]:
    """Kernels, tiers and the target, slowest first: name, time in ms with its interval, what it says, its style."""
    best = one.best[0].pk if one.best else None
    rows = [_row(one.base.kernel, one.base_ms, "baseline", "base")]
    for point, ratio in one.kernels:
        low, high = one.base_ms / ratio.high, one.base_ms / ratio.low
        said = f"{digits(ratio.ratio)}x" + (", the best so far" if point.pk == best else "")
        is_decided = word_of(point, ratio) in (Verdict.FASTER, *DECIDED)
        said += ", undecided" if not is_decided else "" if point.is_confirmed else ", unconfirmed"
        style = "best" if point.pk == best else "kernel"
        rows.append(_row(point.kernel, one.base_ms / ratio.ratio, said, style) | {"from": low, "to": high})
    for step in one.steps:
        said = f"{digits(step.tier.factor)}x" + (
            ", reached" if step.is_confirmed else ", unconfirmed" if step.state == REACHED else ""
        )
        rows.append(_row(step.tier.label, step.target_ms, said, "beyond" if step.state == BEYOND else "tier"))
    if target_ms:
        rows.append(_row("target", target_ms, f"{digits(one.base_ms / target_ms)}x", "target"))
    return sorted(rows, key=lambda row: -row["ms"])


def _row(name: str, ms: float, said: str, style: str) -> dict[str, Any]:
    return {"name": name, "ms": ms, "said": said, "style": style, "from": None, "to": None}


def height(rows: Sequence[Any]) -> int:
    return TOP + ROW * len(rows) + BOTTOM


def ladder(one: Ladder, target_ms: float | None, colours: dict[str, str], narrow: bool) -> Any:
    """On a logarithmic axis of p50, faster to the right. What is beyond the speed of light is shaded."""
    rows, width = rows_of(one, target_ms), WIDTHS[narrow]
    left, right = LABELS[narrow], width - 12
    tall = ROW * len(rows)
    light = one.base.limit_ms if one.most else None
    ends = [row["ms"] for row in rows if row["ms"] <= SLOWEST * one.base_ms] + ([light] if light else [])
    slow, fast = 1.1 * max(ends), min(ends) / 1.12

    def x(ms: float) -> float:
        share = math.log(slow / min(max(ms, fast), slow)) / math.log(slow / fast)
        return left + 8 + share * (right - left - 8)

    def beside(row: Mapping[str, Any], side: str) -> float:
        """Where the label of a row is aligned: at the end of its interval."""
        end = row["from" if side == "left" else "to"]
        return x(end or row["ms"])

    def chart(data: Sequence[dict[str, Any]], **more: Any) -> Any:
        base = alt.Chart(pd.DataFrame(data))
        return base.encode(x=placed(alt.X, "x", width), y=placed(alt.Y, "y", tall), **more)

    layers = []
    if light:
        shade = {"x": x(light), "to": float(right), "y": 0.0, "end": float(tall)}
        layers.append(
            chart([shade]).mark_rect(color=colours["band"], opacity=0.6, aria=False).encode(x2="to:Q", y2="end:Q")
        )
    for row in rows:
        row["y"] = ROW * (rows.index(row) + 0.5)
        row["x"], row["start"] = x(row["ms"]), float(left)
    lines = [{"x": row["start"], "to": float(right), "y": row["y"]} for row in rows]
    layers.append(chart(lines).mark_rule(color=colours["line"], aria=False).encode(x2="to:Q"))
    for tick in _ticks(slow, fast, x):
        at = {"x": x(tick), "y": float(tall), "text": f"{tick:g} ms" if tick >= 1 else f"{1e3 * tick:g} µs"}
        layers.append(chart([at], text="text:N").mark_text(dy=14, color=colours["quiet"]))
    if light:
        at = {"x": x(light), "y": 0.0, "end": float(tall), "text": f"speed of light {timespan(light)}"}
        side = "right" if x(light) > 0.6 * width else "left"
        layers.append(
            chart([at])
            .mark_rule(color=colours["amber"], strokeDash=[4, 3], strokeWidth=2, aria=False)
            .encode(y2="end:Q")
        )
        layers.append(chart([at], text="text:N").mark_text(dy=-12, align=side, color=colours["amber"]))
    inks = {"base": "ink", "best": "accent", "kernel": "other", "tier": "accent", "beyond": "other", "target": "ink"}
    for style, ink in inks.items():
        mine = [row for row in rows if row["style"] == style]
        if not mine:
            continue
        spans = [{"x": x(row["to"]), "end": x(row["from"]), "y": row["y"]} for row in mine if row["from"] and row["to"]]
        if spans:
            wide = chart(spans).mark_rule(strokeWidth=7, opacity=0.28, color=colours[ink], aria=False)
            layers.append(wide.encode(x2="end:Q"))
        solid = style in ("base", "best", "kernel")
        mark = {"shape": "circle" if solid else "stroke", "angle": 0 if solid else 90, "size": 60 if solid else 220}
        layers.append(
            chart(mine).mark_point(
                **mark, filled=solid, color=colours[ink], strokeWidth=3, opacity=1, strokeDash=[1, 0]
            )
        )
        heavy = 600 if style in ("best", "target") else 400
        quiet = style in ("kernel", "beyond")
        colour = colours["quiet" if quiet else "ink"]
        for count, names in _names(mine, narrow).items():
            way = {"lineBreak": "\n", "lineHeight": LINE, "dy": -LINE / 2 * (count - 1)}
            text = chart(names, text="name:N")
            layers.append(text.mark_text(align="left", color=colour, fontWeight=heavy, **way))
        for side in ("left", "right"):
            said = [
                row | {"text": timespan(row["ms"]) + ("" if narrow else f", {row['said']}"), "x": beside(row, side)}
                for row in mine
                if (row["x"] > left + 0.55 * (right - left)) == (side == "right")
            ]
            if said:
                base = chart(said, text="text:N")
                dx = 12 if side == "left" else -12
                layers.append(written(base, colours, align=side, dx=dx, color=colour))
    room = {"left": 0, "right": 0, "top": TOP, "bottom": BOTTOM}
    return in_pixels(alt.layer(*layers), width, tall, room, colours)


def _ticks(slow: float, fast: float, x: Any) -> list[float]:
    """1, 2, 5, 10, ... as far as their labels have room."""
    decades = range(math.floor(math.log10(fast)), math.ceil(math.log10(slow)) + 1)
    shown: list[float] = []
    for tick in sorted((lead * 10.0**decade for decade in decades for lead in (1, 2, 5)), reverse=True):
        if fast <= tick <= slow and (not shown or x(tick) - x(shown[-1]) >= APART):
            shown.append(tick)
    return shown


def _names(rows: Sequence[Mapping[str, Any]], narrow: bool) -> dict[int, list[dict[str, Any]]]:
    """Number of lines -> the labels of these rows that take so many."""
    found: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        name = _on_two_lines(row["name"], NAME[narrow]) if narrow else _short(row["name"], NAME[narrow])
        found.setdefault(1 + name.count("\n"), []).append({**row, "x": 0.0, "name": name})
    return found


def _on_two_lines(name: str, most: int) -> str:
    """A name that is too long for one line, broken after a sign if there is one: "triton-flash-", "decode"."""
    if len(name) <= most:
        return name
    at = max((at for at in range(most // 2, most + 1) if name[at - 1] in "-_ @"), default=most)
    return f"{name[:at].rstrip()}\n{_short(name[at:], most)}"


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _dated(rows: Sequence[dict[str, Any]]) -> Any:
    data = pd.DataFrame(rows)
    data["at"] = pd.to_datetime(data["at"], utc=True).dt.strftime("%Y-%m-%dT%H:%M:%S")
    return alt.Chart(data)


def _when(now: datetime, first: datetime) -> Any:
    domain = [first.strftime("%Y-%m-%dT%H:%M:%S"), now.strftime("%Y-%m-%dT%H:%M:%S")]
    axis = alt.Axis(title=None, format="%-d %b", tickCount=4, grid=False, labelOverlap=True)
    return alt.X("at:T", scale=alt.Scale(domain=domain, padding=8), axis=axis, title=None)


def climb(
    steps: Sequence[Placed], one: Ladder, wanted: float | None, now: datetime, colours: dict[str, str]
) -> Any:  # fmt: skip
    """The confirmed records of a workload by date, and the factors of the tiers. wanted: that of the target."""
    rows: list[dict[str, Any]] = [
        {"at": at, "y": step.ratio.ratio, "low": step.ratio.low, "high": step.ratio.high}
        for step in steps
        if (at := step.point.started_at or step.point.created_at)
    ]
    first = min(row["at"] for row in rows)
    path = [*rows, rows[-1] | {"at": now}]
    top = max(row["high"] for row in rows)
    levels = [(step.tier.factor, step.tier.label, "quiet") for step in one.steps]
    shown = [level for level in levels if level[0] <= top] + [level for level in levels if level[0] > top][:2]
    if wanted:
        shown.append((wanted, "target", "ink"))
    if one.most and one.most <= 2 * max(top, *(level[0] for level in shown), 1.0):
        shown.append((one.most, "speed of light", "amber"))
    least, most = min(1.0, *(row["low"] for row in rows)), max(top, *(level[0] for level in shown))
    scale = alt.Scale(domain=[0.97 * least, 1.04 * most], type="log", nice=False)
    axis = alt.Axis(title=None, tickCount=4, grid=False, labelExpr="format(datum.value, '.3~g') + 'x'")
    y, x = alt.Y("y:Q", scale=scale, axis=axis, title=None), _when(now, first)
    layers = []
    for factor, name, ink in shown:
        base = alt.Chart(pd.DataFrame([{"y": factor, "text": name}])).encode(y=y)
        dash = [4, 3] if ink != "quiet" else [1, 0]
        colour = colours["line" if ink == "quiet" else ink]
        layers.append(base.mark_rule(color=colour, strokeDash=dash, strokeWidth=1.5, aria=False))
        is_tier = ink == "quiet"
        text = base.encode(x=alt.value(4 if is_tier else CLIMB[0] - 64), text="text:N")
        side = "left" if is_tier else "right"
        layers.append(written(text, colours, align=side, dy=-7, color=colours[ink]))
    layers += [
        _dated(rows).mark_rule(strokeWidth=5, opacity=0.28, color=colours["accent"], aria=False).encode(
            x=x, y=alt.Y("low:Q", scale=scale, axis=axis, title=None), y2="high:Q"
        ),
        _dated(path).mark_line(interpolate="step-after", color=colours["accent"], strokeWidth=2).encode(x=x, y=y),
        _dated(rows).mark_point(filled=True, size=45, opacity=1, color=colours["accent"]).encode(x=x, y=y),
    ]  # fmt: skip
    return theme(alt.layer(*layers).properties(width=CLIMB[0] - 60, height=CLIMB[1] - 40), colours)


def progress(reached: Mapping[str, Sequence[datetime]], total: int, now: datetime, colours: dict[str, str]) -> Any:
    """On how many workloads a confirmed record had reached each tier, by date. reached: tier -> when each workload did."""
    known = {name: sorted(times) for name, times in reached.items() if times}
    first = min(times[0] for times in known.values())
    y = alt.Y(
        "count:Q",
        scale=alt.Scale(domain=[0, total], nice=False),
        axis=alt.Axis(title=None, tickCount=min(4, total), tickMinStep=1, format="d"),
        title=None,
    )
    x, layers = _when(now, first), []
    for name, times in known.items():
        path = [{"at": first, "count": 0}]
        path += [{"at": at, "count": number} for number, at in enumerate(times, 1)]
        path.append({"at": now, "count": len(times)})
        layers.append(
            _dated(path).mark_line(interpolate="step-after", color=colours["accent"], strokeWidth=2).encode(x=x, y=y)
        )
        end = _dated([{"at": now, "count": len(times), "text": f"{name}: {len(times)} of {total}"}])
        layers.append(written(end.encode(x=x, y=y, text="text:N"), colours, align="right", dy=-9))
    return theme(alt.layer(*layers).properties(width=CLIMB[0] - 60, height=CLIMB[1] - 40), colours)

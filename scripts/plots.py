"""Draws the plots of docs/instrument.md from the newest files in docs/measurements.

python scripts/plots.py
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import vl_convert

DOCS = Path(__file__).resolve().parent.parent / "docs"
FONT = "DejaVu Sans, system-ui, sans-serif"
INK, QUIET, LINE, BAND = "#1b1d1f", "#6b7075", "#e4e4e0", "#eeeeeb"
TEAL, BLUE, RED = "#0b7a6b", "#1f5fbf", "#b8430e"
MARGIN = 0.01
"""Of the words FASTER and SLOWER."""
EDGE = 0.15


def clocks(data: dict[str, Any]) -> Any:
    """Each clock's time over that of the mode cold, per kernel; what is further off than EDGE stands in words."""
    readings = data["readings_ns"]
    base = {name: statistics.median(values) for name, values in readings["cold"].items()}
    names = [name for name in base if name != "empty"]
    panels = []
    for name in names:
        rows = [
            {"clock": mode, "off": statistics.median(row[name]) / base[name] - 1}
            for mode, row in readings.items()
            if name in row
        ]
        panels.append(_clocks_panel(pd.DataFrame(rows), list(readings), name, labels=name == names[0]))
    return alt.hconcat(*panels, spacing=10).resolve_scale(y="independent")


def _clocks_panel(table: pd.DataFrame, modes: list[str], name: str, labels: bool) -> Any:
    table["at"] = table["off"].clip(-EDGE, EDGE)
    table["far"] = table["off"].abs() > EDGE
    table["text"] = [f"{off:+.0%}" if abs(off) > EDGE else "" for off in table["off"]]
    axis = alt.Axis(labels=labels, ticks=False, domain=False, labelLimit=220, labelPadding=8)
    x = alt.X(
        "at:Q",
        title=None,
        scale=alt.Scale(domain=[-1.3 * EDGE, 1.3 * EDGE], nice=False),
        axis=alt.Axis(values=[-0.1, 0, 0.1], labelExpr=_signed(0)),
    )
    base = alt.Chart(table).encode(x=x, y=alt.Y("clock:N", sort=modes, title=None, axis=axis))
    rule = alt.Chart(pd.DataFrame([{"at": 0.0}])).mark_rule(color=QUIET, strokeDash=[3, 3]).encode(x="at:Q")
    near = base.transform_filter("!datum.far").mark_point(filled=True, size=55, color=BLUE, opacity=1)
    far = base.transform_filter("datum.far").mark_text(color=RED, fontSize=11, font=FONT).encode(text="text:N")
    return (rule + near + far).properties(width=118, height=18 * len(modes), title=name)


def _signed(digits: int) -> str:
    """Vega's expression for a signed percentage, and 0 without one."""
    return f"datum.value == 0 ? '0' : format(datum.value, '+.{digits}%')"


def aa(data: dict[str, Any]) -> Any:
    """Every kernel against itself: how far off, with the interval, over how long a call takes."""
    rows = [
        {"us": row["p50_us"]["sdpa"], **{k: v - 1 for k, v in zip(("off", "low", "high"), row["aa"], strict=True)}}
        for process in data["pairs"]
        for row in process["workloads"].values()
    ]
    scale = alt.Scale(domain=[-2 * MARGIN, 2 * MARGIN], zero=False, nice=False)
    x = alt.X("us:Q", scale=alt.Scale(type="log"), title="time of a call, us", axis=alt.Axis(format="~g", tickCount=5))
    y = alt.Y("low:Q", scale=scale, title="A/A, off 1", axis=alt.Axis(labelExpr=_signed(1), tickCount=5))
    base = alt.Chart(pd.DataFrame(rows)).encode(x=x)
    band = alt.Chart(pd.DataFrame([{"low": -MARGIN, "high": MARGIN}])).mark_rect(color=BAND)
    bars = base.mark_rule(color=TEAL, opacity=0.55, clip=True).encode(y=y, y2="high:Q")
    dots = base.mark_point(filled=True, color=TEAL, size=35, opacity=1).encode(y=alt.Y("off:Q", scale=scale))
    return (band.encode(y=y, y2="high:Q") + bars + dots).properties(width=560, height=240)


def planted(data: dict[str, Any]) -> Any:
    """The ratio and interval of a kernel known to be slower, in each fresh process."""
    rows = [
        {"kernel": f"{name.split('-')[1]}% more work", "process": number, **row["speedup"][name]}
        for number, process in enumerate(data["planted"], 1)
        for row in process["workloads"].values()
        for name in ("planted-2", "planted-5")
        if name in row["speedup"]
    ]
    table = pd.DataFrame(rows)[["kernel", "process", "ratio", "low", "high"]]
    x = alt.X("process:O", title="fresh process", axis=alt.Axis(labelAngle=0))
    y = alt.Y("low:Q", scale=alt.Scale(domain=[0.94, 1.005]), title="speedup", axis=alt.Axis(format=".2f"))
    colour = alt.Color("kernel:N", scale=alt.Scale(range=[BLUE, RED]), legend=alt.Legend(title=None, orient="top"))
    base = alt.Chart(table).encode(x=x, color=colour)
    band = alt.Chart(pd.DataFrame([{"low": 1 / (1 + MARGIN), "high": 1.005}])).mark_rect(color=BAND)
    drawn = base.mark_rule(size=2).encode(y=y, y2="high:Q") + base.mark_point(filled=True, size=40, opacity=1).encode(
        y="ratio:Q"
    )
    return (band.encode(y=y, y2="high:Q") + drawn).properties(width=560, height=220)


def captures(data: dict[str, Any]) -> Any:
    """Each capture's, and each allocation's, median over that of all."""
    rows = []
    for found in data["workloads"]:
        for kind in ("captures_ns", "allocations_ns"):
            medians = [statistics.median(each) for each in found[kind]]
            middle = statistics.median(medians)
            rows += [{"workload": found["label"], "kind": kind[:-3], "off": each / middle - 1} for each in medians]
    x = alt.X("off:Q", title=None, axis=alt.Axis(labelExpr=_signed(1), tickCount=5))
    y = alt.Y("workload:N", sort=None, title=None, axis=alt.Axis(ticks=False, domain=False, labelLimit=260))
    dots = alt.Chart(pd.DataFrame(rows)).mark_point(size=50, color=BLUE).encode(x=x, y=y)
    return dots.properties(width=260, height=90).facet(column=alt.Column("kind:N", title=None))


PLOTS: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
    "clocks": ("clocks-*.json", clocks),
    "aa": ("evidence-h200-*.json", aa),
    "aa-without-rests": ("evidence-without-rests-*.json", aa),
    "planted": ("planted-*.json", planted),
    "captures": ("captures-*.json", captures),
}


def look(chart: Any) -> Any:
    text = {"labelColor": INK, "titleColor": QUIET, "labelFont": FONT, "titleFont": FONT, "titleFontWeight": "normal"}
    chart = chart.configure(background="white", font=FONT, padding=12).configure_view(stroke=None)
    chart = chart.configure_axis(**text, gridColor=LINE, domainColor=LINE, tickColor=LINE, labelFontSize=11)
    chart = chart.configure_title(color=INK, font=FONT, fontSize=12, fontWeight=600)
    return chart.configure_legend(labelColor=INK, labelFont=FONT, labelFontSize=11)


def main() -> None:
    (DOCS / "plots").mkdir(exist_ok=True)
    for name, (pattern, draw) in PLOTS.items():
        files = sorted(
            (DOCS / "measurements").glob(pattern), key=lambda path: json.loads(path.read_text())["measured_at"]
        )
        if not files:
            print(f"{name}: there is no docs/measurements/{pattern}", file=sys.stderr)
            continue
        svg = vl_convert.vegalite_to_svg(look(draw(json.loads(files[-1].read_text()))).to_dict())
        (DOCS / "plots" / f"{name}.svg").write_text(svg + "\n")
        print(f"docs/plots/{name}.svg from {files[-1].name}")


if __name__ == "__main__":
    main()

"""The theme of all charts: light and dark palettes, quiet axes."""

from __future__ import annotations

from typing import Any

import altair as alt

THEMES: dict[str, dict[str, str]] = {
    "light": {
        "ink": "#1b1d1f", "quiet": "#6b7075", "line": "#e4e4e0", "faster": "#0b7a6b", "slower": "#b8430e",
        "accent": "#1f5fbf", "band": "#e6e6e2", "other": "#8a8f94", "panel": "#ffffff",
        "amber": "#805a00",
    },
    "dark": {
        "ink": "#e8e9ea", "quiet": "#9aa1a8", "line": "#2c3035", "faster": "#4fc7b3", "slower": "#ff9a66",
        "accent": "#7fb0ff", "band": "#3a4046", "other": "#757c83", "panel": "#1a1d20",
        "amber": "#e5bd5c",
    },
}  # fmt: skip
"""As in site.css. `other` has a contrast of 3:1 against `panel`, the background of charts."""
STAND_INS = {name: f"#0000{number:02x}" for number, name in enumerate(THEMES["light"])}
"""Colours to draw with where a chart is needed in every theme: `in_theme` exchanges them, faster than a second drawing."""
SERIES = {
    "light": ("#1f5fbf", "#805a00", "#7a3fa0", "#0b7a6b", "#b8430e", "#6b7075", "#1b1d1f", "#a0305f"),
    "dark": ("#7fb0ff", "#e5bd5c", "#c79bea", "#4fc7b3", "#ff9a66", "#9aa1a8", "#e8e9ea", "#f090b5"),
}
"""Colours of things that stand side by side without a verdict, each with a contrast of 3:1 against `panel`."""
FONT = "DejaVu Sans, system-ui, sans-serif"


def theme(chart: Any, colours: dict[str, str]) -> Any:
    """Applies the site's chart theme: no frame, quiet axes, the page's font."""
    quiet, ink = colours["quiet"], colours["ink"]
    font = {"labelFont": FONT, "titleFont": FONT, "labelFontSize": 11, "titleFontSize": 11}
    axis = {"labelColor": quiet, "titleColor": quiet, "gridColor": colours["line"], "titleFontWeight": "normal"}
    legend = {
        "labelColor": quiet,
        "title": None,
        "orient": "top",
        "labelFont": FONT,
        "labelFontSize": 11,
        "symbolOpacity": 1,
    }
    chart = chart.copy(deep=False)  # chart.configure() would copy all of it
    chart.config = alt.Config(
        background="transparent",
        padding=4,
        autosize=alt.AutoSizeParams(type="pad"),
        view=alt.ViewConfig(stroke=None),
        axis=alt.AxisConfig(**axis, **font, domain=False, ticks=False, labelLimit=240),
        text=alt.MarkConfig(font=FONT, fontSize=11, color=ink),
        legend=alt.LegendConfig(**legend),
        header=alt.HeaderConfig(labelColor=ink, labelFont=FONT, labelFontSize=11, labelFontWeight=600, title=None),
    )
    return chart


def in_theme(drawn: str, palette: str) -> str:
    """A chart that was drawn with STAND_INS, as JSON or SVG, in the colours of a theme."""
    for name, stand_in in STAND_INS.items():
        drawn = drawn.replace(stand_in, THEMES[palette][name])
    return drawn


def in_pixels(chart: Any, width: int, height: int, room: dict[str, int], colours: dict[str, str]) -> Any:
    """The same for a chart whose whole size is known before it is drawn: width and height of its marks, and the room
    around them ("left", "top", "right", "bottom"), in which axes and labels stand."""
    drawn = theme(chart, colours)
    drawn.width, drawn.height, drawn.padding, drawn.autosize = width, height, room, alt.AutoSizeParams(type="none")
    return drawn


def written(base: Any, colours: dict[str, str], quiet: bool = False, **mark: Any) -> Any:
    """Text on a halo in the panel's colour, which hides lines behind it."""
    halo = {"color": colours["panel"], "stroke": colours["panel"], "strokeWidth": 5, "strokeJoin": "round"}
    own = {"color": colours["quiet"]} if quiet else {}
    return base.mark_text(**mark | halo, aria=False) + base.mark_text(**mark | own)

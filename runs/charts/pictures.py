"""Charts as pictures: SVG, PNG."""

from __future__ import annotations

from typing import Any

import vl_convert

from runs.charts.theme import THEMES

SHARP = 2
"""Pixels of a PNG for each pixel of the chart."""


def image(spec: dict[str, Any], kind: str, palette: str) -> bytes:
    """kind: svg or png. A picture in a page has no background; a PNG, which is taken elsewhere, has the panel's."""
    if kind == "svg":
        return vl_convert.vegalite_to_svg(spec).encode()
    ground = spec | {"config": spec["config"] | {"background": THEMES[palette]["panel"]}}
    return vl_convert.vegalite_to_png(ground, scale=SHARP)

"""Charts as files: Vega-Lite, SVG, PNG."""

from __future__ import annotations

from typing import Any

import vl_convert
from django.http import HttpResponse, JsonResponse

from runs.charts.theme import THEMES
from runs.views.downloads import saved_as

SHARP = 2
"""Pixels of a PNG for each pixel of the chart."""


def as_file(spec: dict[str, Any], kind: str, palette: str, name: str) -> HttpResponse:
    """A picture in a page has no background; a PNG, which is taken elsewhere, has the panel's."""
    if kind == "json":
        return JsonResponse(spec)
    if kind == "svg":
        return HttpResponse(vl_convert.vegalite_to_svg(spec), content_type="image/svg+xml")
    ground = spec | {"config": spec["config"] | {"background": THEMES[palette]["panel"]}}
    image = vl_convert.vegalite_to_png(ground, scale=SHARP)
    return HttpResponse(image, content_type="image/png", headers=saved_as(f"{name}.png"))

"""Charts as files: Vega-Lite, SVG, PNG."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse

from runs.charts.pictures import image
from runs.charts.theme import THEMES
from runs.views.downloads import saved_as


def palette_of(request: HttpRequest) -> str:
    """The name of the palette that an address asks for; light if it asks for none. Raises Http404."""
    theme = request.GET.get("theme", "light")
    if theme not in THEMES:
        raise Http404(f"there is no chart in '{theme}'")
    return theme


def as_file(spec: dict[str, Any], kind: str, palette: str, name: str) -> HttpResponse:
    if kind == "json":
        # A kept chart comes from the database with its keys in another order: its text, and so its ETag, must not change.
        return JsonResponse(spec, json_dumps_params={"sort_keys": True})
    if kind == "svg":
        return HttpResponse(image(spec, kind, palette), content_type="image/svg+xml")
    return HttpResponse(image(spec, kind, palette), content_type="image/png", headers=saved_as(f"{name}.png"))

"""Charts in pages: small SVG in table rows, and figures drawn by Vega."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import template

from runs.templatetags.figures import grouped

register = template.Library()


@register.inclusion_tag("pictures/forest.html")
def forest(cell: dict[str, Any], verdict: str) -> dict[str, Any]:
    """A ratio's interval beside 1: runs/charts/forest.py."""
    return {"c": cell, "verdict": verdict}


@register.inclusion_tag("pictures/sparkline.html")
def sparkline(line: dict[str, Any], verdict: str) -> dict[str, Any]:
    """A speedup from run to run: runs/charts/sparkline.py."""
    return {"s": line, "verdict": verdict}


@register.inclusion_tag("pictures/run_chart.html")
def run_chart(run: Any, name: str, sizes: Sequence[Any], shown: str = "") -> dict[str, Any]:
    """A chart of a run: runs/charts/run_stored.py. sizes: its size on a wide page and on a phone, which is reserved. shown:
    what it shows, in words."""
    wide, small = sizes
    shown = shown or f"{name.partition('__')[0].capitalize()} on each workload"
    return {"run": run, "name": name, "shown": shown, "wide": wide, "small": small, "file": f"run-{run.pk}-{name}"}


@register.inclusion_tag("pictures/result_chart.html")
def result_chart(run_pk: int, result_pk: int, name: str, arms: Sequence[Any]) -> dict[str, Any]:
    """A chart of a result: runs/charts/distribution/."""
    if name == "samples":
        shown = "Samples of " + " and ".join(f"{arm.name}, median {grouped(arm.median)} µs" for arm in arms)
    else:
        shown = "Median of each round of " + " and ".join(arm.name for arm in arms)
    return {"run_pk": run_pk, "result_pk": result_pk, "name": name, "alt": f"{shown}; the numbers are in the csv"}

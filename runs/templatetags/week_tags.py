"""The small charts and bars of the first page."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django import template
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from kernels.report import change_words as words
from runs.templatetags.figures import percent

register = template.Library()


@register.simple_tag
def small_chart(name: str, label: str, size: tuple[int, int], *args: Any, **asked: str) -> SafeString:
    """A chart of runs/charts/week_charts.py: drawn by Vega, without scripts a picture; its size is reserved."""
    width, height = size
    query = f"?{urlencode(asked)}" if asked else ""
    spec, svg = (reverse(f"{name}_{kind}", args=args) + query for kind in ("json", "svg"))
    return format_html(
        '<figure class="chart small" data-chart="{}" data-label="{}" style="min-height: {}px"><noscript>'
        '<img src="{}" alt="{}" width="{}" height="{}"></noscript></figure>',
        spec, label, height, svg, label, width, height,
    )  # fmt: skip


@register.simple_tag
def target_bar(one: Any) -> SafeString:
    """What the best kernel has of the speed of light, with the target marked; the right end is the speed of light."""
    if one.reach is None or one.goal is None:
        return SafeString("")
    said = f"{percent(one.reach)} of the speed of light, target {percent(one.goal)}"
    kind = "" if one.is_confirmed else " hatched"
    return format_html(
        '<div class="reach" role="img" aria-label="{}"><i class="{}" style="width: {}"></i>'
        '<u style="left: {}"></u></div>',
        said, kind.strip(), f"{one.reach:.1%}", f"{one.goal:.1%}",
    )  # fmt: skip


@register.filter
def drifted(one: Any) -> str:
    """ "+4.1% time (+2.0 to +6.2%)"."""
    return f"{words.percent(one.ratio)} time ({words.reach(one.low, one.high)})"


@register.filter
def model(name: str) -> str:
    """A GPU's name without its maker: H200."""
    return name.removeprefix("NVIDIA ")

"""Table cells: one tag per cell, or per pair of adjacent cells.

Each tag takes the result (or row) and picks the fields, so that templates do not.
"""

from __future__ import annotations

from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from kernels.analysis.statistics import as_margin
from runs.templatetags.figures import is_decided, ratio3, us

register = template.Library()
register.filter("as_margin", as_margin)

SHOWN_MARGIN = 0.0101
"""The usual margin of 1% is not shown; wider ones are."""


def wide(margin: float | None) -> float | None:
    """The margin if it is wider than usual."""
    return margin if margin is not None and margin > SHOWN_MARGIN else None


def is_timed(result: Any) -> bool:
    """Whether the result has times; if not, its row shows why."""
    return result.status == "ok" and result.n is not None


register.filter("wide", wide)
register.filter("is_timed", is_timed)


@register.simple_tag
def speedup_cells(result: Any, margin: bool = False) -> str:
    """Speedup and its interval. margin: also the margin if it is wider than usual."""
    wider = wide(result.margin) if margin else None
    figures = (result.speedup, result.speedup_low, result.speedup_high)
    return ratio_html(
        *figures, margin=wider, decided=is_decided(result.verdict) and not getattr(result, "contended", False)
    )


@register.simple_tag
def ratio_cells(
    ratio: float | None, low: float | None, high: float | None, margin: float | None = None, verdict: str = "FASTER"
) -> str:
    """The same for a derived ratio: a change, or a workload's best speedup."""
    return ratio_html(ratio, low, high, margin=wide(margin), decided=is_decided(verdict))


def ratio_html(
    ratio: float | None, low: float | None, high: float | None, margin: float | None = None, decided: bool = False
) -> SafeString:
    """Two cells: a ratio, bold if something is decided, and its interval. No template: tables have hundreds."""
    if ratio is None:
        return mark_safe("<td>\N{EN DASH}</td><td></td>")
    figure = format_html("<b>{}x</b>" if decided else "{}x", ratio3(ratio))
    wider = format_html(' <span class="warn">margin {}</span>', as_margin(margin)) if margin else ""
    return format_html(
        '<td>{}</td><td class="interval"><small>{} to {}{}</small></td>', figure, ratio3(low), ratio3(high), wider
    )


@register.inclusion_tag("cells/before_after.html")
def point_p50_cell(point: Any) -> dict[str, str]:
    """The same for a point of a history, in three digits: the rows of its table are of other workloads or runs."""
    if point.status != "ok" or not point.p50_ms:
        return {}
    before = us(point.base_p50_ms) if point.base_p50_ms and point.verdict != "baseline" else ""
    return {"before": before, "after": us(point.p50_ms)}


@register.inclusion_tag("cells/why.html")
def why_cell(why: str, span: int, longest: int = 90) -> dict[str, Any]:
    """The reason for missing data, across `span` columns."""
    return {"why": why, "span": span, "longest": longest}


@register.inclusion_tag("cells/sha.html")
def source_cell(point: Any, edited: bool) -> dict[str, Any]:
    """The first digits of the source's sha256; marked if the source differs from the run before."""
    return {"sha256": point.sha256, "edited": edited}

"""Table cells: one inclusion tag per cell, or per pair of adjacent cells.

Each tag takes the result (or row) and picks the fields, so that templates do not.
"""

from __future__ import annotations

from typing import Any

from django import template
from django.template.defaultfilters import yesno

from runs.templatetags.figures import error, grouped, interval_us, is_decided, p50_us, percent, us, us_like

register = template.Library()

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


@register.inclusion_tag("cells/ratio.html")
def speedup_cells(result: Any, margin: bool = False) -> dict[str, Any]:
    """Speedup and its interval. margin: also the margin if it is wider than usual."""
    return {
        "ratio": result.speedup,
        "low": result.speedup_low,
        "high": result.speedup_high,
        "margin": wide(result.margin) if margin else None,
        "decided": is_decided(result.verdict),
    }


@register.inclusion_tag("cells/ratio.html")
def ratio_cells(
    ratio: float | None, low: float | None, high: float | None, margin: float | None = None, verdict: str = "FASTER"
) -> dict[str, Any]:
    """The same for a derived ratio: a change, or a workload's best speedup."""
    return {"ratio": ratio, "low": low, "high": high, "margin": wide(margin), "decided": is_decided(verdict)}


@register.inclusion_tag("cells/timed.html")
def timed_cells(
    result: Any, base: Any, unit: str, has_limits: bool, dense_factor: float | None = None
) -> dict[str, Any]:
    """The figures of a timed result after its speedup: one tag for all, because a page has hundreds of such rows.

    dense_factor: of the workload, if part of its work is masked. The p50 comes after the baseline's, unless the result
    is the baseline; all p50 of a workload have the decimals of the baseline's. p90 is of single calls.
    """
    correctness = result.correctness
    return {
        "before": p50_us(base) if base and result.verdict != "baseline" else "",
        "after": us_like(result.p50_ms, base or result),
        "interval": interval_us(result),
        "p90": us(result.single_calls.p90_ms),
        "cold": result.cold,
        "correct": yesno(correctness.correct, "yes,no,unknown") if correctness else "",
        "error": error(correctness.frobenius) if correctness else "",
        "rate": grouped(result.gb_per_s if unit == "GB/s" else result.tflops),
        "dense": grouped(result.tflops * dense_factor) if dense_factor and unit != "GB/s" and result.tflops else "",
        "share": percent(result.limit_share) if has_limits else "",
        "has_limits": has_limits,
        "n": result.n,
        "rounds": result.rounds,
    }


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


@register.inclusion_tag("cells/untimed.html")
def untimed_cell(result: Any, span: int) -> dict[str, Any]:
    """Why a result has no valid time, and its measured time."""
    return {
        "why": result.why,
        "span": span,
        "ended": result.why.endswith("."),
        "read": p50_us(result) if result.p50_ms else "",
    }


@register.inclusion_tag("cells/sha.html")
def source_cell(point: Any, edited: bool) -> dict[str, Any]:
    """The first digits of the source's sha256; marked if the source differs from the run before."""
    return {"sha256": point.sha256, "edited": edited}

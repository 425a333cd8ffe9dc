"""Figures of claims: as they were written, and as they follow from sizes and times."""

from __future__ import annotations

from django import template

register = template.Library()
NONE = "\N{EN DASH}"


@register.filter
def claimed(value: float | None) -> str:
    """With the digits of the claim."""
    return NONE if value is None else f"{value:.7g}"


@register.filter
def recomputed(value: float | None) -> str:
    """Three digits: a claim says no interval, so more would mean nothing."""
    return NONE if value is None else (f"{value:.0f}" if value >= 100 else f"{value:.3g}")


@register.filter
def share(value: float | None) -> str:
    return NONE if value is None else f"{value:.1%}"

"""How figures are written on pages: three significant digits, tabular, the unit in the header."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import template
from django.utils import timezone

from kernels.report import three_digits

register = template.Library()
DASH = "–"  # noqa: RUF001


@register.filter
def us(ms: float | None) -> str:
    """Milliseconds, written in microseconds: 29,300 or 7.48."""
    return DASH if ms is None else grouped(ms * 1e3)


@register.filter
def grouped(value: float | None) -> str:
    """Three significant digits with thousands separated."""
    if value is None:
        return DASH
    text = three_digits(value)
    return f"{int(text):,}" if text.lstrip("-").isdigit() and abs(value) >= 1e4 else text


@register.filter
def ratio(value: float | None) -> str:
    """A speedup: two digits near and above 1, more where it is small."""
    if value is None:
        return DASH
    return f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


@register.filter
def ratio3(value: float | None) -> str:
    return DASH if value is None else f"{value:.3f}"


@register.filter
def percent(value: float | None) -> str:
    return DASH if value is None else f"{value:.0%}"


@register.filter
def error(value: float | None) -> str:
    """An error, such as 1.1e-4."""
    return DASH if value is None else f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e+")


@register.filter
def mib(value: int | None) -> str:
    return DASH if value is None else f"{value / 2**20:,.1f}"


@register.filter
def duration(seconds: float | None) -> str:
    """48 s, 2 min 5 s, 3 h 10 min."""
    if seconds is None:
        return DASH
    whole = round(seconds)
    if whole < 1:
        return "under 1 s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


@register.filter
def ago(when: datetime | None) -> str:
    if when is None:
        return "never"
    seconds = (timezone.now() - when).total_seconds()
    if seconds < 5:
        return "just now"
    if seconds > 7 * 86400:
        return f"{when:%Y-%m-%d}"
    if seconds > 86400:
        return f"{int(seconds // 86400)} d ago"
    return f"{duration(seconds if seconds < 60 else seconds // 60 * 60)} ago"


@register.filter
def get(mapping: dict[Any, Any], key: Any) -> Any:
    return mapping.get(key)


MARKS = {"faster": "▲", "slower": "▼", "same": "=", "undecided": "?"}


@register.inclusion_tag("_tag.html")
def verdict_tag(result: Any) -> dict[str, str]:
    """A verdict with its sign and its word; colour never stands alone."""
    word = (result.verdict or result.status).lower()
    known = word if word in ("faster", "slower", "same", "baseline") else ""
    quiet = word in ("unsupported", "undecided", "needs more runs", "unpaired")
    return {"word": word, "mark": MARKS.get(word, ""), "style": known or ("same" if quiet else "warn")}


@register.inclusion_tag("_state.html")
def state_tag(state: str) -> dict[str, str]:
    styles = {"running": "busy", "queued": "wait", "done": "on", "online": "on", "busy": "busy"}
    return {"state": state, "style": styles.get(state, "off")}

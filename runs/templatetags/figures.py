"""Number formats of pages: three significant digits, tabular, the unit in the header."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import mark_safe

from kernels.analysis.statistics import MIN_ROUNDS
from kernels.contract.arm_result import Ratio, Verdict
from kernels.report import cells
from kernels.report.cells import three_digits

register = template.Library()
DASH = "\N{EN DASH}"


@register.filter
def us(ms: float | None) -> str:
    """Milliseconds, shown in microseconds: 29,300 or 7.48."""
    return DASH if ms is None else grouped(ms * 1e3)


@register.filter
def us_of_ns(ns: float | None) -> str:
    return us(None if ns is None else ns / 1e6)


@register.filter
def p50_us(result: Any) -> str:
    """A result's p50 in microseconds, with the digits that its interval needs."""
    return _us_to(result.p50_ms, result)


@register.filter
def interval_us(result: Any) -> str:
    return f"{_us_to(result.p50_low_ms, result)} to {_us_to(result.p50_high_ms, result)}"


@register.filter
def spread_name(result: Any) -> str:
    """What the two ends beside a p50 are: below MIN_ROUNDS rounds no interval of 99% is possible."""
    return "interval" if (result.rounds or 0) >= MIN_ROUNDS else "range"


@register.filter
def us_like(ms: float | None, result: Any) -> str:
    """Another time of the same result, with the same digits."""
    return _us_to(ms, result)


def _us_to(ms: float | None, result: Any) -> str:
    """Three significant digits, or more until the interval's ends differ; at most to the nanosecond."""
    if ms is None or not ms or result.p50_low_ms is None or result.p50_high_ms is None:
        return us(ms)
    width = 1e3 * (result.p50_high_ms - result.p50_low_ms)
    usual = 2 - math.floor(math.log10(1e3 * result.p50_ms))
    wanted = -math.floor(math.log10(width)) if width > 0 else usual
    return f"{1e3 * ms:,.{min(3, max(0, usual, wanted))}f}"


@register.filter
def grouped(value: float | None) -> str:
    """Three significant digits, with separators between thousands; of a very small figure only that it is small."""
    if value is None:
        return DASH
    if 0 < value < 0.001:
        return "<0.001"
    text = three_digits(value)
    return f"{int(text):,}" if text.lstrip("-").isdigit() else text


@register.filter
def ratio(value: float | None) -> str:
    """A speedup: two decimals near and above 1; more if it is small."""
    if value is None:
        return DASH
    return f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


@register.filter
def ratio3(value: float | None) -> str:
    return DASH if value is None else f"{value:.3f}"


@register.filter
def plus_minus(interval: Ratio) -> str:
    """The larger side of an interval, of its ratio: "±0.3%"; both ends where the sides differ: "0.40 to 1.20"."""
    return cells.plus_minus(interval, ratio)


@register.filter
def with_spread(interval: Ratio | None) -> str:
    """A speedup and its interval: "1.485x ±0.3%"."""
    return DASH if interval is None else f"{ratio3(interval.ratio)}x {plus_minus(interval)}"


@register.filter
def time_with_spread(interval: Ratio | None) -> str:
    """A time in microseconds and its interval: "17.0 ±0.4%"."""
    return DASH if interval is None else f"{grouped(interval.ratio)} {cells.plus_minus(interval, grouped)}"


@register.filter
def timespan(ms: float | None) -> str:
    """A time with its unit, for cells whose column has several: 9.92 µs, 13.2 ms."""
    if ms is None:
        return DASH
    return f"{grouped(ms)} ms" if ms >= 1 else f"{grouped(ms * 1e3)} µs"


@register.filter
def to_timespan(low_ms: float, high_ms: float) -> str:
    """An interval of times, with digits that tell its ends apart: 13.21 ms to 13.24 ms."""
    if low_ms == high_ms or timespan(low_ms) != timespan(high_ms):
        return f"{timespan(low_ms)} to {timespan(high_ms)}"
    factor, unit = (1, "ms") if low_ms >= 1 else (1e3, "µs")
    ends = [(f"{low_ms * factor:.{n}g}", f"{high_ms * factor:.{n}g}") for n in range(4, 10)]
    low, high = next((pair for pair in ends if pair[0] != pair[1]), ends[-1])
    return f"{low} {unit} to {high} {unit}"


@register.filter
def percent(value: float | None) -> str:
    """A share: 63%, and below 1% 0.3%."""
    return DASH if value is None else f"{value:.1%}" if 0 < value < 0.01 else f"{value:.0%}"


@register.filter
def error(value: float | None) -> str:
    """An error, such as 1.1e-4, or 2.44."""
    if value is None:
        return DASH
    return three_digits(value) if 0.01 <= value < 1000 else f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e+")


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
    """Age in one unit; the title of <time> has the full date."""
    if when is None:
        return "never"
    seconds = (timezone.now() - when).total_seconds()
    if seconds < 5:
        return "just now"
    if seconds > 7 * 86400:
        return str(timezone.localdate(when))
    if seconds > 86400:
        return f"{int(seconds // 86400)} d ago"
    unit, name = (3600, "h") if seconds >= 3600 else (60, "min") if seconds >= 60 else (1, "s")
    return f"{int(seconds // unit)} {name} ago"


@register.filter
def short(label: str) -> str:
    """A workload's label without its operation, for pages about one operation."""
    return label.split(" ", 1)[-1]


@register.filter
def get(mapping: dict[Any, Any], key: Any) -> Any:
    return mapping.get(key)


@register.filter
def is_decided(verdict: str) -> bool:
    """Whether a ratio is bold: nothing undecided is."""
    return verdict in (Verdict.FASTER, Verdict.SLOWER, Verdict.SAME)


QUIET = ("unsupported", "undecided", "needs more rounds", "unpaired", "not compared", "new", "gone", "ok")
MARKS = {"faster": "▲", "slower": "▼", "same": "=", "undecided": "?", "mixed": "±"}


@register.inclusion_tag("cells/tag.html")
def verdict_tag(result: Any) -> dict[str, str]:
    return word_tag(result.verdict or result.status)


@register.simple_tag
def doubt(point: Any) -> str:
    """Why a decided point is no record: contended or unconfirmed; else empty."""
    if point.contended:
        return mark_safe('<small class="warn">contended</small>')
    return mark_safe("<small>unconfirmed</small>") if is_decided(point.verdict) and not point.is_confirmed else ""


@register.inclusion_tag("cells/tag.html")
def word_tag(verdict: str) -> dict[str, str]:
    """A verdict with its sign and word; never only a colour."""
    word = verdict.lower()
    known = word if word in ("faster", "slower", "same", "baseline") else ""
    quiet = word in QUIET
    return {"word": word, "mark": MARKS.get(word, ""), "style": known or ("same" if quiet else "warn")}


STATES = {
    "running": "busy",
    "busy": "busy",
    "queued": "wait",
    "paused": "wait",
    "cancelled": "over",
    "done": "on",
    "idle": "on",
}


@register.simple_tag
def state_tag(state: str) -> str:
    """A state with a dot. No template: lists have one for each row."""
    dot = format_html('<span class="dot {}" aria-hidden="true"></span>', STATES.get(state, "off"))
    return format_html('<span class="state">{}{}</span>', dot, state)

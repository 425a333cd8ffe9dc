"""Changes in pages: the words of kernels/report/change_words.py in cells and tags."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django import template
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from kernels.analysis.changes import RULE, Change
from kernels.report import change_words as words
from runs.templatetags.figures import DASH

register = template.Library()


@register.filter
def day(at: datetime) -> str:
    return words.day(timezone.localtime(at), timezone.localtime())


@register.simple_tag
def change_tag(verdict: str) -> SafeString:
    """A verdict with its sign and word. Only what is certain is coloured."""
    one = Change(verdict)
    mark = format_html('<span aria-hidden="true">{}</span>&nbsp;', words.MARKS[one]) if one in words.MARKS else ""
    return format_html('<span class="tag {}">{}{}</span>', words.STYLES.get(one, "same"), mark, one.value)


@register.simple_tag
def effect(test: Any) -> SafeString:
    """An effect above its interval; bold only if it is a change. Of few runs: how many there are."""
    if test.ratio is None:
        few = min(test.before, test.after)
        return format_html('<span class="quiet">{} of {} runs</span>', few, RULE.least)
    certain = Change(test.verdict) in words.STYLES
    figure = format_html("<b>{}</b>" if certain else "{}", words.percent(test.ratio))
    return format_html('{} <small class="nb">{}</small>', figure, words.reach(test.low, test.high))


@register.filter
def level(ms: float | None) -> str:
    return DASH if ms is None else words.level(ms)


@register.simple_tag
def facts_of(facts: Sequence[Sequence[str]]) -> SafeString:
    """What changed, one below the other: "torch 2.10.0 → 2.11.0"."""
    if not facts:
        return mark_safe('<span class="quiet">nothing that is recorded</span>')
    lines = ((name, before or "unknown", after or "unknown") for name, before, after in facts)
    return format_html_join(mark_safe("<br>"), "{} {} → {}", lines)


@register.simple_tag
def facts_line(facts: Sequence[Sequence[str]]) -> SafeString:
    """The same in one line."""
    lines = ((name, before or "unknown", after or "unknown") for name, before, after in facts)
    return format_html_join(", ", "{} {} → {}", lines)

"""Parts of a session's pages and of its report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from kernels.analysis.criteria import Answer, Word
from runs.markdown import rendered
from runs.models.plan import BlockerState, PhaseState
from runs.session_form import in_words
from runs.templatetags.figures import DASH, grouped, plus_minus, ratio, timespan

if TYPE_CHECKING:
    from runs.queries.figures import Figure
    from runs.queries.session_report import Reached

register = template.Library()
FAR = 10.0
"""From so many times slower on, the factor says more than the speedup."""


@register.simple_tag
def prose(text: str, runs: Mapping[int, bool] | None = None, base: str = "") -> SafeString:
    """A person's Markdown; sanitised in runs/markdown.py."""
    return mark_safe(rendered(text, runs, base))


@register.filter
def minutes(value: int | None) -> str:
    return DASH if value is None else in_words(value)


@register.filter
def missing(one: Reached) -> str:
    """What the best kernel of a workload still lacks for the next tier."""
    if one.is_beyond:
        return "beyond the speed of light"
    if one.next is None:
        return DASH if one.tier else "no speed of light is known"
    if one.missing_ms:
        return timespan(one.missing_ms)
    return f"undecided: {one.figure.kernel}'s interval includes it"


@register.simple_tag
def answer_tag(answer: Answer) -> SafeString:
    """The word of a criterion; coloured only if it is certain."""
    style = {Word.HOLDS: "faster" if answer.is_confirmed else "same", Word.FAILS: "slower"}.get(answer.word, "same")
    mark = {Word.HOLDS: "✓", Word.FAILS: "✗"}.get(answer.word, "?")
    return format_html('<span class="tag {}"><span aria-hidden="true">{}</span> {}</span>', style, mark, answer.word)


STYLES = {
    PhaseState.DONE: "on", PhaseState.ACTIVE: "busy", PhaseState.BLOCKED: "off", PhaseState.PENDING: "wait",
    PhaseState.SKIPPED: "over", BlockerState.OPEN: "off", BlockerState.AROUND: "busy", BlockerState.RESOLVED: "on",
}  # fmt: skip


@register.simple_tag
def plan_state(state: str) -> SafeString:
    """The state of a phase or a blocker, with a dot."""
    style = STYLES.get(state, "wait")  # type: ignore[call-overload]
    return format_html('<span class="state"><span class="dot {}" aria-hidden="true"></span>{}</span>', style, state)


@register.simple_tag
def source_link(one: Figure, base: str = "", shared: bool = False) -> SafeString:
    """Where a figure comes from. A link of a session opens its runs, not its imports."""
    if one.is_claimed and shared:
        return format_html("{}", one.source)
    link = format_html('<a href="{}{}">{}</a>', base, one.link, one.source)
    return format_html("<s>{}</s> withdrawn", link) if one.is_withdrawn else link


@register.simple_tag
def factor_cell(one: Figure, base: str = "", shared: bool = False) -> SafeString:
    """A result in a line of its workload: the speedup, and how far it is from the limit. It links to where it comes from."""
    shown: Any = str(one.verdict) or DASH
    if one.ratio is not None:
        shown = f"{grouped(one.slowdown)}x slower" if one.slowdown and one.slowdown >= FAR else speedup_of(one)
    if not (one.is_claimed and shared):
        shown = format_html('<a href="{}{}">{}</a>', base, one.link, shown)
    if one.is_withdrawn:
        return format_html('<s class="gone-by" title="withdrawn">{}</s>', shown)
    word = str(one.verdict)
    tone = word.lower() if word in ("FASTER", "SLOWER") and not one.is_contended else ""
    mark = {"faster": "▲ ", "slower": "▼ "}.get(tone, "")
    note = "contended" if one.is_contended else "unconfirmed" if _is_unconfirmed(one) else ""
    tone = "" if _is_unconfirmed(one) else tone
    share = f", {small_share(one.share)}" if one.share is not None else ""
    below = f"{timespan(one.ms)}{share}" if one.ms is not None else ""
    return format_html('<span class="{}">{}{}</span><small>{}</small><small>{}</small>', tone, mark, shown, below, note)


@register.simple_tag
def speedup_of(one: Figure) -> SafeString:
    """A speedup with its interval; of a claim, without one. Bold only where it is decided, and confirmed or the same."""
    if one.ratio is None:
        return format_html("{}", DASH)
    said = f"{ratio(one.ratio.ratio)}x"
    if one.is_claimed:
        return format_html("{}", said)
    decided = str(one.verdict) in ("FASTER", "SLOWER", "SAME") and not one.is_contended and not one.is_withdrawn
    decided = decided and not _is_unconfirmed(one)
    shown = format_html("<b>{}</b>", said) if decided else said
    return format_html('{} <span class="pm">{}</span>', shown, plus_minus(one.ratio))


def _is_unconfirmed(one: Figure) -> bool:
    """Whether a result is faster or slower in fewer processes than a record takes."""
    return str(one.verdict) in ("FASTER", "SLOWER") and not one.is_confirmed


@register.filter
def struck(one: Any) -> str:
    """The class of a row whose run is withdrawn."""
    return "struck" if one.is_withdrawn else ""


@register.filter
def small_share(value: float | None) -> str:
    """A share of the speed of light; one below 1% needs another digit."""
    return DASH if value is None else f"{value:.2%}" if value < 0.01 else f"{value:.1%}"

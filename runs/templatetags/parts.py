"""Shared parts of pages: headline, facts, notices, downloads, tabs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from django import template
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import mark_safe

from kernels.analysis.memory import size
from runs.models.person import owns
from runs.templatetags.figures import DASH, ago

register = template.Library()


@register.filter
def ends(said: str) -> str:
    """Somebody's words as a sentence that ends."""
    said = said.strip()
    return said if not said or said[-1] in ".!?" else f"{said}."


@register.filter
def words(key: str) -> str:
    """The name of a fact as words: memory_bytes, memory."""
    return key.removesuffix("_bytes").replace("_", " ")


@register.filter
def told(value: Any, key: str = "") -> str:
    """A fact as a person reads it: bytes with their unit, yes and no, several facts one after the other."""
    if isinstance(value, dict):
        return ", ".join(f"{words(name)} {told(one, name)}" for name, one in value.items() if one not in ("", None))
    if isinstance(value, list):
        return ", ".join(told(one) for one in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return size(value) if key.endswith("_bytes") and isinstance(value, int) else str(value)


@register.simple_tag
def asked(**values: Any) -> str:
    """The query string of an address: `{% asked device=name scale=scale.pk %}`. Leaves out None."""
    given = [f"{name}={quote(str(value))}" for name, value in values.items() if value is not None]
    return f"?{'&'.join(given)}" if given else ""


@register.filter
def mine(thing: Any, user: Any) -> bool:
    """Whether this person may cancel and withdraw it."""
    return owns(user, thing)


@register.inclusion_tag("parts/headline.html", name="headline")
def headline_line(
    strong: str,
    tone: str,
    rest: str | Sequence[str] = "",
    about: str = "",
    notes: Sequence[str] = (),
    folded: str = "What was checked",
) -> dict[str, Any]:
    """The page's headline: one strong sentence, further sentences, and notes, which are folded under these words. about: what
    it speaks of, if the page has several."""
    said = rest if isinstance(rest, str) else " ".join(rest)
    return {"strong": strong, "tone": tone, "rest": said, "about": about, "notes": notes, "folded": folded}


@register.inclusion_tag("parts/fact.html")
def fact(name: str, value: Any) -> dict[str, Any]:
    """A fact in the line below the headline; empty if unknown."""
    return {"name": name, "value": value}


@register.inclusion_tag("parts/downloads.html")
def downloads(page: str, kinds: str, *args: Any, query: str = "") -> dict[str, Any]:
    """Links to a page's data: `{% downloads "run" "csv json md" run.pk %}`."""
    return {"links": [(kind, reverse(f"{page}_{kind}", args=args) + query) for kind in kinds.split()]}


@register.simple_tag(name="time")
def time_tag(at: datetime | None, whole: bool = False) -> str:
    """Age, with the full date as its title. whole: the full date itself. No template: lists have one for each row."""
    if at is None:
        return "never"
    local = timezone.localtime(at)
    full, shown = f"{local:%Y-%m-%d %H:%M:%S %Z}", f"{local:%Y-%m-%d %H:%M %Z}" if whole else ago(at)
    return format_html('<time\n  datetime="{}"\n  title="{}"\n>{}</time>', local.isoformat(), full, shown)


@register.inclusion_tag("parts/device_tabs.html")
def device_tabs(devices: Sequence[str], device: str, scale: int | None = None) -> dict[str, Any]:
    return {"devices": devices, "device": device, "scale": scale}


@register.inclusion_tag("parts/kernel_link.html")
def kernel_link(operation: str, name: str) -> dict[str, Any]:
    """A kernel's name with a link to its page; without one if the name fits no address."""
    return {"operation": operation, "name": name}


@register.simple_tag(name="outcome")
def outcome_tag(outcome: Any) -> str:
    """The outcome of a run: the first kernel and its sentence, then failures. No template: lists have one for each row."""
    failed = format_html_join("", ' <span class="tag warn">{} {}</span>', ((n, s) for s, n in outcome.faults.items()))
    if outcome.first is None:
        return failed or DASH
    mark = format_html('<span aria-hidden="true">{}</span> ', outcome.mark) if outcome.mark else ""
    tag = format_html('<span class="tag {}">{}{}</span>', outcome.style, mark, outcome.name)
    others = f"; and {outcome.more}" if outcome.more else ""
    contended = mark_safe(' <small class="warn">· contended</small>') if outcome.contended else ""
    return format_html("{} <small>{}{}</small>{}{}", tag, outcome.sentence, others, contended, failed)


@register.inclusion_tag("parts/form_notice.html")
def form_notice(form: Any) -> dict[str, Any]:
    """A notice that a form was not saved, with the number of marked fields."""
    return {"errors": form.errors}


@register.inclusion_tag("parts/doubts.html")
def doubts_notice(doubts: Sequence[str]) -> dict[str, Any]:
    return {"doubts": doubts}


@register.inclusion_tag("parts/share.html")
def share_notice(link: str, what: str, unshare: str) -> dict[str, Any]:
    """A secret link to copy, and the button to end it."""
    return {"link": link, "what": what, "unshare": unshare}


@register.inclusion_tag("parts/reload.html")
def reload_notice(what: str) -> dict[str, Any]:
    """A notice for browsers without JavaScript, which do not poll."""
    return {"what": what}

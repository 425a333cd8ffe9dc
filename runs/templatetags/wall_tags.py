"""Bars and words that are read from three metres."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from runs.templatetags.figures import percent

register = template.Library()


@register.simple_tag
def wall_bar(one: Any) -> SafeString:
    """What the best kernel has of the speed of light, with the target marked; the right end is the speed of light."""
    if one.reach is None or one.goal is None:
        return SafeString("")
    kind = "ok" if one.state == "reached" else ""
    hatched = "" if one.is_confirmed else " hatched"
    return format_html(
        '<div class="way" role="img" aria-label="{} of the speed of light, target {}"><i class="{}" style="width: {}"></i>'
        '<u style="left: {}"></u><em></em></div>',
        percent(one.reach), percent(one.goal), (kind + hatched).strip(), f"{one.reach:.1%}", f"{one.goal:.1%}",
    )  # fmt: skip

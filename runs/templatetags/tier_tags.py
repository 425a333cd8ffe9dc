"""The cells of the matrix of tiers. A cell has no template: a matrix has hundreds."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from runs.templatetags.figures import DASH, timespan

register = template.Library()


@register.simple_tag
def tier_cell(of: Any) -> SafeString:
    """Whether a tier is reached, and its time; of the next one what is missing, too. A phone shows only the time."""
    if of.state == "unknown":
        return format_html('<td class="step quiet">{}</td>', DASH)
    needs = timespan(of.step.target_ms)
    if of.state == "reached" and not of.step.is_confirmed:
        mark = '<span aria-hidden="true">△</span><span class="less"> unconfirmed</span>'
        return format_html(f'<td class="step loose">{mark}<small>{{}}</small></td>', needs)
    if of.state == "reached":
        mark = '<span aria-hidden="true">▲</span><span class="less"> reached</span>'
        return format_html(f'<td class="step reached">{mark}<small>{{}}</small></td>', needs)
    if of.state == "beyond":
        return format_html('<td class="step beyond"><span>beyond</span><small>{}</small></td>', needs)
    if of.state == "next":
        missing = of.missing_ms
        gap = f"{timespan(missing)} to go" if missing else "undecided"
        return format_html('<td class="step next"><span class="less">{}</span><small>{}</small></td>', gap, needs)
    return format_html('<td class="step quiet">{}</td>', needs)

"""The cells and charts of the leaderboard. A cell has no template: a board has hundreds."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from urllib.parse import urlencode

from django import template
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from kernels.catalog import operations
from runs.templatetags.figures import percent, plus_minus, ratio

register = template.Library()


@register.inclusion_tag("pictures/board_chart.html")
def board_chart(name: str, query: str, alt: str) -> dict[str, Any]:
    svg, png, spec = (reverse(f"leaderboard_chart_{kind}", args=[name]) + query for kind in ("svg", "png", "json"))
    return {"svg": svg, "png": png, "spec": spec, "alt": alt, "name": f"leaderboard-{name}"}


@register.simple_tag
def board_cell(
    place: Any, line: Any, view: Any, chosen: Any, ready: Collection[str], number: int, token: str
) -> SafeString:
    """One cell: the confirmed record, and what is not confirmed, with the button that confirms it; or a way to measure it."""
    away = "" if number == view.place_on_phone else " away"
    if place is None:
        link = _measure(line, view.shown_columns[number], ready)
        return format_html('<span class="cell none{}" role="cell">not measured{}</span>', away, link)
    rumour = SafeString("")
    if place.shown.names_nobody:
        lead, button = _undecided(place.shown), _confirm(place, ready, token)
        rumour = _beside("", button) if button else rumour
    else:
        lead, rumour = _lead(place.shown), _rumour(place, ready, token) if place.rumour else rumour
    current = mark_safe(' aria-current="true"') if place is chosen else ""
    style = format_html(' style="--p: {}"', round(100 * min(1, place.record.share or 0))) if place.record else ""
    return format_html(
        '<span class="cell {}{}"{}{} role="cell"><a class="to" href="{}">{}</a>{}</span>',
        "sure" if place.record else "dashed", away, style, current, view.address(cell=place.cell), lead, rumour,
    )  # fmt: skip


def _measure(line: Any, column: tuple[str, str], ready: Collection[str]) -> SafeString:
    """A link to the form of a run of this shape, where a device could measure it now."""
    gpu, dtype = column
    workload = next(place.workload for place in line.cells if place)
    if gpu not in ready or workload.operation not in operations():  # a problem is measured from its submission
        return SafeString("")
    asked = urlencode({"workload": workload.key, "dtype": dtype, "gpu": gpu})
    label = f"Measure {line.shape} {line.more} in {dtype} on {gpu}"
    return format_html(' <a href="{}?{}" aria-label="{}">Measure</a>', reverse("new_run"), asked, label)


def _lead(record: Any) -> SafeString:
    tag, kernel = mark_safe("b" if record.is_confirmed else "span"), record.point.kernel
    name = format_html('<{} title="{}">{}</{}>', tag, kernel, kernel, tag)
    lead = f"{ratio(record.best.ratio.ratio)}x {plus_minus(record.best.ratio)}" if record.best else "baseline, unbeaten"
    if not record.is_confirmed and not record.best:
        lead = "baseline"
    lead += _or_others(record)
    return format_html('{}<span class="s">{}</span><span class="l">{}</span>', name, percent(record.share), lead)


def _or_others(record: Any) -> str:
    """Kernels that are tied with the one that a cell names: ", or liger", ", or 2 more"; empty if there is none."""
    others = record.not_apart
    return f", or {others[0].point.kernel if len(others) == 1 else f'{len(others)} more'}" if others else ""


def _rumour(place: Any, ready: Collection[str], token: str) -> SafeString:
    record = place.rumour
    said = "unconfirmed"
    if place.record and record.best:
        name = "" if record.point.kernel == place.record.point.kernel else f"{record.point.kernel} "
        said = f"{name}{ratio(record.best.ratio.ratio)}x{_or_others(record)}, unconfirmed"
    return _beside(said, _confirm(place, ready, token))


def _beside(said: str, button: SafeString) -> SafeString:
    return format_html('<span class="rumour"><span>{}</span>{}</span>', said, button)


def _undecided(record: Any) -> SafeString:
    said = '<span>undecided</span><span class="s"></span><span class="l">{}</span>'
    return format_html(said, record.why_undecided)


def _confirm(place: Any, ready: Collection[str], token: str) -> SafeString:
    """The button that confirms a cell, where a device could measure it now. It says what will be measured."""
    if place.gpu not in ready or place.rumour is None:
        return SafeString("")
    record, count = place.rumour, len(place.rumour.compared)
    said = "Confirm" if record.best else f"Measure {count} kernel{'s' * (count != 1)} again"
    what = f"{said} {record.point.kernel}" if record.best else f"{said}, beside {record.base.kernel},"
    return format_html(
        '<form method="post" action="{}"><input type="hidden" name="csrfmiddlewaretoken" value="{}">'
        '<input type="hidden" name="cell" value="{}">'
        '<button class="link" aria-label="{} on {} on {}">{}</button></form>',
        reverse("confirm_record"), token, place.cell, what, place.workload.label, place.gpu, said,
    )  # fmt: skip

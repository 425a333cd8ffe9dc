"""The cells of a run's table, one row for each workload: no template, because a page has thousands."""

from __future__ import annotations

from statistics import median
from typing import Any

from django import template
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from kernels.analysis.standing import in_digits
from kernels.contract.arm_result import Ratio, Verdict
from runs.templatetags.cells import is_timed
from runs.templatetags.figures import DASH, MARKS, is_decided, plus_minus, ratio, timespan

register = template.Library()


@register.simple_tag
def matrix_cell(line: Any, column: Any, run_pk: int, final: bool) -> SafeString:
    """A kernel on a workload: the sign of its verdict, its speedup, the larger side of the interval; or why there is
    none. final: whether verdicts stand; before, there are numbers only."""
    style = "k on" if column.shown else "k"
    cell = line.cells.get(column.kernel)
    if cell is None and (rounds := line.so_far.get(column.kernel)):
        span = f"{min(rounds):.2f} to {max(rounds):.2f}"
        title = f"the median and the range of {len(rounds)} rounds: no verdict yet"
        return format_html(
            '<td class="{} quiet" title="{}">{}x<small>{}</small></td>', style, title, ratio(median(rounds)), span
        )
    if cell is None:
        return format_html('<td class="{} quiet">{}</td>', style, DASH if final else "")
    arm = cell.arm
    address = reverse("result", args=[run_pk, arm.pk])
    if arm.speedup is None or not is_timed(arm):
        return _without(arm, address, style)
    interval = plus_minus(Ratio(arm.speedup, arm.speedup_low, arm.speedup_high))
    if not final:
        return format_html(
            '<td class="{}"><a href="{}">{}x<small>{}</small></a></td>', style, address, ratio(arm.speedup), interval
        )
    word = str(arm.verdict).lower()
    mark = MARKS.get(word, "")
    if not is_decided(arm.verdict):
        shown = "" if word == "undecided" else f" {word}"
        sign = format_html('{}<span class="hidden">undecided</span>', mark + " ") if mark else ""
        return format_html(
            '<td class="{} open"><a href="{}" title="{}">{}{}x<small>{}{}</small></a></td>',
            style, address, arm.why, sign, ratio(arm.speedup), interval, shown,
        )  # fmt: skip
    differ = mark_safe('<small class="warn">clocks differ</small>') if _clocks_differ(arm) else ""
    return format_html(
        '<td class="{} {}"><a href="{}"><i aria-hidden="true">{}</i> <span class="hidden">{}</span>{}x'
        "<small>{}</small>{}</a></td>",
        style, word, address, mark, word, ratio(arm.speedup), interval, differ,
    )  # fmt: skip


def _without(arm: Any, address: str, style: str) -> SafeString:
    """A result without a speedup: its word, and its time if it has one that stands."""
    word = str(arm.verdict or arm.status).lower()
    failed = "" if word in ("unsupported", "correct", "none", "") or arm.status == "ok" else "warn"
    shown = "no speedup" if arm.verdict in (Verdict.NONE, "") else word
    time = timespan(arm.p50_ms) if is_timed(arm) and arm.p50_ms else ""
    return format_html(
        '<td class="{} none"><a href="{}" title="{}"><span class="{}">{}</span><small>{}</small></a></td>',
        style, address, arm.why, failed, shown, time,
    )  # fmt: skip


def _clocks_differ(arm: Any) -> bool:
    return arm.crosscheck is not None and arm.crosscheck.agrees is False


@register.simple_tag
def side_cell(cell: Any) -> SafeString:
    """A kernel's speedup in one of several runs; with the change against the first run, if they can be compared."""
    if cell is None:
        return format_html('<td class="quiet">{}</td>', DASH)
    arm = cell.arm
    address = reverse("result", args=[cell.run.pk, arm.pk])
    if arm.speedup is None or not is_timed(arm):
        return _without(arm, address, "")
    own = format_html(
        "{}x<small>{}</small>", ratio(arm.speedup), plus_minus(Ratio(arm.speedup, arm.speedup_low, arm.speedup_high))
    )
    moved = _moved(cell.change) if cell.change and cell.change.ratio else ""
    return format_html('<td><a href="{}">{}</a>{}</td>', address, own, moved)


def _moved(change: Any) -> SafeString:
    """ "▲ faster 1.05x ±0.4%": the speedup over that of the first run."""
    word = str(change.verdict).lower()
    figure, _, _ = in_digits(*change.ratio)  # of two that are almost the same, one may be decided
    text = f"{word} {figure}x {plus_minus(change.ratio)}"
    style = word if word in ("faster", "slower") and not change.contended else "open"
    return format_html(
        '<span class="moved {}"><i aria-hidden="true">{}</i> {}</span>', style, MARKS.get(word, ""), text
    )

"""The cells of a run's table of results: one tag for a whole row, without a template, because a page has hundreds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import template
from django.template.defaultfilters import truncatechars, yesno
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from kernels.report.measures import Measure
from kernels.report.tables import Row
from runs.templatetags.cells import is_timed, ratio_html
from runs.templatetags.figures import DASH, error, grouped, interval_us, is_decided, p50_us, percent, us, us_like

register = template.Library()
LONGEST_WHY = 110
PAIRS = ("speedup", "p50_ms")
"""Measures with two cells."""
RATES = ("tflops", "gb_per_s")


@register.simple_tag
def result_cells(
    measures: list[Measure], arm: Any, row: Row, base: Any, asked: bool = True, sort: str = ""
) -> SafeString:
    """The cells of a result after its verdict. base: the baseline's result, whose p50 stands before the arm's. asked: whether
    somebody chose the columns; else a rate that is not the operation's headline is short. sort: the column of the order.

    A result without a valid time says why instead.
    """
    if not is_timed(arm):
        return _untimed(measures, arm)
    return _joined(
        CELLS.get(one.key, _figure)(one, arm, row, base) if asked or not _is_second_rate(one, row)
        else _second_rate(one, row, one.key == sort)
        for one in measures
    )  # fmt: skip


def _joined(cells: Any) -> SafeString:
    return format_html_join("", "{}", ((cell,) for cell in cells))


def _untimed(measures: list[Measure], arm: Any) -> SafeString:
    """Why there is no valid time, across speedup and p50 (or, without these, across all), and its measured time."""
    keys = [one.key for one in measures]
    across = [key for key in keys if key in PAIRS]
    why = truncatechars(arm.why, LONGEST_WHY)
    if arm.p50_ms:
        why += f"{'' if arm.why.endswith('.') else '.'} Its time was {p50_us(arm)} us."
    span = 2 * len(across) or max(1, len(keys))
    said = format_html('<td colspan="{}" class="text why">{}</td>', span, why)
    if not across:
        return said
    first = keys.index(across[0])
    rest = [_correct(arm) if key == "frobenius" else mark_safe("<td></td>") for key in keys if key not in PAIRS]
    return _joined([*rest[:first], said, *rest[first:]])


def _correct(arm: Any, shown: str = "") -> SafeString:
    word = yesno(arm.correctness.correct, "yes,no,unknown") if arm.correctness else ""
    return format_html('<td class="text">{}{}</td>', word, format_html(" <small>{}</small>", shown) if shown else "")


# --- cells with a look of their own -----------------------------------------------------------------------------------


def _speedup(measure: Measure, arm: Any, row: Row, base: Any) -> SafeString:
    if arm.verdict == "baseline":
        return mark_safe('<td><span class="quiet">1</span></td><td></td>')
    return ratio_html(arm.speedup, arm.speedup_low, arm.speedup_high, decided=_is_bold(arm, row))


def _is_bold(arm: Any, row: Row) -> bool:
    return is_decided(arm.verdict) and not row.contended


def _p50(measure: Measure, arm: Any, row: Row, base: Any) -> SafeString:
    """The baseline's p50, unless the result is the baseline, then its own with the same decimals, bold if something is
    decided; its interval."""
    is_other = base and arm.verdict != "baseline"
    before = format_html('<span class="quiet">{} →</span> ', p50_us(base)) if is_other else ""
    return format_html(
        '<td>{}{}</td><td class="interval"><small>{}</small></td>',
        before, format_html("<b>{}</b>" if _is_bold(arm, row) else "{}", us_like(arm.p50_ms, base or arm)), interval_us(arm),
    )  # fmt: skip


def _p90(measure: Measure, arm: Any, row: Row, base: Any) -> SafeString:
    if arm.cold is None:
        return format_html("<td>{}</td>", us(row.p90_ms if measure.of(row) is not None else None))
    title = f"of {arm.cold.n} single calls on cold inputs; p50 is of graph replays"
    return format_html('<td title="{}">{}</td>', title, us(row.p90_ms))


def _error(measure: Measure, arm: Any, row: Row, base: Any) -> SafeString:
    return _correct(arm, error(arm.correctness.frobenius) if arm.correctness else "")


def _rate(measure: Measure, arm: Any, row: Row, base: Any) -> SafeString:
    """The headline rate, with the dense-equivalent beside it."""
    if row.unit != measure.unit:
        return _figure(measure, arm, row, base)
    dense = ""
    if row.dense_tflops and measure.key == "tflops":
        title = "dense-equivalent: masked work counted, too"
        dense = format_html(' <small title="{}">dense {}</small>', title, grouped(row.dense_tflops))
    return format_html("<td>{}{}</td>", grouped(getattr(row, measure.key)), dense)


def _is_second_rate(measure: Measure, row: Row) -> bool:
    return measure.key in RATES and row.unit != measure.unit


def _second_rate(measure: Measure, row: Row, is_sorted: bool) -> SafeString:
    """Of a compute-bound operation GB/s without the interval; of a memory-bound one no TFLOP/s, unless rows are sorted by it."""
    value = getattr(row, measure.key)
    if value is None or (measure.key == "tflops" and not is_sorted):
        return format_html('<td class="quiet" title="its rate is in {}">{}</td>', row.unit, DASH)
    return format_html('<td class="quiet">{}</td>', grouped(value))


def _share(measure: Measure, arm: Any, row: Row, base: Any) -> SafeString:
    return format_html("<td>{}</td>", percent(arm.limit_share))


def _count(measure: Measure, arm: Any, row: Row, base: Any) -> SafeString:
    return format_html("<td><small>{}</small></td>", measure.of(row))


def _figure(measure: Measure, arm: Any, row: Row, base: Any) -> SafeString:
    """Any other measure: the figure and its interval, with what it is over as its title; or why there is none."""
    if measure.of(row) is None:
        why = "" if arm.verdict == "baseline" and "speedup" in measure.interval else measure.why_empty(row)
        return format_html('<td class="quiet" title="{}">{}</td>', why, DASH)
    over = f"over {getattr(row, measure.over)}" if measure.over and getattr(row, measure.over) else ""
    interval = measure.interval_text(row)
    small = format_html(" <small>{}</small>", interval) if interval else ""
    title = format_html(' title="{}"', over) if over else ""
    return format_html("<td{}>{}{}</td>", title, measure.text(row), small)


Cell = Callable[[Measure, Any, Row, Any], SafeString]
CELLS: dict[str, Cell] = {
    "speedup": _speedup, "p50_ms": _p50, "p90_ms": _p90, "frobenius": _error, "tflops": _rate, "gb_per_s": _rate,
    "limit_share": _share, "n": _count, "rounds": _count,
}  # fmt: skip

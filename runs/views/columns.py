"""The columns and the order that an address asks for: `?columns=p50_ms,p99_ms&sort=-tflops`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponseBadRequest

from kernels.report.measures import BY_KEY, MEASURES, Measure, UnknownMeasure, chosen, usual
from kernels.report.tables import Row
from runs.templatetags.columns import PAIRS

HEADS = {
    "speedup": ("speedup and interval",),
    "p50_ms": ("base → new", "interval of p50"),
    "frobenius": ("correct, error",),
}
"""Headings of columns with a look of their own."""
MICROSECONDS = "µs"
UNSAID = ("x", "relative", "samples", "rounds")
"""Units that a heading does not have."""
TITLES = {"p90_ms": "of single calls", "limit_share": "share of the speed of light", "n": "timed samples"}
"""Titles of the usual headings, where they are shorter than what the measure says of itself."""


class Head(NamedTuple):
    """One heading of the table."""

    text: str
    unit: str
    """Empty where the heading has it."""
    title: str
    span: int
    style: str
    sort: str
    """Address of the table in the order of this column; empty: it has none."""
    order: str
    """ascending or descending, if the table is in its order."""


@dataclass(frozen=True)
class Columns:
    """What an address asks for."""

    measures: list[Measure]
    problem: str = ""
    """What is wrong with the address, as a sentence: then the table has its usual columns or order."""
    is_asked: bool = False
    """Whether the columns are not the usual ones."""
    sort: str = ""
    """Key of the measure that results are sorted by."""
    descending: bool = False
    brief: str = ""
    """The problem for a page, which has a list of all columns."""
    kept: tuple[tuple[str, str], ...] = ()
    """What else stands in the address, before columns and order."""
    sortable: frozenset[str] | None = None
    """Keys that the table can be sorted by, if not by all."""

    @classmethod
    def of(
        cls,
        request: HttpRequest,
        kept: Iterable[tuple[str, str]] = (),
        sortable: frozenset[str] | None = None,
        more: Sequence[str] = (),
    ) -> Columns:
        """more: what the table can be sorted by, beside measures."""
        return replace(cls._of(request, more), kept=tuple(kept), sortable=sortable)

    @classmethod
    def _of(cls, request: HttpRequest, more: Sequence[str]) -> Columns:
        asked = [text for text in request.GET.getlist("columns") if text.strip(" ,")]
        sort = request.GET.get("sort", "")
        key, descending = sort.removeprefix("-"), sort.startswith("-")
        try:
            measures = chosen(asked, "")
        except UnknownMeasure as error:
            return cls([], str(error), brief=error.brief)
        if key and key not in (*BY_KEY, *more):
            problem = f"Results cannot be sorted by {key[:40]!r}: there is no such column."
            return cls(measures, problem, bool(asked), brief=problem)
        return cls(measures, "", bool(asked), key, descending)

    def on(self, unit: str, has_limits: bool) -> Columns:
        """Those of the table of an operation. unit: its headline unit. The usual ones have no share of a limit where no
        limit is known."""
        if self.is_asked:
            return self
        return replace(self, measures=[one for one in usual(unit) if has_limits or one.key != "limit_share"])

    @property
    def asked(self) -> list[Measure]:
        """The measures that files have; none: the usual ones."""
        return self.measures if self.is_asked else []

    def query(self, sort: str | None = None) -> str:
        """The end of an address with these columns, and this order or another: "?columns=..."; empty for the usual."""
        order = ("-" if self.descending else "") + self.sort if sort is None else sort
        asked = {"columns": ",".join(one.key for one in self.measures)} if self.is_asked else {}
        pairs = [*self.kept, *(asked | ({"sort": order} if order.strip("-") else {})).items()]
        return f"?{urlencode(pairs, safe=',')}" if pairs else ""

    @property
    def named(self) -> bool:
        """Whether the address names a column or an order."""
        return bool(self.is_asked or self.sort or self.problem)

    @property
    def here(self) -> str:
        return self.query()

    @property
    def poll(self) -> str:
        """The same to follow other parameters."""
        return self.query().replace("?", "&", 1)

    @property
    def width(self) -> int:
        """Cells of a row, with those of kernel and verdict."""
        return 2 + sum(1 + (one.key in PAIRS) for one in self.measures)

    @property
    def choices(self) -> list[tuple[Measure, bool]]:
        """Each measure that there is, and whether it is shown."""
        keys = {one.key for one in self.measures}
        return [(one, one.key in keys) for one in MEASURES]

    @property
    def heads(self) -> list[Head]:
        return [head for one in self.measures for head in self._heads(one)]

    def _heads(self, one: Measure) -> Iterable[Head]:
        texts = HEADS.get(one.key, (one.title,))
        at_once = 2 if one.key in PAIRS and len(texts) == 1 else 1
        style = "text" if at_once == 2 or one.key == "frobenius" else "share" if one.key == "limit_share" else ""
        unit = MICROSECONDS if one.unit == "us" else one.unit
        if unit in UNSAID or one.title.endswith(unit) or one.key == "limit_share":
            unit = ""
        yield Head(
            texts[0], unit, TITLES.get(one.key, one.about), at_once, style, self._sorted_by(one), self._order(one)
        )
        for text in texts[1:]:
            yield Head(text, "", "", 1, "text interval", "", "")

    def _sorted_by(self, one: Measure) -> str:
        """The best first; the other way round if the table is in this order already. Texts have no order."""
        if one.key in ("grid", "block") or (self.sortable is not None and one.key not in self.sortable):
            return ""
        descending = not self.descending if one.key == self.sort else not one.low_first
        return self.query(("-" if descending else "") + one.key)

    def _order(self, one: Measure) -> str:
        if one.key != self.sort:
            return ""
        return "descending" if self.descending else "ascending"

    def ordered(self, rows: list[tuple[Any, Row]]) -> list[tuple[Any, Row]]:
        """Results of one workload in this order; those without a valid figure last."""
        if not self.sort:
            return rows
        measure = BY_KEY[self.sort]
        figures = [(_valid(measure, row), (arm, row)) for arm, row in rows]
        valid = [(figure, pair) for figure, pair in figures if isinstance(figure, int | float)]
        ordered = [pair for _, pair in sorted(valid, key=lambda one: one[0], reverse=self.descending)]
        return [*ordered, *(pair for figure, pair in figures if not isinstance(figure, int | float))]


def _valid(measure: Measure, row: Row) -> Any:
    return measure.of(row) if row.status == "ok" else None


def refused(columns: Columns) -> HttpResponseBadRequest:
    """A file with other columns than those that were asked for would be worse than none."""
    return HttpResponseBadRequest(columns.problem, content_type="text/plain; charset=utf-8")

"""Every result of everybody: a search, filters, sortable columns, and the same as streams."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render

from kernels.catalog import operations
from kernels.dtypes import DTYPE_SHORT
from kernels.report import measures
from kernels.report.cells import csv_lines
from kernels.report.measures import BY_KEY
from runs.queries import results
from runs.queries.results import COLUMN, PLACE, Found, Key, NoOrder, Order
from runs.queries.search import KEYS, Search, Term, search
from runs.queries.vocabulary import QUALITIES, STATES, STATUSES, VERDICTS, Vocabulary
from runs.views.columns import TITLES, Columns
from runs.views.downloads import json_lines, saved_as

PER_PAGE = 50
USUAL = ("speedup", "p50_ms", "tflops", "gb_per_s", "limit_share")
"""Columns without `?columns=`; of the two rates, those that the operations on the page have."""
CHOICES = (
    ("operation", "Operation"), ("dtype", "Dtype"), ("gpu", "GPU"), ("host", "Host"), ("backend", "Backend"),
    ("state", "State"), ("person", "Person"), ("tag", "Tag"),
)  # fmt: skip
TYPED = (("kernel", "Kernel"), ("shape", "Shape"), ("label", "Title"), ("since", "Since"), ("until", "Until"))
EXAMPLES = {"kernel": "sdpa-flash", "shape": "S=4096 D=128", "label": "nightly"}


@dataclass(frozen=True)
class Asked:
    """What an address asks for."""

    search: Search
    known: Vocabulary
    columns: Columns
    order: Order
    kept: dict[str, list[str]] = field(default_factory=dict)
    """Search and filters as the address has them."""
    problem: str = ""
    """What is wrong with columns or order."""

    @classmethod
    def of(cls, request: HttpRequest) -> Asked:
        found, known = search(dict(request.GET.lists()), request.user.get_username())
        given = {name: [one for one in request.GET.getlist(name) if one.strip()] for name in ("q", *KEYS)}
        kept = {name: values for name, values in given.items() if values}
        columns = Columns.of(request, _pairs(kept), frozenset(COLUMN), more=("measured_at",))
        try:
            order = Order.of(("-" if columns.descending else "") + columns.sort)
            return cls(found, known, columns, order, kept, columns.brief)
        except NoOrder as problem:
            unsorted = replace(columns, sort="", descending=False)
            return cls(found, known, unsorted, Order(), kept, columns.brief or str(problem))

    @property
    def refusal(self) -> HttpResponseBadRequest | None:
        """A file with other results or columns than those that were asked for would be worse than none."""
        said = " ".join(filter(None, [self.search.problem, self.columns.problem or self.problem]))
        return HttpResponseBadRequest(said, content_type="text/plain; charset=utf-8") if said else None

    @property
    def chips(self) -> list[tuple[str, str]]:
        """(what was understood, the address without it)."""
        return [(term.said, self._without(term)) for term in self.search.terms if term.said]

    def _without(self, term: Term) -> str:
        name, sign, value = term.typed.partition("=")
        kept = {key: list(values) for key, values in self.kept.items()}
        if sign and value in kept.get(name, ()):
            kept[name].remove(value)
        else:
            kept["q"] = [" ".join(self.search.text.replace(term.typed, " ", 1).split())]
        return replace(self.columns, kept=tuple(_pairs(kept))).query() or "?"


def _pairs(kept: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, values in kept.items() for value in values if value]


def results_page(request: HttpRequest) -> HttpResponse:
    asked = Asked.of(request)
    after = Key.of(request.GET.get("after", ""))
    found = results.page(asked.search, asked.order, after, PER_PAGE + 1)
    shown, more = found[:PER_PAGE], len(found) > PER_PAGE
    columns = _with_usual(asked.columns, shown)
    context = {
        "page": "results",
        "asked": asked,
        "columns": columns,
        "rows": shown,
        "title": _title(asked, len(shown), bool(after), more),
        "next": _beside(columns.query(), f"after={shown[-1].key.text}") if more else "",
        "after": after,
        "first_page": columns.query() or "?",
        "by_date": columns.query("" if columns.sort else "measured_at") or "?",
        "selects": _selects(asked),
        "fields": [(name, title, EXAMPLES.get(name, ""), _first(asked, name)) for name, title in TYPED],
        "open": any(name in asked.kept for name in KEYS),
        "files": columns.query(),
    }
    return render(request, "results.html", context)


def _beside(query: str, more: str) -> str:
    return f"{query}&{more}" if query else f"?{more}"


def _title(asked: Asked, count: int, is_later: bool, more: bool) -> str:
    """ "The 50 newest results", "3 results", "No result matches"."""
    if not count:
        return "No more results" if is_later else "No result matches" if asked.search.terms else "No results yet"
    if is_later or more:
        how = "newest" if asked.order.descending else "oldest"
        if asked.order.column:
            measure = BY_KEY[asked.columns.sort]
            what = f"{'highest' if asked.columns.descending else 'lowest'} {TITLES.get(measure.key, measure.title)}"
            return f"Next {count} results, by {what}" if is_later else f"The {count} results with the {what}"
        return f"Next {count} results, {how} first" if is_later else f"The {count} {how} results"
    return f"{count} result{'s' * (count > 1)}"


def _with_usual(columns: Columns, shown: list[Found]) -> Columns:
    if columns.is_asked:
        return columns
    units = {found.row.unit for found in shown} or {"TFLOP/s"}
    rates = {"tflops": "TFLOP/s", "gb_per_s": "GB/s"}
    return replace(columns, measures=[BY_KEY[key] for key in USUAL if rates.get(key, "") in ("", *units)])


def _first(asked: Asked, name: str) -> str:
    return asked.kept.get(name, [""])[0]


def _selects(asked: Asked) -> list[tuple[str, str, list[tuple[str, list[tuple[str, str]]]], str]]:
    """(name, title, groups of (value, text), the chosen value) of each list to choose from."""
    known = asked.known
    titles = {name: operation.title for name, operation in operations().items()}
    words = [*VERDICTS, *(one for one in STATUSES if one not in VERDICTS)]
    choices: dict[str, list[tuple[str, list[tuple[str, str]]]]] = {
        "operation": [("", [(name, titles.get(name, name)) for name in known.operations])],
        "dtype": [("", [(short, short) for short in DTYPE_SHORT.values()])],
        "gpu": [("", _same(known.gpus))],
        "host": [("", _same(known.hosts))],
        "backend": [("", _same(known.backends))],
        "state": [("of the result", _same(words)), ("of its run", _same([*STATES, *QUALITIES]))],
        "person": [("", _same(known.people))],
        "tag": [("", _same(known.tags))],
    }
    return [(name, title, choices[name], _first(asked, name)) for name, title in CHOICES]


def _same(names: Iterable[str]) -> list[tuple[str, str]]:
    return [(name, name) for name in names]


# --- the same as files ------------------------------------------------------------------------------------------------


def _records(asked: Asked) -> Iterator[dict[str, Any]]:
    for found in results.every(asked.search, asked.order):
        yield record(asked, found)


def record(asked: Asked, found: Found) -> dict[str, Any]:
    """A result as a row of files."""
    return found.place | next(iter(measures.as_records([found.row], asked.columns.asked)))


def _stream(asked: Asked, kind: str, lines: Iterator[str]) -> StreamingHttpResponse:
    media = {"csv": "text/csv; charset=utf-8", "json": "application/json", "jsonl": "application/jsonl"}[kind]
    return StreamingHttpResponse(lines, content_type=media, headers=saved_as(f"results.{kind}"))


def results_csv(request: HttpRequest) -> HttpResponseBase:
    asked = Asked.of(request)
    fields = list(dict.fromkeys([*PLACE, *measures.fields(asked.columns.asked)]))
    return asked.refusal or _stream(asked, "csv", csv_lines(_records(asked), fields))


def results_jsonl(request: HttpRequest) -> HttpResponseBase:
    asked = Asked.of(request)
    return asked.refusal or _stream(asked, "jsonl", (json.dumps(record) + "\n" for record in _records(asked)))


def results_json(request: HttpRequest) -> HttpResponseBase:
    asked = Asked.of(request)
    return asked.refusal or _stream(asked, "json", json_lines(_records(asked)))

"""Who is best on each shape and GPU model, by how much, and how far from the limit. Page, charts and files are of one query."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST

from kernels.catalog import AT, operations
from kernels.dtypes import DTYPE_SHORT
from runs import confirming
from runs.charts import leaderboard as charts
from runs.charts.theme import THEMES
from runs.models import Gpu
from runs.queries import coverage, history, leader_rows, leaders
from runs.queries.coverage import Curve
from runs.queries.leaders import CONFIRMED, UNCONFIRMED, Board, Place
from runs.views.downloads import csv_file
from runs.views.leaderboard_headline import headline
from runs.views.pictures import as_file, palette_of

MOST_COLUMNS, MOST_ROWS = 3, 50
"""Of the matrix; the files have all."""
CHARTS = ("record", "fast")
PHRASE = re.compile(r"\d+ [a-z]+ of \d+|\S+")
"""A part of a shape: one word, or "16 blocks of 64"."""


@dataclass
class Line:
    """One shape: a place, or none, for each column."""

    shape: str
    more: str
    """The second part of a long shape."""
    cells: list[Place | None]

    @property
    def others(self) -> list[leaders.Record | None]:
        """For each column, what is faster on another card; empty if no column has such a result."""
        found = [place.elsewhere if place else None for place in self.cells]
        return found if any(found) else []


def head(gpu: str, dtype: str) -> str:
    return f"{gpu.removeprefix('NVIDIA ')} · {DTYPE_SHORT.get(dtype, dtype)}"


@dataclass(frozen=True)
class Group:
    """An operation or problem on the board: its columns are the GPU models and dtypes that have a result of it."""

    view: View
    work: str
    baseline: str
    shown_columns: list[tuple[str, str]]
    """(GPU model, dtype)."""
    hidden_columns: list[tuple[str, str]]
    """Those without room."""
    heads: list[tuple[str, str]]
    """(GPU model and dtype, hosts) of each shown column."""
    place_on_phone: int
    """Number of the column that a phone shows."""
    lines: list[Line]

    def address(self, **changed: str) -> str:
        return self.view.address(**changed)


@dataclass
class View:
    """The board as an address asks for it."""

    board: Board
    asked: dict[str, str]
    """operation, gpu, dtype, show, over and cell; each may be empty."""
    places: list[Place] = field(default_factory=list)

    @classmethod
    def of(cls, request: HttpRequest) -> View:
        asked = {name: request.GET.get(name, "") for name in ("operation", "gpu", "dtype", "show", "over", "cell")}
        view = cls(leaders.board(), asked)
        view.places = [place for place in view.board.places if view._wanted(place)]
        return view

    def _wanted(self, place: Place) -> bool:
        for name, value in (
            ("operation", place.workload.operation),
            ("gpu", place.gpu),
            ("dtype", place.workload.dtype),
        ):
            if self.asked[name] not in ("", value):
                return False
        return self.asked["show"] not in (CONFIRMED, UNCONFIRMED) or (self.asked["show"] == CONFIRMED) == bool(
            place.record
        )

    def address(self, **changed: str) -> str:
        """The page with some of it changed."""
        given = {name: value for name, value in (self.asked | changed).items() if value}
        return f"?{urlencode(given)}"

    @property
    def here(self) -> str:
        return self.address(cell="")

    @property
    def chips(self) -> list[tuple[str, list[tuple[str, str, bool]]]]:
        """(filter, its (text, address, whether it is chosen))."""
        places = self.board.places
        known: list[tuple[str, list[tuple[str, str]]]] = [
            ("operation", [(one, one) for one in sorted({place.workload.operation for place in places})]),
            ("gpu", [(one, one) for one in self.board.gpus]),
            ("dtype", [(one, DTYPE_SHORT.get(one, one)) for one in sorted({place.workload.dtype for place in places})]),
            ("show", [(CONFIRMED, CONFIRMED), (UNCONFIRMED, UNCONFIRMED)]),
        ]
        return [
            (name, [
                (text, self.address(**{name: value, "cell": ""}), self.asked[name] == value)
                for value, text in [("", "all"), *choices]
            ])
            for name, choices in known
            if len(choices) > 1
        ]  # fmt: skip

    # --- the matrix ---

    @cached_property
    def columns(self) -> list[tuple[str, str]]:
        """(GPU model, dtype), the model with most results first."""
        known = {(place.gpu, place.workload.dtype) for place in self.places}
        order = self.board.gpus
        return sorted(
            known,
            key=lambda one: (order.index(one[0]), list(DTYPE_SHORT).index(one[1]) if one[1] in DTYPE_SHORT else 99),
        )

    @property
    def shown_columns(self) -> list[tuple[str, str]]:
        """Those that have room wherever there is a result in them."""
        hidden = {column for group in self.groups for column in group.hidden_columns}
        return [column for column in self.columns if column not in hidden]

    @property
    def heads(self) -> list[tuple[str, str, bool]]:
        """(GPU model and dtype, the address that shows this column on a phone, whether it does)."""
        own = self.chosen and (self.chosen.gpu, self.chosen.workload.dtype)
        return [(head(gpu, dtype), self._first_of(gpu, dtype), (gpu, dtype) == own) for gpu, dtype in self.columns]

    def hosts(self, work: str, gpu: str) -> list[str]:
        found = {place.shown.host for place in self.places if (place.work, place.gpu) == (work, gpu)}
        return sorted(found - {""}) or ["demo"]

    def _first_of(self, gpu: str, dtype: str) -> str:
        first = next(place for place in self.places if (place.gpu, place.workload.dtype) == (gpu, dtype))
        return self.address(cell=first.cell)

    @cached_property
    def every_group(self) -> list[Group]:
        """Operations, then problems, each with its shapes from small to large."""
        found: dict[str, dict[str, dict[tuple[str, str], Place]]] = {}
        for place in self.places:
            by_column = found.setdefault(place.work, {}).setdefault(place.shape, {})
            by_column[place.gpu, place.workload.dtype] = place
        groups = sorted(found.items(), key=lambda one: (AT in one[0], one[0]))
        return [self._group(work, shapes) for work, shapes in groups]

    def _group(self, work: str, shapes: dict[str, dict[tuple[str, str], Place]]) -> Group:
        there = {column for cells in shapes.values() for column in cells}
        own = [column for column in self.columns if column in there]
        shown, chosen = own[:MOST_COLUMNS], self.chosen
        mine = (chosen.gpu, chosen.workload.dtype) if chosen else None
        if chosen and mine and chosen.work == work and mine not in shown:
            shown = [*own[: MOST_COLUMNS - 1], mine]
        lines = [Line(*halves(shape), [cells.get(column) for column in shown]) for shape, cells in shapes.items()]
        known = operations()
        hosts = [", ".join(self.hosts(work, gpu)) for gpu, _ in shown]
        return Group(
            self, work, known[work].baseline if work in known else "", shown, [one for one in own if one not in shown],
            [(head(*column), host) for column, host in zip(shown, hosts, strict=True)],
            shown.index(mine) if mine in shown else 0, lines,
        )  # fmt: skip

    @cached_property
    def groups(self) -> list[Group]:
        """The groups with the shapes that have room."""
        left, groups = MOST_ROWS, []
        for group in self.every_group:
            shown = [line for line in group.lines if any(line.cells)][:left]
            left -= len(shown)
            if shown:
                groups.append(replace(group, lines=shown))
        return groups

    @property
    def hidden(self) -> int:
        return sum(len(group.lines) for group in self.every_group) - sum(len(group.lines) for group in self.groups)

    @property
    def what_is_hidden(self) -> str:
        """Shapes and columns that have no room, as sentences; empty if there are none."""
        every, left = len(self.columns), len(self.columns) - len(self.shown_columns)
        columns = f"{left} of {every} columns" if left else ""
        if not self.hidden and not left:
            return ""
        if self.hidden:
            shapes = f"{self.hidden} shape{'s are' if self.hidden > 1 else ' is'} not shown"
            said = f"{shapes}, and {columns}" if left else shapes
        else:
            said = f"{columns} {'are' if left > 1 else 'is'} not shown"
        return f"{said}. Filter above, or download csv."

    # --- one of its cells ---

    @cached_property
    def chosen(self) -> Place | None:
        """The place of ?cell=, else the first confirmed one."""
        if self.asked["cell"]:
            return next((place for place in self.places if place.cell == self.asked["cell"]), None)
        first = sorted(
            self.places, key=lambda place: (place.record is None, self.columns.index((place.gpu, place.workload.dtype)))
        )
        return next(iter(first), None)

    @cached_property
    def compared(self) -> list[Place]:
        """The places of the curves: those of the chosen operation or problem, GPU model and dtype."""
        one = self.chosen
        if one is None:
            return []
        own = (one.work, one.gpu, one.workload.dtype)
        return [place for place in self.places if (place.work, place.gpu, place.workload.dtype) == own]

    @property
    def over(self) -> str:
        """The kernel that the curves compare with."""
        assert self.chosen is not None
        return self.asked["over"] or self.chosen.shown.base.kernel

    @cached_property
    def curves(self) -> list[Curve]:
        return coverage.curves(self.compared, self.over) if self.compared else []

    @property
    def left_out(self) -> int:
        """Of the places of the curves, those with a result that noise leaves out."""
        return coverage.left_out(self.compared)


def halves(shape: str) -> tuple[str, str]:
    """A long shape on two lines: "B=4 H=16 S=512", "D=64, causal"."""
    parts = PHRASE.findall(shape)
    return (shape, "") if "x" in parts or len(parts) < 4 else (" ".join(parts[:3]), ", ".join(parts[3:]))


def leaderboard(request: HttpRequest) -> HttpResponse:
    view = View.of(request)
    chosen = view.chosen
    context: dict[str, Any] = {"page": "leaderboard", "view": view, "headline": headline(view), "chosen": chosen}
    if chosen:
        ready = Gpu.objects.online().values_list("name", flat=True)
        context |= {
            "steps": _steps(chosen),
            "by": view.board.by(chosen.shown),
            "may_confirm": set(ready),
            "opinion": _opinion(chosen),
            "chart_query": view.address(cell=chosen.cell),
        }
    return render(request, "leaderboard.html", context)


def _steps(place: Place) -> list[tuple[leaders.Placed, str]]:
    """The records of a place, each with what differs from the one before it: "host and driver"."""
    steps = leaders.steps(place)
    if len({(step.point.gpu, step.point.environment) for step in steps}) < 2:
        return [(step, "") for step in steps]
    series = {point.pk: one for one in history.grouped([step.point for step in steps]) for point in one.points}
    return list(zip(steps, history.differences([series[step.point.pk] for step in steps]), strict=True))


def _opinion(place: Place) -> dict[str, Any] | None:
    """The second opinion of what a place shows: a phrase and its run."""
    second = confirming.opinion_of(place, confirmed=place.record is not None)
    return {"phrase": confirming.phrase_of(second), "run": second.run} if second else None


def leaderboard_csv(request: HttpRequest) -> HttpResponse:
    view = View.of(request)
    return csv_file(leader_rows.rows(view.board, view.places), leader_rows.FIELDS, "leaderboard.csv")


def leaderboard_json(request: HttpRequest) -> HttpResponse:
    view = View.of(request)
    return JsonResponse({"leaderboard": list(leader_rows.rows(view.board, view.places))})


# --- charts -----------------------------------------------------------------------------------------------------------


def chart(request: HttpRequest, name: str, kind: str) -> HttpResponse:
    view, theme = View.of(request), palette_of(request)
    if name not in CHARTS or view.chosen is None:
        raise Http404(f"there is no chart '{name}'")
    if name == "record":
        drawn = charts.record(leaders.steps(view.chosen), view.chosen.shown.base.kernel, THEMES[theme])
    else:
        drawn = charts.fast(view.curves, THEMES[theme])
    if drawn is None:
        raise Http404("there is nothing to draw")
    return as_file(drawn.to_dict(validate=False), kind, theme, f"leaderboard-{name}")


# --- confirm ----------------------------------------------------------------------------------------------------------


@require_POST
def confirm(request: HttpRequest) -> HttpResponse:
    """Queues a thorough run of a place's best unconfirmed kernel, on the card of the result, else on one of its model."""
    asked = request.POST.get("cell", "")
    place = next((one for one in leaders.board().places if one.cell == asked), None)
    if place is None or place.rumour is None:
        raise Http404("nothing waits for confirmation there")
    try:
        runs = confirming.confirm(place, request.user if request.user.is_authenticated else None)
    except confirming.NotConfirmed as why:
        messages.error(request, str(why))
        return redirect(f"{reverse('leaderboard')}?{urlencode({'cell': asked})}")
    new = [run for run, is_new in runs if is_new]
    ways = {run.spec.protocol.isolated for run in new}
    what = "five shared and five isolated" if len(ways) == 2 else "five isolated" if True in ways else "five"
    said = f"Queued: {what} fresh processes will measure it again." if new else "This is being confirmed already."
    messages.success(request, said)
    return redirect((new or [run for run, _ in runs])[0])

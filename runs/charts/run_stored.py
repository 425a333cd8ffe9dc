"""Charts of a run as they are stored: drawn once when it ends, in every theme and both widths. Pages draw what is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import vl_convert

from kernels.contract.search import Search
from kernels.report import tables
from kernels.report.tables import Row
from runs.charts import run_scaling, search_charts
from runs.charts.run_charts import NARROW, OF, WIDTHS, latency, leader_of, rows_of, speedup
from runs.charts.theme import STAND_INS, THEMES, in_theme
from runs.models import Chart, Run
from runs.queries import measurements
from runs.queries.searches import search_of

DRAWING = {"look": 12}
"""Increase it if the drawing changes: stored charts are then redrawn."""
WIDE_AND_NARROW = 2
"""Names of a chart."""


def ending(run: Run, operation: str) -> str:
    """What the names of an operation's charts end with: nothing in a run of one operation, whatever it has measured."""
    return "" if run.config.get("operation") else OF + operation


def names_of(run: Run) -> list[str]:
    """Names of a run's charts; of several operations, each has its own: latency__gemm."""
    if run.tune:
        return [f"{name}{end}" for name in search_charts.NAMES for end in ("", NARROW)]
    names = []
    for operation in run.spec.operations:
        grown = run_scaling.planned([one for one in run.spec.workloads if one.operation == operation])
        names += [f"{kind}{ending(run, operation)}" for kind in (*WIDTHS, *grown)]
    return [f"{name}{end}" for name in names for end in ("", NARROW)]


def draw(pk: int, place: int) -> bool:
    """Draws and stores one of a run's charts, number `place`, in both widths. Whether there are more."""
    run = Run.objects.get(pk=pk)
    names, rows = names_of(run), cache(partial(rows_of, run))
    for name in names[WIDE_AND_NARROW * place :][:WIDE_AND_NARROW]:
        chart_of(run, name, next(iter(THEMES)), rows)
    return len(names) > WIDE_AND_NARROW * (place + 1)


def chart_of(run: Run, name: str, palette: str, rows: Callable[[str], list[Row]] | None = None) -> Chart | None:
    """The stored chart, or a new one, in all themes, if the run has continued since. None if there is nothing to draw.
    rows: the table of an operation, if somebody has read it."""
    stored = Chart.objects.filter(run=run, name=name, theme=palette).first()
    search = search_of(run) if run.tune else None
    done = run.done + (len(search.finalists) if search else 0)
    if stored and stored.done == done and stored.spec.get("usermeta") == DRAWING:
        return stored
    chart = _drawing(run, name, search, rows or partial(rows_of, run))
    if chart is None:
        return None
    spec = chart.to_dict(validate=False) | {"usermeta": DRAWING}
    plain, svg = json.dumps(spec), vl_convert.vegalite_to_svg(spec)
    charts = {}
    for one in THEMES:
        values = {"spec": json.loads(in_theme(plain, one)), "svg": in_theme(svg, one), "done": done}
        charts[one] = Chart.objects.update_or_create(run=run, name=name, theme=one, defaults=values)[0]
    return charts[palette]


def _drawing(run: Run, name: str, search: Search | None, rows: Callable[[str], list[Row]]) -> Any:
    """In STAND_INS."""
    kind, _, operation = name.removesuffix(NARROW).partition(OF)
    narrow = name.endswith(NARROW)
    if search:
        return search_charts.draw(search, kind, STAND_INS, narrow)
    if kind.startswith(run_scaling.NAME):
        measured = [m for m in measurements.of_run(run) if operation in ("", m.workload.operation)]
        found = {one.name: one for one in run_scaling.scalings(measured, leader_of(tables.rows(measured)))}
        return run_scaling.draw(found[kind], STAND_INS, narrow) if kind in found else None
    return {"speedup": speedup, "latency": latency}[kind](rows(operation), STAND_INS, narrow=narrow)

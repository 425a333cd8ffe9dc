"""The table of a run: one row for each workload, kernels as cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple
from urllib.parse import urlencode

from django.http import HttpRequest

from kernels.analysis.standing import Ranking, Standing
from kernels.report.tables import Row, words_of
from kernels.workload import Workload
from runs.queries.measurements import StoredArm, StoredMeasured
from runs.views.columns import Columns

MOST_KERNELS = 6
"""If there are more, those that are far behind everywhere are shown on request only."""
FAR = 0.5
"""A kernel whose speedup is below this on every workload is far behind."""
MAIN_SIZES = 3
"""Sizes in the first line of a workload's cell."""
TALL = 30
"""A table with more rows scrolls inside its panel."""
BASE, LIGHT = "baseline", "limit"
"""Columns that are no kernel, in `?by=`. A kernel of that name is `kernel:baseline`."""


@dataclass(frozen=True)
class Asked:
    """What an address asks of the table: `?by=-kernel:triton-flash&kernel=compiled&kernels=all`."""

    by: str = ""
    descending: bool = False
    chosen: str = ""
    """The column that a phone shows."""
    everyone: bool = False
    """Whether kernels that are far behind are shown."""

    @classmethod
    def of(cls, request: HttpRequest) -> Asked:
        by = request.GET.get("by", "")
        return cls(
            by.removeprefix("-"), by.startswith("-"), request.GET.get("kernel", ""), request.GET.get("kernels") == "all"
        )

    def pairs(self, **changes: str) -> dict[str, str]:
        mine = {
            "by": ("-" if self.descending else "") + self.by,
            "kernel": self.chosen,
            "kernels": "all" if self.everyone else "",
        }
        return {name: value for name, value in (mine | changes).items() if value.strip("-")}


class Cell(NamedTuple):
    """One kernel on one workload."""

    arm: StoredArm
    row: Row


class Light(NamedTuple):
    """The best result's share of the speed of light, the time at the speed of light in ms, and whose result it is."""

    share: float
    limit_ms: float
    kernel: str
    """Its name: "quack", "quack or triton-softmax", "3 kernels"."""


@dataclass(frozen=True)
class Line:
    """One workload. Without a measurement: it is still to be measured."""

    main: str
    more: str
    measured: StoredMeasured | None
    cells: dict[str, Cell]
    light: Light | None
    id: str = ""
    """Key of its workload."""
    live: bool = False
    """Whether it is being measured now."""
    so_far: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Kernel -> the ratios of single rounds of a workload that is being measured."""

    @property
    def base(self) -> Cell | None:
        return self.cells.get(self.measured.baseline) if self.measured else None

    def key(self, column: str) -> float | None:
        """What a column is sorted by."""
        if column == BASE:
            return self.base.arm.p50_ms if self.base else None
        if column == LIGHT:
            return self.light.share if self.light else None
        cell = self.cells.get(column.removeprefix("kernel:"))
        return cell.arm.speedup if cell else None


@dataclass(frozen=True)
class Column:
    """One kernel, with its verdicts in words; empty while the run is measured."""

    kernel: str
    words: list[str]
    sort: str
    order: str
    tab: str
    """Address that shows this column on a phone."""
    shown: bool
    """Whether a phone shows it."""


class Plan(NamedTuple):
    """What a run was asked to measure of one operation."""

    workloads: list[Workload]
    kernels: list[str]
    baseline: str
    live: str = ""
    """Label of the workload that is being measured."""
    so_far: Mapping[str, Sequence[float]] = {}
    """Kernel -> the ratios of its rounds so far."""
    is_final: bool = True
    """Whether nothing will be measured any more."""
    leader: str = ""
    """The kernel of the charts. Its column is the first."""


@dataclass(frozen=True)
class Matrix:
    """The table of one operation."""

    baseline: str
    about: str
    """Operation and dtype, if all workloads share it."""
    lines: list[Line]
    standings: list[Standing]
    """Of all kernels but the baseline, in the order of columns."""
    asked: Asked
    rest: Columns
    """What the address asks of the table of all figures."""
    final: bool

    @cached_property
    def far(self) -> list[str]:
        """Kernels far behind on every workload, if there are many."""
        if len(self.standings) <= MOST_KERNELS or not self.final:
            return []
        found = [one.kernel for one in self.standings if self._is_far(one.kernel)]
        return found if len(found) < len(self.standings) else []

    def _is_far(self, kernel: str) -> bool:
        ratios = [line.cells[kernel].arm.speedup_high for line in self.lines if kernel in line.cells]
        known = [high for high in ratios if high is not None]
        return bool(known) and max(known) < FAR

    @property
    def has_limits(self) -> bool:
        return any(line.light for line in self.lines)

    @property
    def is_tall(self) -> bool:
        return len(self.lines) > TALL

    @cached_property
    def columns(self) -> list[Column]:
        hidden = [] if self.asked.everyone else self.far
        kernels = [one for one in self.standings if one.kernel not in hidden]
        names = [one.kernel for one in kernels]
        chosen = self.asked.chosen if self.asked.chosen in [*names, LIGHT] else next(iter(names), LIGHT)
        return [
            Column(
                one.kernel,
                _words(one) if self.final else [],
                self.sorted_by(f"kernel:{one.kernel}"),
                self.order_of(f"kernel:{one.kernel}"),
                self.address(kernel=one.kernel),
                one.kernel == chosen,
            )
            for one in kernels
        ]

    @property
    def light_is_shown(self) -> bool:
        """Whether a phone shows the column of the speed of light."""
        return not any(column.shown for column in self.columns)

    @property
    def ordered(self) -> list[Line]:
        """Lines in the order asked for; those without the figure last."""
        if not self.asked.by:
            return self.lines
        figures = [(line.key(self.asked.by), line) for line in self.lines]
        known = sorted(
            ((figure, number) for number, (figure, _) in enumerate(figures) if figure is not None),
            reverse=self.asked.descending,
        )
        return [
            *(self.lines[number] for _, number in known),
            *(line for figure, line in figures if figure is None),
        ]

    # --- addresses ----------------------------------------------------------------------------------------------------

    def address(self, **changes: str) -> str:
        return _joined(self.rest.here, self.asked.pairs(**changes))

    def sorted_by(self, column: str) -> str:
        """The largest first; then the smallest; then the order of the config."""
        if column != self.asked.by:
            return self.address(by=f"-{column}")
        return self.address(by=column if self.asked.descending else "")

    def order_of(self, column: str) -> str:
        if column != self.asked.by:
            return ""
        return "descending" if self.asked.descending else "ascending"

    @property
    def by_base(self) -> tuple[str, str]:
        return self.sorted_by(BASE), self.order_of(BASE)

    @property
    def by_light(self) -> tuple[str, str]:
        return self.sorted_by(LIGHT), self.order_of(LIGHT)

    @property
    def light_tab(self) -> str:
        return self.address(kernel=LIGHT)

    @property
    def with_far(self) -> str:
        return self.address(kernels="" if self.asked.everyone else "all")


def _joined(query: str, pairs: dict[str, str]) -> str:
    """A query string with more pairs."""
    more = urlencode(pairs, safe=",:")
    return f"{query}&{more}" if query and more else query or (f"?{more}" if more else "?")


def _words(one: Standing) -> list[str]:
    """ "faster on 6", "slower on 2", then why others were left out. On one workload its cell says it."""
    if one.of < 2:
        return []
    words = [f"{word} on {count}" for word, count in one.counts.items() if count]
    return [*words, *(f"{reason} on {count}" for reason, count in one.left_out.items())]


def matrix(
    measured: Sequence[StoredMeasured],
    table: Sequence[Row],
    plan: Plan,
    ranked: Ranking,
    asked: Asked,
    rest: Columns,
) -> Matrix:
    """table: the rows of `measured`."""
    done = {m.key for m in measured}
    planned = [workload for workload in plan.workloads if workload.key not in done]
    rows = iter(table)
    cells = [{arm.kernel: Cell(arm, next(rows)) for arm in m.results} for m in measured]
    labels = [m.label for m in measured] + [workload.label for workload in planned]
    tokens = [words_of(label) for label in labels]
    shared = len({token[1] for token in tokens if len(token) > 1}) == 1
    repeated = len({m.key for m in measured}) < len(measured)
    lines = [
        Line(*_two_lines(words, shared, m.mode if repeated else ""), m, mine, _light(mine), m.key)
        for m, mine, words in zip(measured, cells, tokens, strict=False)
    ]
    lines += [
        _waiting(workload, _two_lines(words, shared, ""), plan)
        for words, workload in zip(tokens[len(measured) :], planned, strict=True)
    ]
    baseline = measured[0].baseline if measured else plan.baseline
    found = {one.kernel: one for one in ranked.standings}
    names = list(dict.fromkeys([*found, *plan.kernels] if plan.is_final else [*plan.kernels, *found]))
    if plan.is_final:
        names.sort(key=lambda name: name != plan.leader)
    standings = [found.get(name) or Standing(name, baseline, {}) for name in names if name != baseline]
    about = " ".join(tokens[0][: 2 if shared else 1]) if tokens else ""
    return Matrix(baseline, about.replace("_", " "), lines, standings, asked, rest, plan.is_final)


def _waiting(workload: Workload, texts: tuple[str, str], plan: Plan) -> Line:
    """A workload that is measured now, or not yet."""
    is_live = workload.label == plan.live
    return Line(*texts, None, {}, None, workload.key, is_live, plan.so_far if is_live else {})


def _two_lines(tokens: list[str], shared: bool, mode: str) -> tuple[str, str]:
    """A workload's label in two lines: "B=4 H=16 S=512", "D=64 causal"."""
    sizes, dtype = tokens[2:], [] if shared else tokens[1:2]
    head = MAIN_SIZES if "=" in "".join(sizes) else len(sizes)
    return " ".join(sizes[:head]), ", ".join(filter(None, [" ".join(sizes[head:]), *dtype, mode]))


def _light(cells: dict[str, Cell]) -> Light | None:
    """Of the fastest result that counts. Kernels whose intervals of p50 meet its interval are not told apart from it."""
    known = [cell.arm for cell in cells.values() if cell.row.status == "ok" and cell.row.correct is not False]
    known = [arm for arm in known if arm.limit_share and arm.limit_ms]
    if not known:
        return None
    best = max(known, key=lambda arm: arm.limit_share or 0.0)
    end = best.p50_high_ms or best.p50_ms or 0.0
    near = [arm.kernel for arm in known if arm is not best and (arm.p50_low_ms or arm.p50_ms or 0.0) <= end]
    who = f"{len(near) + 1} kernels" if len(near) > 1 else " or ".join([best.kernel, *near])
    return Light(best.limit_share or 0.0, best.limit_ms or 0.0, who)

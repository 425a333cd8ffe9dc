"""Lines: a kernel's times on one workload and one card, run after run, tested for changes.

A line goes on where driver, versions or sources change: these are its marks. It ends where the card, the mode or the
protocol changes: such times are not comparable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from kernels.analysis.changes import RULE, Test, Value, changes, compare
from kernels.analysis.statistics import WIDEST_MARGIN
from kernels.contract.arm_result import Status
from kernels.contract.environment import KEYED
from runs.models import Gpu, Workload
from runs.queries.history import NAMES, Series
from runs.queries.points import Point

MOST = 400
"""Newest runs of a line that are looked at. Of a longer line, the first runs of these only stand before the others."""
OF_MARKS = ("torch", "triton", "driver", "cuda", "cudnn", "harness")
assert {"device", *OF_MARKS} == set(KEYED), "every key that decides a number is a mark"


class Fact(NamedTuple):
    """One difference between two runs in a row."""

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class Mark:
    """A run before which something changed, or at which the times changed: both are tested."""

    index: int
    facts: tuple[Fact, ...]
    """Empty: the times changed, and nothing else that is recorded."""
    test: Test
    acknowledged: bool = False

    @property
    def is_change(self) -> bool:
        return self.test.is_change


@dataclass
class Line:
    """Times of one kernel, oldest first. All are ok, alone on the device and not drowned in noise."""

    workload: Workload
    mode: str
    gpu: Gpu | None
    points: list[Point]
    is_cut: bool = False
    """Whether it has older runs."""
    environments: dict[int, dict[str, object]] = field(repr=False, default_factory=dict)
    levels: tuple[int, ...] = ()
    """Runs at which somebody began a new level."""

    @property
    def key(self) -> str:
        """Of its address: what tells a kernel's lines on a workload apart."""
        one = self.points[-1]
        how = "-".join("" if value is None else f"{value}" for value in one.how)
        return f"{one.gpu}-{self.mode}-{one.group}-{'isolated' if one.isolated else 'in'}-{how}"

    @cached_property
    def values(self) -> list[Value]:
        return [Value(p.p50_ms or 0.0, p.p50_low_ms or 0.0, p.p50_high_ms or 0.0) for p in self.points]

    @cached_property
    def begun(self) -> list[int]:
        """Indices at which levels were begun."""
        return [number for number, point in enumerate(self.points) if number and point.run in self.levels]

    @cached_property
    def found(self) -> list[Test]:
        """Its changes, oldest first; also those that somebody has acknowledged."""
        plain = changes(self.values)
        others = [index for index in self.begun if index not in {one.index for one in plain}]
        tests = changes(self.values, levels=others) if others else plain
        return [one for one in tests if one.index >= self.first]

    @property
    def first(self) -> int:
        """The first run at which a change is looked for: the newest runs of a longer line need others before them."""
        return RULE.before if self.is_cut else 0

    @cached_property
    def edges(self) -> list[int]:
        """Where its levels begin, and its end."""
        return sorted({0, *self.begun, *(one.index for one in self.found), len(self.points)})

    @cached_property
    def marks(self) -> list[Mark]:
        """What changed between runs, and every change; each tested between the levels beside it."""
        return [mark for index in range(1, len(self.points)) if (mark := self._mark(index))]

    def _mark(self, index: int) -> Mark | None:
        facts, same = self.facts(index), next((one for one in self.found if one.index == index), None)
        if not facts and same is None and index not in self.begun:
            return None
        before = max(edge for edge in self.edges if edge < index)
        after = min(edge for edge in self.edges if edge > index)
        test = same or compare(self.values, index, before, after)
        return Mark(index, facts, test, index in self.begun)

    def facts(self, index: int) -> tuple[Fact, ...]:
        """What differs between a run and the one before it."""
        was, now = self.points[index - 1], self.points[index]
        pairs = []
        if was.environment != now.environment:
            old, new = (self.environments.get(p.environment, {}) for p in (was, now))
            pairs = [(NAMES.get(key, key), str(old.get(key) or ""), str(new.get(key) or "")) for key in OF_MARKS]
        pairs.append(("source", (was.sha256 or "")[:7], (now.sha256 or "")[:7]))
        return tuple(Fact(*pair) for pair in pairs if pair[1] != pair[2])

    def elsewhere(self, mark: Mark) -> list[str]:
        """Names of what changed between other runs of the two sides that were compared, in the order of `OF_MARKS`."""
        sides = range(mark.index - mark.test.before + 1, mark.index + mark.test.after)
        found = {fact.name for index in sides if index != mark.index for fact in self.facts(index)}
        return [name for name in (*(NAMES.get(key, key) for key in OF_MARKS), "source") if name in found]

    def at(self, index: int) -> datetime:
        return when(self.points[index])

    @cached_property
    def level(self) -> int:
        """The run at which its present level began."""
        return self.edges[-2]

    @cached_property
    def since(self) -> Test:
        """Its newest runs against the first ones of its present level: a slow drift shows here, too."""
        return drift(self.values[self.level :])

    @cached_property
    def newest_change(self) -> Mark | None:
        return next((mark for mark in reversed(self.marks) if mark.is_change), None)


def drift(values: Sequence[Value]) -> Test:
    """The newest values against the first ones, the farthest weighing most. The test's index is the first of the newest."""
    least = RULE.least
    split = max(min(least, len(values)), min(len(values) - RULE.after, len(values) - least))
    first = values[: min(split, RULE.before)]
    return replace(compare([*reversed(first), *reversed(values[split:])], len(first)), index=split)


def counts(point: Point) -> bool:
    """Whether a result is a point of a line."""
    known = point.status == Status.OK and point.p50_ms and point.p50_low_ms and point.p50_high_ms
    return bool(known) and not point.contended and not point.demo and point.margin <= WIDEST_MARGIN


def lines(series: Sequence[Series], levels: Sequence[int] = ()) -> list[Line]:
    """Lines of series of one kernel, the one with the newest run first. levels: runs at which somebody began one."""
    groups: dict[tuple[object, ...], list[tuple[Series, Point]]] = {}
    for one in series:
        terms = one.terms
        for point in filter(counts, one.points):
            key = (terms.workload, terms.mode, terms.group, point.isolated, terms.card, terms.how)
            groups.setdefault(key, []).append((one, point))
    found = [_line(together, levels) for together in groups.values()]
    return sorted(found, key=lambda line: line.at(len(line.points) - 1), reverse=True)


def _line(together: Sequence[tuple[Series, Point]], levels: Sequence[int]) -> Line:
    first = together[0][0]
    points = sorted((point for _, point in together), key=lambda point: (when(point), point.run))
    bodies = {point.environment: one.environment for one, point in together}
    cut = len(points) > MOST
    return Line(first.workload, first.terms.mode, first.gpu, points[-MOST:], cut, bodies, tuple(levels))


def when(point: Point) -> datetime:
    return point.started_at or point.created_at

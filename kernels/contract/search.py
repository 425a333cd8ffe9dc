"""A search for a kernel's best settings, as data: what `python -m kernels tune` writes, and what a run on the site reports.

All speedups are over the kernel's own choice of settings. What a trial showed when it was screened is a promise: the best of
many is partly luck (the winner's curse). So each finalist has two figures, the promised and the confirmed one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import AwareDatetime, ValidationError

from kernels.contract.arm_result import Model, Ratio, Status, Text
from kernels.protocol import Protocol
from kernels.settings import FORMAT, Settings
from kernels.tune_plan import TunePlan
from kernels.workload import Workload, sentence


class OnWorkload(Model):
    """What one measurement showed of settings on one workload. Latencies are per call."""

    key: str
    status: Status
    why: Text = ""
    correct: bool | None = None
    ratio: Ratio | None = None
    """Speedup over the kernel's own choice, with its interval."""
    p50_ms: float | None = None
    p90_ms: float | None = None
    own_p50_ms: float | None = None
    own_p90_ms: float | None = None
    p90_worse: bool = False
    """The p90 is above that of the own choice, beyond what the number of calls explains."""
    margin: float = 0.01
    rounds: int | None = None
    processes: int = 1


class Trial(Model):
    """Settings that were screened."""

    number: int
    """From 1."""
    settings: Settings
    origin: Text = ""
    """Where they come from, in words: "drawn", "mutated from 7"."""
    results: list[OnWorkload] = []
    score: float | None = None
    """Geometric mean of the speedups. None: pruned."""
    pruned: Text = ""
    """Why it was given up: it does not compile, is wrong, ... Empty: it was timed on every workload."""
    fails: Text = ""
    """Which gate it does not pass. Empty: it passes all."""
    at: AwareDatetime
    took_s: float | None = None
    """Of the trials that were screened together."""


class Finalist(Model):
    """A trial measured again, in processes that it was not chosen in."""

    number: int
    """Of its trial."""
    settings: Settings
    results: list[OnWorkload] = []
    """Their intervals hold for all finalists on all workloads at once."""
    score: float | None = None
    fails: Text = ""
    at: AwareDatetime

    @property
    def low(self) -> float:
        """Low end of the geometric mean of its speedups, whose errors are independent; 0 if one is missing."""
        ratios = [one.ratio for one in self.results if one.ratio]
        if not ratios or len(ratios) < len(self.results):
            return 0.0
        total = sum(math.log(one.ratio) for one in ratios)
        below = math.hypot(*(math.log(one.ratio / one.low) for one in ratios))
        return math.exp((total - below) / len(ratios))


class Pair(Model):
    """One finalist on one workload."""

    number: int
    key: str
    promised: Ratio
    confirmed: Ratio


class Search(Model):
    """One search, complete or not."""

    operation: str
    kernel: str
    sha256: str = ""
    """Of the kernel's file, without its table."""
    plan: TunePlan
    protocol: Protocol
    """Of the config. Screening takes less of it, finalists several processes: kernels/tuning/instrument.py."""
    space: dict[str, tuple[Any, ...]]
    keys: list[str]
    """Keys of the workloads."""
    workloads: list[Workload]
    environment: dict[str, Any] = {}
    """GPU, driver, torch, Triton, harness, ...: of the measuring processes."""
    fingerprint: str = ""
    began_at: AwareDatetime
    state: Literal["running", "done", "interrupted", "failed"] = "running"
    trials: list[Trial] = []
    finalists: list[Finalist] = []
    best: Settings | None = None
    """The confirmed finalist that passes every gate and has the highest low end. None: the kernel's own choice stays."""

    @property
    def label(self) -> dict[str, str]:
        """Key of a workload -> what people call it."""
        return {workload.key: workload.label for workload in self.workloads}

    @property
    def pruned(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.pruned]

    @property
    def winner(self) -> Finalist | None:
        """By the low end of its mean: the highest estimate may be luck."""
        passed = [one for one in self.finalists if not one.fails and one.score is not None]
        return max(passed, key=lambda one: one.low, default=None)

    @property
    def pairs(self) -> list[Pair]:
        """Promised and confirmed, of each finalist on each workload."""
        promised = {(trial.number, one.key): one.ratio for trial in self.trials for one in trial.results}
        return [
            Pair(number=finalist.number, key=one.key, promised=before, confirmed=one.ratio)
            for finalist in self.finalists
            for one in finalist.results
            if one.ratio and (before := promised.get((finalist.number, one.key)))
        ]


def winners_curse(pairs: Sequence[Pair]) -> Ratio | None:
    """Confirmed over promised: the geometric mean with its interval. Below 1, screening promised too much.

    The pairs share their baseline, so their errors may all point the same way: the half-widths are averaged, not
    divided by the root of their number.
    """
    if not pairs:
        return None
    shifts = [math.log(one.confirmed.ratio / one.promised.ratio) for one in pairs]
    sides = [math.hypot(_half(one.promised), _half(one.confirmed)) for one in pairs]
    mean, side = sum(shifts) / len(shifts), sum(sides) / len(sides)
    return Ratio(math.exp(mean), math.exp(mean - side), math.exp(mean + side))


def _half(ratio: Ratio) -> float:
    return math.log(ratio.high / ratio.low) / 2


# --- the file ---------------------------------------------------------------------------------------------------------


class NotATable(ValueError):
    """The file holds no searches. The message says why."""


class Table(Model):
    """All searches of one kernel: the file beside it, or that of --out."""

    format: Literal["benchsite-tuned/1"] = FORMAT
    operation: str
    kernel: str
    searches: list[Search] = []

    def as_json(self) -> str:
        return self.model_dump_json(indent=1) + "\n"

    def with_search(self, search: Search) -> Table:
        """The table with a search added, or in the place of an earlier state of it."""
        same = [(one.began_at, one.keys) == (search.began_at, search.keys) for one in self.searches]
        kept = [search if it else one for one, it in zip(self.searches, same, strict=True)]
        return self.model_copy(update={"searches": kept if any(same) else [*self.searches, search]})


def read_table(text: str | bytes) -> Table:
    """Raises NotATable."""
    try:
        return Table.model_validate(json.loads(text))
    except ValidationError as error:
        raise NotATable(f"the table is not valid: {sentence(error)}") from None
    except ValueError as error:
        raise NotATable(f"not JSON: {error}") from None

"""What became of the runs: each has one truthful end, and nothing is left."""

from __future__ import annotations

import fcntl
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from runs.models import Result, Run
from runs.models.run import ACTIVE, State
from tests.chaos.fleet import Fleet

TITLE = "chaos "


@dataclass
class Audit:
    lost: int = 0
    """Runs that are not there, that are done without all results, or that ended otherwise without a reason."""
    twice: int = 0
    """Runs, or results of a run, that are there more than once."""
    stuck: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    said: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not (self.lost or self.twice or self.stuck or self.said)


def of_runs(taken: Iterable[int], cancelled: set[int], kernels: set[str]) -> Audit:
    """taken: numbers of the runs that the site said it had taken. cancelled: of those that a cancel was sent for."""
    found = Audit()
    by_number: dict[int, list[Run]] = {number: [] for number in taken}
    for run in Run.objects.filter(title__startswith=TITLE):
        by_number.setdefault(int(run.title.removeprefix(TITLE)), []).append(run)
    for number, runs in by_number.items():
        found.twice += len(runs) > 1
        if not runs:
            found.lost += 1
            found.said.append(f"run {number} is not in the database")
        for run in runs:
            found.ends[run.state] += 1
            if run.state in ACTIVE:
                found.stuck += 1
                found.said.append(
                    f"run {run.pk} is {run.state}: attempt {run.attempt}, on {run.gpu}, sent {run.sent_at}"
                )
                continue
            results = Counter(Result.objects.filter(measurement__run=run).values_list("kernel__name", flat=True))
            found.twice += any(count > 1 for count in results.values())
            if why := untruthful(run, set(results), number in cancelled, kernels):
                found.lost += 1
                found.said.append(f"run {run.pk} is {run.state} ({run.message[:200]}): {why}")
    return found


def untruthful(run: Run, results: set[str], cancelled: bool, kernels: set[str]) -> str:
    """Why the end of a run is not what happened; empty if it is."""
    if run.state == State.DONE and results != kernels:
        return f"it has results of {sorted(results)}"
    if run.state == State.CANCELLED and not cancelled:
        return "nobody cancelled it"
    if run.state in (State.FAILED, State.LOST) and not run.message:
        return "it gives no reason"
    return ""


def of_hosts(fleet: Fleet) -> list[str]:
    """Locks that are held, and scratch that is left, after all processes have ended."""
    said = []
    for name, disk in fleet.disks.items():
        for path in (disk / "tmp").glob("*") if (disk / "tmp").exists() else ():
            if path.suffix != ".lock":
                said.append(f"{name}: scratch is left: {path.name}")
            elif not _is_free(path):
                said.append(f"{name}: a lock is held: {path.name}")
    return said


def _is_free(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True

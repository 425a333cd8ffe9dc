"""Where the threads of this process may run, and how urgently: what one of them is given outlives the kernel that gave it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

TASKS = Path("/proc/self/task")


class Place(NamedTuple):
    """CPUs, nice value and scheduling policy of a thread."""

    cpus: tuple[int, ...]
    nice: int
    policy: int


class Places(dict[tuple[int, int], Place]):
    """(number, start time) of a thread -> its place. Two readings are equal if the threads of both have not moved: threads end,
    and the system gives their numbers to others."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Places) and all(self[one] == other[one] for one in self.keys() & other.keys())

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __repr__(self) -> str:
        """Each place that one of them has."""
        return ", ".join(
            f"CPUs {','.join(map(str, cpus))} nice {nice} policy {policy}"
            for cpus, nice, policy in sorted(set(self.values()))
        )


class Threads:
    """The threads that were there when this was first read, those of PyTorch among them."""

    def __init__(self) -> None:
        self.first = Places()

    def read(self) -> Places:
        """The places of those that live."""
        self.first = self.first or self._of(map(int, os.listdir(TASKS)))
        return self._of(number for number, _ in self.first)

    def put_back(self, before: Any) -> None:
        now = self.read()
        for one in [one for one in now.keys() & self.first.keys() if now[one] != self.first[one]]:
            task, place = one[0], self.first[one]
            with contextlib.suppress(OSError):  # it has ended, or only the system may
                os.sched_setaffinity(task, place.cpus)
                os.setpriority(os.PRIO_PROCESS, task, place.nice)
                os.sched_setscheduler(task, place.policy, os.sched_param(0))

    @staticmethod
    def _of(tasks: Iterable[int]) -> Places:
        found = Places()
        for task in tasks:
            with contextlib.suppress(OSError):  # it has ended
                started = int((TASKS / str(task) / "stat").read_text().rpartition(")")[2].split()[19])
                cpus = tuple(sorted(os.sched_getaffinity(task)))
                place = Place(cpus, os.getpriority(os.PRIO_PROCESS, task), os.sched_getscheduler(task))
                found[task, started] = place
        return found

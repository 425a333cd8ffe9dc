"""What others take of this machine's CPU during a measurement, from /proc: all processes but the measuring ones, those of
the site included, and the hypervisor."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
IDLE, STEAL = (3, 4), 7
"""Columns of a line of /proc/stat: idle and iowait; time that the hypervisor took."""
COUNTED = 8
"""Columns of a line that add up to all time; later ones are part of the first."""


@dataclass(frozen=True)
class Counters:
    """Counters since boot, in ticks; `switches` is a number."""

    at_s: float
    busy: int
    """All cores that this process may use: work of all processes, and what the hypervisor took."""
    steal: int
    own: int
    """CPU time of this process and its descendants, including those that have ended."""
    switches: int
    """Involuntary context switches of the same."""
    cores: int


class CpuLoad:
    """The load between `begin` and `end`. `look` in between takes a sample of the run queue."""

    def __init__(self, proc: Path = Path("/proc"), pid: int | None = None, cores: set[int] | None = None) -> None:
        self.proc, self.pid = proc, os.getpid() if pid is None else pid
        self.cores = os.sched_getaffinity(0) if cores is None else cores
        self.begun: Counters | None = None
        self.queue: list[int] = []

    def begin(self) -> None:
        self.begun, self.queue = self._counters(), []

    def look(self) -> None:
        """Tasks that run or wait for a core; the caller, who runs, is not counted."""
        for line in self._lines("stat"):
            if line.startswith("procs_running "):
                self.queue.append(max(0, int(line.split()[1]) - 1))

    def end(self) -> dict[str, Any] | None:
        """Fields of a HostLoad (kernels/contract/events.py). None where /proc does not tell."""
        before, after = self.begun, self._counters()
        if before is None or after is None or (seconds := after.at_s - before.at_s) <= 0:
            return None
        ticks = seconds * TICKS_PER_S * after.cores
        foreign = (
            (after.busy - before.busy) - (after.own - before.own) - after.cores
        )  # a core's last tick may be partial
        return {
            "foreign": min(1.0, max(0.0, foreign / ticks)),
            "steal": min(1.0, max(0.0, (after.steal - before.steal) / ticks)),
            "run_queue": sum(self.queue) / len(self.queue) if self.queue else None,
            "preempted": max(0, after.switches - before.switches),
            "cores": after.cores,
        }

    def _counters(self) -> Counters | None:
        names = {f"cpu{core}" for core in self.cores}
        cores = [list(map(int, line.split()[1:])) for line in self._lines("stat") if line.split(" ")[0] in names]
        if not cores or not any(map(sum, cores)):
            return None
        busy = sum(sum(core[:COUNTED]) - sum(core[column] for column in IDLE) for core in cores)
        ours = list(self._ours())
        own = sum(sum(map(int, fields[11:15])) for _, fields in ours)
        switches = sum(self._switches(pid) for pid, _ in ours)
        steal = sum(core[STEAL] for core in cores)
        return Counters(time.monotonic(), busy, steal, own, switches, len(cores))

    def _ours(self) -> Iterator[tuple[int, list[str]]]:
        """(pid, fields of its `stat` after its name) of this process and its descendants."""
        stats: dict[int, list[str]] = {}
        for folder in self.proc.iterdir():
            if folder.name.isdigit() and (text := self._text(f"{folder.name}/stat")):
                stats[int(folder.name)] = text.rsplit(")", 1)[1].split()
        for pid, fields in stats.items():
            above = pid
            while above in stats and above != self.pid:
                above = int(stats[above][1])
            if above == self.pid:
                yield pid, fields

    def _switches(self, pid: int) -> int:
        """Of all threads of a process."""
        prefix, count = "nonvoluntary_ctxt_switches:", 0
        try:
            threads = list((self.proc / str(pid) / "task").iterdir())
        except OSError:
            return 0
        for thread in threads:
            for line in self._lines(f"{pid}/task/{thread.name}/status"):
                if line.startswith(prefix):
                    count += int(line.removeprefix(prefix))
        return count

    def _lines(self, name: str) -> list[str]:
        return self._text(name).splitlines()

    def _text(self, name: str) -> str:
        """The text of a file; empty if it cannot be read, as that of a process that has ended."""
        try:
            return (self.proc / name).read_text()
        except OSError:
            return ""

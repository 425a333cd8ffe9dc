"""Processes of this host, from /proc: which descend from which, and which one a number means."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CPU_TIME = 2
"""Kind of a process's clock: the CPU time that it has used."""
_libc = ctypes.CDLL(None)


class Process(NamedTuple):
    """One process. Its number is used again after it ends; its number and its start are not."""

    pid: int
    started: int
    """In clock ticks since the host started."""


def die_with_parent(signal_number: int = signal.SIGKILL) -> None:
    """The kernel sends this signal to the calling process when the thread that started it ends."""
    _libc.prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0)


def adopt_orphans() -> None:
    """A process below this one whose parent ends becomes a child of this one, whatever session it is in."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def identify(pid: int) -> Process | None:
    """The process with this number; None if there is none, or if it has ended (a zombie)."""
    fields = _stat(pid)
    return Process(pid, int(fields[19])) if fields and fields[0] not in "ZX" else None


def is_alive(process: Process) -> bool:
    return identify(process.pid) == process


def is_alive_number(pid: int) -> bool:
    return identify(pid) is not None


def descendants(*pids: int) -> list[int]:
    """Numbers of the processes below these, nearest first; zombies included."""
    children = _children if os.path.exists("/proc/thread-self/children") else _children_of_all()
    found = list(pids)
    for parent in found:
        found += [pid for pid in children(parent) if pid not in found]
    return found[len(pids) :]


def memory_bytes(pids: Iterable[int]) -> int:
    """Memory of these processes that no file on a disk holds. What several share counts for each."""
    found = 0
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as file:
            found += sum(int(line.split()[1]) for line in file if line.startswith(("RssAnon:", "RssShmem:")))
    return found * 1024


def cpu_ns(pids: Iterable[int]) -> dict[int, int]:
    """CPU time of all threads of each of these processes, those that have ended included."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            found[pid] = time.clock_gettime_ns((~pid << 3) | CPU_TIME)
    return found


def is_stopped(pid: int) -> bool:
    """Whether every thread of a process is stopped, or has ended. A signal stops a thread when it returns from the system:
    one that is in a call of a driver goes on there, whatever its process is said to be."""
    states = [_stat(pid, f"task/{task}/") for task in _tasks(pid)]
    return all(state[0] in "TtZX" for state in states if state)


def with_environment(line: str) -> list[int]:
    """Numbers of this user's processes that were started with NAME=value in their environment."""
    wanted, found = f"\0{line}\0".encode(), []
    for pid in _numbers():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if wanted in b"\0" + file.read() + b"\0":
                found.append(pid)
    return found


def end(pids: Iterable[int], signal_number: int = signal.SIGKILL) -> None:
    """Sends a signal to processes, where they still exist."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal_number)


def _numbers() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in _tasks(pid):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
    return found


def _children_of_all() -> Callable[[int], list[int]]:
    """The same where the kernel does not list children: reads every process once."""
    parents = {pid: int(fields[1]) for pid in _numbers() if (fields := _stat(pid))}
    return lambda parent: [pid for pid, its_parent in parents.items() if its_parent == parent]


def _tasks(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def _stat(pid: int, of: str = "") -> list[str]:
    """Fields of /proc/PID/stat after the name: state, parent, group, session, ...; empty if there is no such process. of: a
    thread, as "task/NUMBER/"."""
    try:
        with open(f"/proc/{pid}/{of}stat") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def boot() -> str:
    """Identifies this start of the host: numbers and starts of processes are its own."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def group(number: int) -> list[int]:
    """Numbers of the processes of a process group; not those that have ended."""
    return [pid for pid in _numbers() if (f := _stat(pid)) and f[0] not in "ZX" and int(f[2]) == number]


def end_group(number: int) -> None:
    """Kills a process group, and what is below it in other groups."""
    below = descendants(*group(number))
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(number, signal.SIGKILL)
    end(below)


def become() -> None:
    """python -c "...become()" PARENT COMMAND...: becomes the command, which is killed when its parent dies."""
    die_with_parent()
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)
    os.execvp(sys.argv[2], sys.argv[2:])

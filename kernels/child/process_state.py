"""What the system keeps of this process: who it is, its limits, its signals, its timers and counters. All kernels share it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

Setting = tuple[str, Callable[[], Any], Callable[[Any], Any]]
"""(name, read, write)"""
GRANTED = ("Seccomp:", "Speculation", "THP_enabled")
IDENTITY = ("Uid:", "Gid:", "Groups:", "NoNewPrivs:", "Umask:", "CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:")
"""Beginnings of lines of /proc/thread-self/status."""
PR_GET_DUMPABLE, PR_SET_DUMPABLE = 3, 4
COUNTER, FAULTS = "[perf_event]", "userfaultfd"
"""Kinds of descriptors: how the system names what they are of."""
LIMITS = {name: getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
Range = tuple[int, int]
"""A soft and a hard limit."""


def settings() -> Iterator[Setting]:
    """Limits first: below some of them the other readings fail."""
    limits = {name: resource.getrlimit(number) for name, number in LIMITS.items()}
    yield "limits of the process", partial(_lowered, limits), lambda _: _put_back(limits)
    yield "permission to be read", _dumpable, _set_dumpable
    yield "users, groups and rights", partial(_status, IDENTITY), leave
    yield "session and process group", lambda: (os.getsid(0), os.getpgrp()), leave
    yield "root directory", _root, leave
    yield "blocked signals", _blocked, _block
    yield "timers of the system", _timers, leave
    yield "counters that may interrupt", partial(descriptors, COUNTER), leave
    yield "what the system grants", partial(_status, GRANTED), leave


def leave(before: Any) -> None:
    """The write function of what cannot be put back."""


def descriptors(of: str) -> int:
    """How many open descriptors are of this kind. 0 where the system does not list them."""
    found = 0
    with contextlib.suppress(OSError):
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # closed meanwhile
                found += of in os.readlink(f"/proc/self/fd/{number}")
    return found


def mapped(of: str) -> int:
    """How many mappings are of this kind: they outlive their descriptors. Takes 1 ms. 0 where the system lists none."""
    with contextlib.suppress(OSError), open("/proc/self/maps", "rb") as file:
        return file.read().count(of.encode())
    return 0


def _lowered(before: dict[str, Range]) -> frozenset[str]:
    """The limits that are lower than before, in words. A higher one takes nothing from anybody."""
    found = set()
    for name, of in before.items():
        now = resource.getrlimit(LIMITS[name])
        if any(_is_lower(one, was) for one, was in zip(now, of, strict=True)):
            found.add(f"{name} {_said(now, of)}")
    return frozenset(found)


def _is_lower(now: int, before: int) -> bool:
    return now != before and (before == resource.RLIM_INFINITY or -1 < now < before)


def _said(now: Range, before: Range) -> str:
    """The soft limit, or the hard one where only that is lower."""
    which = 0 if _is_lower(now[0], before[0]) else 1
    words = ["unlimited" if one[which] == resource.RLIM_INFINITY else str(one[which]) for one in (now, before)]
    return f"{words[0]} instead of {words[1]}"


def _put_back(before: dict[str, Range]) -> None:
    for name, (soft, hard) in before.items():
        if resource.getrlimit(LIMITS[name]) != (soft, hard):
            with contextlib.suppress(OSError, ValueError):  # only root may raise a hard one
                resource.setrlimit(LIMITS[name], (soft, hard))


def _status(lines: tuple[str, ...]) -> str:
    """Lines of this thread's status; empty where the system has none."""
    with contextlib.suppress(OSError), open("/proc/thread-self/status") as file:
        return ", ".join(" ".join(line.split()) for line in file if line.startswith(lines))
    return ""


def _dumpable() -> int:
    return int(ctypes.CDLL(None).prctl(PR_GET_DUMPABLE, 0, 0, 0, 0))


def _set_dumpable(before: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, before, 0, 0, 0)


def _root() -> tuple[int, int]:
    """(device, number) of the directory /."""
    found = os.stat("/")
    return found.st_dev, found.st_ino


def _blocked() -> str:
    """Signals that this thread does not receive, in words."""
    now = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    return ", ".join(getattr(one, "name", str(one)) for one in sorted(now)) or "none"


def _block(before: str) -> None:
    known = {one.name: int(one) for one in signal.Signals}
    numbers = [known.get(word) or int(word) for word in before.split(", ") if word != "none"]
    signal.pthread_sigmask(signal.SIG_SETMASK, numbers)


def _timers() -> int:
    """Timers of timer_create, which getitimer does not know. 0 where the system does not list them."""
    with contextlib.suppress(OSError), open("/proc/self/timers") as file:
        return sum(line.startswith("ID:") for line in file)
    return 0

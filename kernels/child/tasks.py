"""Threads, child processes and memory of the measuring process, from the operating system."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time

import torch

from kernels.host import processes

BUSY_SHARE = 0.25
"""CPU share above which an idle-phase thread or process is busy; runnable but starved counts, too."""
WINDOW_S = 0.02
COMPILERS = ("torch.", "triton.", "concurrent.futures.process")
"""Modules whose threads serve a compiler: they wait for its next use."""

Load = tuple[int, bool]
Task = tuple[str, int]


def loads() -> dict[Task, Load]:
    """CPU time in ns, and whether it is runnable, of the other threads of this process and of the processes below it,
    which stay there when the process that started them ends."""
    me, found = os.getpid(), {}
    for entry in os.listdir("/proc/self/task"):
        if int(entry) != me:
            found["thread", int(entry)] = _cpu_ns(int(entry), thread=True), _is_runnable(f"/proc/self/task/{entry}")
    for pid in processes.descendants(me):
        with contextlib.suppress(OSError):
            tasks = [f"/proc/{pid}/task/{task}" for task in os.listdir(f"/proc/{pid}/task")]
            found["process", pid] = _cpu_ns(pid, thread=False), any(map(_is_runnable, tasks))
    return found


def threads() -> list[int]:
    return [int(task) for task in os.listdir("/proc/self/task")]


def waiting_threads() -> set[int]:
    """Ids of Python's threads that are alive, apart from this one and from those of compilers."""
    here = threading.get_ident()
    return {
        thread.ident
        for thread in threading.enumerate()
        if thread.ident not in (None, here) and not _of_compiler(thread)
    }


def _of_compiler(thread: threading.Thread) -> bool:
    target = getattr(thread, "_target", None) or type(thread)
    return str(getattr(target, "__module__", "")).startswith(COMPILERS)


def is_busy(before: Load, after: Load) -> bool:
    (cpu_ns, wanted), (cpu_ns_after, wants) = before, after
    return cpu_ns_after - cpu_ns > BUSY_SHARE * WINDOW_S * 1e9 or (wanted and wants)


def _is_runnable(task: str) -> bool:
    """Whether a thread (by its folder in /proc) runs or waits for a core; False if it has ended."""
    try:
        with open(f"{task}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "R"
    except OSError:
        return False


def _cpu_ns(number: int, thread: bool) -> int:
    """CPU time of a thread or process, from the operating system; 0 if unknown."""
    try:
        return time.clock_gettime_ns((~number << 3) | (6 if thread else 2))
    except OSError:
        return 0


class _Mallinfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


def memory_in_use(kind: str) -> int | None:
    """Exact bytes allocated and not freed; None if the C library does not report it."""
    if kind == "cuda":
        return torch.cuda.memory_allocated()
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return None
    mallinfo.restype = _Mallinfo
    info = mallinfo()
    return info.uordblks + info.hblkhd

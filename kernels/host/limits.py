"""Limits of a foreign kernel's processes: by each process, and by a control group of all of them where the host allows it."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
from pathlib import Path

from kernels.host.processes import is_alive_number

GIB = 2**30
MEMORY_SHARE = 0.8
"""Of the host's memory."""
FILE_BYTES = 4 * GIB
OPEN_FILES = 4096
LEAST_PROCESSES, PROCESSES_PER_CPU = 1024, 64
"""Threads count, too."""
CPU_HOURS = 1
"""Of all of the host's processors."""
SCRATCH_BYTES, SCRATCH_SHARE, SCRATCH_FILES = 2 * GIB, 0.125, 100_000
OUTPUT_BYTES = 256 * 2**20
"""What it may print."""
CONTROL_GROUPS = Path("/sys/fs/cgroup")
PREFIX = "benchsite-cell-"


def memory_bytes() -> int:
    """What all of its processes may take together."""
    return int(host_memory_bytes() * MEMORY_SHARE)


def host_memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def scratch_bytes() -> int:
    """The scratch folder is in memory."""
    return min(SCRATCH_BYTES, int(host_memory_bytes() * SCRATCH_SHARE))


def processes() -> int:
    return max(LEAST_PROCESSES, PROCESSES_PER_CPU * (os.cpu_count() or 1))


def of_each_process(kind: str) -> None:
    """Sets limits that no later program of this process can raise. kind: of its device; CUDA reserves address space, so
    there a process's own memory has no limit."""
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, FILE_BYTES)
    _lower(resource.RLIMIT_NOFILE, OPEN_FILES)
    _lower(resource.RLIMIT_NPROC, processes())
    _lower(resource.RLIMIT_CPU, CPU_HOURS * 3600 * (os.cpu_count() or 1))
    if kind == "cpu":
        _lower(resource.RLIMIT_DATA, memory_bytes())
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # if memory runs out, it ends first


def _lower(which: int, most: int) -> None:
    hard = resource.getrlimit(which)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (most, most))


# --- a control group --------------------------------------------------------------------------------------------------

VERSION_1 = {"memory": "memory.limit_in_bytes", "pids": "pids.max"}


def new_groups(name: str) -> list[str]:
    """Control groups for one cell, with its limits; those that this process may make. name: new on this host."""
    _remove_abandoned()
    wanted = {"memory": memory_bytes(), "pids": processes()}
    found = []
    for controller, parent in _parents().items():
        folder = parent / f"{PREFIX}{os.getpid()}-{name}"
        files = VERSION_1 if controller else {"memory": "memory.max", "pids": "pids.max"}
        mine = {controller: files[controller]} if controller else files
        try:
            folder.mkdir()
            for kind, file in mine.items():
                (folder / file).write_text(str(wanted[kind]))
        except OSError:
            with contextlib.suppress(OSError):
                folder.rmdir()
        else:
            found.append(str(folder))
    return found


def join(folders: list[str]) -> None:
    """Moves this process, and all that it will start, into the groups. Raises OSError, also if there is none for memory."""
    if not any((Path(folder) / file).exists() for folder in folders for file in ("memory.max", VERSION_1["memory"])):
        raise OSError(errno.EPERM, "the agent may make no control group")
    for folder in folders:
        (Path(folder) / "cgroup.procs").write_text(str(os.getpid()))


def ran_out_of_memory(folders: list[str]) -> bool:
    """Whether the kernel ended a process of these groups for its memory."""
    for folder in folders:
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError):
                lines = (Path(folder) / name).read_text().splitlines()
                if any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in lines):
                    return True
    return False


def remove(folders: list[str]) -> None:
    """Removes groups whose processes have ended."""
    for folder in folders:
        with contextlib.suppress(OSError):
            pids = map(int, (Path(folder) / "cgroup.procs").read_text().split())
            processes_of_this_view = [pid for pid in pids if pid > 0]  # 0: of another container
            for pid in processes_of_this_view:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _parents() -> dict[str, Path]:
    """Controller -> where a group may be made; "" for version 2, where a group beside this process's has all."""
    found = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            beside = CONTROL_GROUPS / path.lstrip("/")
            beside = beside if path == "/" else beside.parent
            if (beside / "cgroup.subtree_control").exists():
                found[""] = beside
        for controller in controllers.split(","):
            if controller in VERSION_1:
                found[controller] = CONTROL_GROUPS / controller / path.lstrip("/")
    return found


def _remove_abandoned() -> None:
    """Of owners that were killed."""
    for parent in _parents().values():
        for folder in parent.glob(f"{PREFIX}*"):
            owner = folder.name.removeprefix(PREFIX).partition("-")[0]
            if owner.isdecimal() and not is_alive_number(int(owner)):
                remove([str(folder)])

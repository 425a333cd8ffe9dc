"""The airlock: takes from itself what a foreign kernel does not need, then becomes another program.

`python -m kernels.host.airlock SPEC`, SPEC is a `Spec` as JSON. It runs trusted code only, and needs root for most
steps. What the host does not allow is left out, and the `Facts` say so.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel

NEW_MOUNTS, NEW_IPC, NEW_PIDS, NEW_NETWORK = 0x00020000, 0x08000000, 0x20000000, 0x40000000
"""Flags of unshare(2)."""
MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 4096, 8192, 16384, 1 << 18
"""Flags of mount(2)."""
MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, READ_ONLY = 442, -100, 0x8000, 1
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38

libc = ctypes.CDLL(None, use_errno=True)


class Spec(BaseModel):
    """What to take away, and what to run."""

    command: list[str]
    scratch: str
    """The only folder that stays writable."""
    readable: list[str] = []
    """Files and folders that the command must be able to read."""
    uid: int | None = None
    """The user to become; None: stay the same one."""
    facts_fd: int
    """Where the facts are written, as one line of JSON."""
    own_pids: bool = True
    """False: stay among the host's processes, if CUDA memory cannot be shared otherwise."""


class Facts(BaseModel):
    """What was taken away."""

    pid: int = 0
    """Of the command, as the host counts."""
    own_user: bool = False
    no_network: bool = False
    own_pids: bool = False
    """It sees no other process, and what it starts ends with it."""
    read_only: bool = False
    """It can write into its scratch folder only."""
    missing: list[str] = []
    """What the host did not allow, with the reason."""


def main() -> None:
    spec, facts = Spec.model_validate_json(sys.argv[1]), Facts()
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.umask(0o022)  # the command's user must be able to enter the folders that are made here
    facts.no_network = _try(facts, "no network", lambda: _unshare(NEW_NETWORK))
    _try(facts, "own shared memory", lambda: _unshare(NEW_IPC))
    facts.read_only = _try(facts, "read-only files", lambda: _close_files(spec))
    facts.own_pids = spec.own_pids and _try(facts, "own process ids", lambda: _unshare(NEW_PIDS))
    if facts.own_pids and (pid := os.fork()):
        _wait_for(pid)
    facts.pid = int(os.readlink("/proc/self"))
    if facts.own_pids and facts.read_only:
        _try(facts, "own /proc", lambda: _mount(b"proc", b"/proc", b"proc", 0))
    elif facts.read_only:
        _try(facts, "own /proc", lambda: _set_read_only("/proc", False, 0))  # CUDA writes there
    facts.own_user = spec.uid is not None and _try(facts, "own user", lambda: _become(spec, facts.read_only))
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user has cleared it
    os.write(spec.facts_fd, facts.model_dump_json().encode() + b"\n")
    os.close(spec.facts_fd)
    os.chdir(spec.scratch)
    os.execv(spec.command[0], spec.command)


def _try(facts: Facts, what: str, step: Callable[[], None]) -> bool:
    try:
        step()
        return True
    except OSError as error:
        facts.missing.append(f"{what}: {error.strerror}")
        return False


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _unshare(flag: int) -> None:
    _check(libc.unshare(flag))


def _mount(source: bytes, target: bytes, kind: bytes | None, flags: int, data: bytes | None = None) -> None:
    _check(libc.mount(source, target, kind, ctypes.c_ulong(flags), data))


def _close_files(spec: Spec) -> None:
    """Makes all files read-only except the scratch folder, in this process's own view."""
    _unshare(NEW_MOUNTS)
    _mount(b"none", b"/", None, MS_REC | MS_PRIVATE)
    scratch = os.path.realpath(spec.scratch)
    if spec.uid is not None:
        for folder, inside in closed_folders([*spec.readable, scratch]).items():
            _open_only(folder, inside)
    _mount(scratch.encode(), scratch.encode(), None, MS_BIND)
    _set_read_only("/", True, AT_RECURSIVE)
    _set_read_only(scratch, False, 0)


def closed_folders(paths: list[str]) -> dict[str, list[str]]:
    """Folders that other users cannot enter -> those of the paths that lie inside."""
    found: dict[str, list[str]] = {}
    for path in sorted({os.path.realpath(path) for path in paths if os.path.exists(path)}):
        for folder in reversed(Path(path).parents):
            if not folder.stat().st_mode & 1:
                known = found.setdefault(str(folder), [])
                if not any(path == other or path.startswith(f"{other}/") for other in known):
                    known.append(path)
                break
    return found


def _open_only(folder: str, inside: list[str]) -> None:
    """Replaces a folder by one that everybody may enter, with nothing but these paths in it."""
    held = [os.open(path, os.O_PATH) for path in inside]
    kinds = [os.path.isdir(path) for path in inside]
    _mount(b"tmpfs", folder.encode(), b"tmpfs", 0, b"mode=755")
    for path, fd, is_folder in zip(inside, held, kinds, strict=True):
        os.makedirs(path if is_folder else os.path.dirname(path), exist_ok=True)
        if not is_folder:
            Path(path).touch()
        _mount(f"/proc/self/fd/{fd}".encode(), path.encode(), None, MS_BIND | MS_REC)
        os.close(fd)


def _set_read_only(path: str, read_only: bool, flags: int) -> None:
    attributes = struct.pack("QQQQ", READ_ONLY * read_only, READ_ONLY * (not read_only), 0, 0)
    _check(libc.syscall(MOUNT_SETATTR, AT_FDCWD, path.encode(), flags, attributes, len(attributes)))


def _become(spec: Spec, folders_are_open: bool) -> None:
    uid = spec.uid or 0
    if not folders_are_open and (closed := closed_folders([*spec.readable, spec.scratch])):
        raise OSError(errno.EACCES, f"other users cannot enter {next(iter(closed))}")
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _wait_for(pid: int) -> None:
    """Ends as the command ends. The kernel ends everything that the command has started."""
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with contextlib.suppress(OSError):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()

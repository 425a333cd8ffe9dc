"""Rights of a process: its user, and its capabilities."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from pathlib import Path

from kernels.host.system import check, libc
from kernels.host.view import closed_folders

ROOT = 0
CAP_SYS_ADMIN, CAP_LAST_POSSIBLE = 21, 63
CAPABILITY_VERSION_3 = 0x20080522
PR_CAPBSET_DROP, PR_SET_SECUREBITS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 24, 28, 47, 4
NO_RIGHTS_FOR_ROOT = 0b101111
"""Securebits NOROOT and NO_SETUID_FIXUP, each locked, and no ambient ones."""


def may_mount() -> bool:
    """Whether this process has the right to make namespaces and to mount."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> CAP_SYS_ADMIN & 1)
    return False


def name_myself(uid: int, gid: int) -> None:
    """In a new user namespace: this user is who it was."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")


def become(uid: int, paths: list[str]) -> None:
    """Becomes a user of its own. paths: what it must be able to enter."""
    if closed := closed_folders(paths):
        raise OSError(errno.EACCES, f"other users cannot enter {next(iter(closed))}")
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def give_up() -> None:
    """Gives up all capabilities, also those that root would get back from a program."""
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    libc.prctl(PR_SET_SECUREBITS, NO_RIGHTS_FOR_ROOT, 0, 0, 0)
    for number in range(CAP_LAST_POSSIBLE + 1):
        libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    header = struct.pack("Ii", CAPABILITY_VERSION_3, 0)
    check(libc.capset(header, ctypes.create_string_buffer(24)))

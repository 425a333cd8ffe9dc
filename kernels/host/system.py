"""Calls of Linux that Python has no function for: unshare, mount, mount_setattr. All raise OSError."""

from __future__ import annotations

import ctypes
import os
import struct

NEW_MOUNTS, NEW_IPC, NEW_USERS, NEW_PIDS, NEW_NETWORK = 0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
"""Flags of unshare(2)."""
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
"""Flags of mount(2)."""
MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, READ_ONLY = 442, -100, 0x8000, 1

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def unshare(flag: int) -> None:
    check(libc.unshare(flag))


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    kind_bytes = None if kind is None else kind.encode()
    check(libc.mount(source.encode(), target.encode(), kind_bytes, ctypes.c_ulong(flags), data.encode() or None))


def set_read_only(path: str, read_only: bool, flags: int = 0) -> None:
    """Of a mount; with AT_RECURSIVE, of all below it, too."""
    attributes = struct.pack("QQQQ", READ_ONLY * read_only, READ_ONLY * (not read_only), 0, 0)
    check(libc.syscall(MOUNT_SETATTR, AT_FDCWD, path.encode(), flags, attributes, len(attributes)))

"""Scratch folders of measuring processes. One whose owner has died is removed by the next, with what still runs in it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

from kernels.host import processes

PREFIX, LOCK = "benchsite-", ".owner"
ROUNDS = 20
SHARED_VARIABLE = "BENCHSITE_TMP"


def shared_folder() -> str:
    """The folder of what all processes of a host share: locks of devices, scratch folders. Every user reaches it."""
    return os.environ.get(SHARED_VARIABLE) or tempfile.gettempdir()


class Scratch:
    """A folder in the shared folder, with a lock that ends with its owner."""

    def __init__(self) -> None:
        remove_abandoned()
        self.path = tempfile.mkdtemp(prefix=PREFIX, dir=shared_folder())
        try:
            self._lock = os.open(f"{self.path}/.new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:  # the disk is full; without a lock nobody would remove the folder
            os.rmdir(self.path)
            raise
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.rename(f"{self.path}/.new", f"{self.path}/{LOCK}")  # nobody sees it unlocked while its owner lives

    def remove(self) -> None:
        """Ends what was started in it, whatever session it is in; then removes it."""
        end_all_of(self.path)
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._lock)


def given(folder: str, uid: int | None) -> int | None:
    """Gives a folder to a user. Returns the user, or None if there is none: a user namespace knows some users only."""
    if uid is None:
        return None
    try:
        os.chown(folder, uid, uid)
    except OSError:
        return None
    return uid


def end_all_of(folder: str) -> None:
    """Kills the processes whose TMPDIR is this folder: the measuring process passes it on to all that it starts."""
    for _ in range(ROUNDS):  # one may start another meanwhile
        if not (found := processes.with_environment(f"TMPDIR={folder}")):
            break
        processes.end(found)
        time.sleep(0.01)


def remove_abandoned() -> None:
    """Removes the scratch folders of owners that were killed."""
    for lock in Path(shared_folder()).glob(f"{PREFIX}*/{LOCK}"):
        with contextlib.suppress(OSError):
            descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                end_all_of(str(lock.parent))
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(descriptor)

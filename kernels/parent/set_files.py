"""Files of input sets on a CPU: memory that the trusted process and a cell both map."""

from __future__ import annotations

import fcntl
import os

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
"""A cell cannot take the memory of its input sets away while others use it."""
FIRST_FILE = 256
"""Files of input sets have at least this number: a forked process has no other of such a number."""


def new_file() -> int:
    """An empty one: its descriptor."""
    made = os.memfd_create("input-sets", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    try:
        return fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, FIRST_FILE)
    finally:
        os.close(made)


def sized(file: int, nbytes: int) -> tuple[str, str]:
    """Makes a file as large as it stays: its path for the trusted process, and for the process that inherits it."""
    os.ftruncate(file, nbytes)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, SEALS)
    return f"/proc/{os.getpid()}/fd/{file}", f"/proc/self/fd/{file}"

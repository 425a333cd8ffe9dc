"""Files of results: whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


def is_replaceable(path: Path) -> bool:
    """Whether another file can take the path's place: it is a regular file, or missing. A pipe or a terminal cannot."""
    return not path.exists() or path.is_file()


def replace_file(path: Path, text: str) -> None:
    """Writes a file beside the path, then renames it: a reader, or a crash, finds the old content or the new.

    A link is followed. What is no regular file is written to directly. Raises OSError.
    """
    if not is_replaceable(path):
        path.write_text(text)
        return
    path = path.resolve()
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(beside, "w") as file:
            if path.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    _sync(path.parent)


def _sync(folder: Path) -> None:
    """Makes a rename last. Some file systems cannot."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

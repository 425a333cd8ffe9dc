"""The files that a foreign kernel sees: the system, what it must be able to read, and an empty scratch folder.

Folders of people, of the site and of other runs are not there. This changes the view of the calling process only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from kernels.host.limits import SCRATCH_FILES, scratch_bytes
from kernels.host.system import (
    AT_RECURSIVE,
    MS_BIND,
    MS_NODEV,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    NEW_MOUNTS,
    mount,
    set_read_only,
    unshare,
)  # fmt: skip

SYSTEM = frozenset(
    ("bin", "boot", "dev", "etc", "gnu", "lib", "lib32", "lib64", "libx32", "nix", "opt", "proc", "sbin", "sys", "usr")
)
"""Folders below / that stay. All others hold files of people and services."""
SETTINGS = "/etc/benchsite"
SHARED_MEMORY = "/dev/shm"
MOST_LINKS = 40


def close(readable: list[str], hidden: list[str], scratch: str) -> None:
    """Shows only the system and what is readable, and makes all of it read-only."""
    unshare(NEW_MOUNTS)
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    os.chdir("/")  # not in a folder that is replaced
    readable = [path for path in [*readable, scratch] if os.path.isabs(path) and os.path.exists(path)]
    links = [link for path in readable for link in links_of(path)]
    real = [os.path.realpath(path) for path in readable]
    shown, secret = outermost(real), [os.path.realpath(path) for path in [SETTINGS, *hidden]]
    replaced = outermost([*_hidden_folders(secret, shown), *closed_folders(shown)])
    for folder in replaced:
        _show_only(folder, [path for path in shown if is_below(path, folder)])
    for path in secret:  # single files, and what lies inside of what is shown
        if path not in replaced and path not in real and os.path.exists(path):
            _hide(path, [other for other in real if is_below(other, path)])
    for place, target in links:
        if not os.path.lexists(place):
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.symlink(target, place)
    mount(scratch, scratch, None, MS_BIND)  # so that it can be made writable alone
    set_read_only("/", True, AT_RECURSIVE)


def _hidden_folders(hidden: list[str], shown: list[str]) -> list[str]:
    """What is replaced: folders below / that are not the system's, and hidden ones elsewhere."""
    of_people = [entry.path for entry in os.scandir("/") if entry.is_dir(follow_symlinks=False)]
    of_people = [path for path in of_people if os.path.basename(path) not in SYSTEM]
    found = [*of_people, *(path for path in hidden if os.path.isdir(path))]
    return [path for path in found if path not in shown and not any(is_below(path, other) for other in shown)]


def limit_scratch(scratch: str, uid: int | None) -> None:
    """Mounts an empty folder in memory, with a limit, for scratch files and one for shared memory."""
    owner = "" if uid is None else f",uid={uid},gid={uid}"
    for place in (scratch, SHARED_MEMORY):
        if os.path.isdir(place):
            options = f"mode=700,size={scratch_bytes()},nr_inodes={SCRATCH_FILES}{owner}"
            mount("tmpfs", place, "tmpfs", MS_NOSUID | MS_NODEV, options)


def open_scratch(scratch: str) -> None:
    """Lets it write into its scratch folder as it is."""
    set_read_only(scratch, False)


def new_proc() -> None:
    mount("proc", "/proc", "proc", 0)


def open_proc() -> None:
    set_read_only("/proc", False)


# --- paths ------------------------------------------------------------------------------------------------------------


def is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def outermost(paths: Iterable[str]) -> list[str]:
    """Those of the paths that lie in no other, sorted."""
    found: list[str] = []
    for path in sorted(set(paths)):
        if not any(is_below(path, other) for other in found):
            found.append(path)
    return found


def links_of(path: str) -> list[tuple[str, str]]:
    """The symbolic links on the way to a path: (where it lies, what it says)."""
    found: list[tuple[str, str]] = []
    here, parts = "/", Path(os.path.abspath(path)).parts[1:]
    while parts and len(found) < MOST_LINKS:
        place, parts = os.path.join(here, parts[0]), parts[1:]
        if os.path.islink(place):
            target = os.readlink(place)
            found.append((place, target))
            parts = (*Path(os.path.normpath(os.path.join(here, target))).parts[1:], *parts)
            here = "/"
        else:
            here = place
    return found


def closed_folders(paths: list[str]) -> dict[str, list[str]]:
    """Folders that other users cannot enter -> those of the paths that lie inside."""
    found: dict[str, list[str]] = {}
    for path in outermost(os.path.realpath(path) for path in paths if os.path.exists(path)):
        for folder in reversed(Path(path).parents):
            if not folder.stat().st_mode & 1:
                found.setdefault(str(folder), []).append(path)
                break
    return found


def _show_only(folder: str, inside: list[str]) -> None:
    """Replaces a folder by one that everybody may enter, with nothing but these paths in it."""
    held = [os.open(path, os.O_PATH) for path in inside]
    kinds = [os.path.isdir(path) for path in inside]
    mount("tmpfs", folder, "tmpfs", 0, "mode=755,size=1m")
    for path, fd, is_folder in zip(inside, held, kinds, strict=True):
        os.makedirs(path if is_folder else os.path.dirname(path), exist_ok=True)
        if not is_folder:
            Path(path).touch()
        mount(f"/proc/self/fd/{fd}", path, None, MS_BIND | MS_REC)
        os.close(fd)


def _hide(path: str, inside: list[str]) -> None:
    if os.path.isdir(path):
        _show_only(path, outermost(inside))
    elif os.path.exists(path):
        mount("/dev/null", path, None, MS_BIND)

"""A submission: the files of one kernel, which travel with a run to any agent.

Files are read, not run: which kernel they declare is in their syntax tree. The kernel is called name@VERSION, where the
version comes from the contents of all files: results of different sources never have the same name.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ConfigDict, model_validator

from kernels.catalog import AT, READERS, SUBMITTED_VARIABLE, KernelInfo, declared_in
from kernels.git_source import GitSource

MAX_BYTES = 1_000_000
"""Of all files together, as UTF-8."""
MAX_FILES = 50
LONGEST_FILE_NAME = 100
FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*){0,3}")
"""A file's name, relative to the folder of its kernel."""
VERSION_DIGITS = 10


class Unreadable(ValueError):
    """Files that are no submission. The message says why, and what to do."""


def checked_files(files: dict[str, str]) -> dict[str, str]:
    """The files, sorted by name. Raises Unreadable."""
    if not files:
        raise Unreadable("there is no file")
    if len(files) > MAX_FILES:
        raise Unreadable(f"there are {len(files)} files; at most {MAX_FILES} are taken")
    for name, text in files.items():
        if len(name) > LONGEST_FILE_NAME or not FILE_NAME.fullmatch(name):
            raise Unreadable(f"the file name {name[:120]!r} is not valid: use letters, digits and ._-")
        if "\x00" in text:
            raise Unreadable(f"{name} is not text")
    if (size := sum(len(text.encode("utf-8", "surrogatepass")) for text in files.values())) > MAX_BYTES:
        raise Unreadable(f"the files have {size:,} bytes together; the limit is {MAX_BYTES:,}")
    return dict(sorted(files.items()))


def kernel_of(files: dict[str, str]) -> KernelInfo:
    """The kernel that the files declare, with its name as declared. Raises Unreadable if that is not one."""
    found: list[KernelInfo] = []
    for name, text in checked_files(files).items():
        if PurePosixPath(name).suffix in READERS and "/" not in name:
            try:
                found += declared_in(Path(name), text.encode())
            except Exception as error:  # whatever a parser raises of a text
                raise Unreadable(f"{name} cannot be read: {error}") from None
    if not found:
        raise Unreadable(
            f'no file declares a kernel: a .py file needs a function under @kernel("attention", backend="triton"), '
            f"or a bare function whose arguments are those of an operation, such as softmax(x); "
            f'a .cu file needs a comment // @kernel("attention"); there {"is" if len(files) == 1 else "are"} {", ".join(files)}'
        )
    if len(found) > 1:
        names = ", ".join(info.full_name for info in found)
        raise Unreadable(f"the files declare {len(found)} kernels ({names}); submit each on its own")
    return found[0]


def version_of(files: dict[str, str]) -> str:
    """SHA-256 of names and contents of the files."""
    canonical = json.dumps(sorted(files.items()), separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


class Submission(BaseModel):
    """One kernel with its files."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    operation: str
    files: dict[str, str] = {}
    """Name -> text; empty if they lie in a repository."""
    git: GitSource | None = None
    """Where the agent fetches the files."""

    @model_validator(mode="after")
    def are_valid(self) -> Submission:
        if self.git is None:
            checked_files(self.files)
        elif self.files:
            raise ValueError("the files of a submission come with it or from a repository, not both")
        return self

    @cached_property
    def sha256(self) -> str:
        """Of the files; of those in a repository, of where they lie."""
        return self.git.sha256 if self.git else version_of(self.files)

    @property
    def version(self) -> str:
        """The digits of its sha256 that its kernel's name ends with."""
        return self.sha256[:VERSION_DIGITS]

    def write(self, folder: Path, files: dict[str, str] | None = None) -> None:
        """Writes the files, or those that were fetched for it, where `reading` finds them. Everybody who knows the folder may
        read them: a kernel may have a user of its own."""
        place = folder / self.version / self.operation
        for name, text in (self.files if files is None else files).items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")
            path.chmod(0o644)
        for each in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
            each.chmod(0o755)


def is_submitted(kernel: str) -> bool:
    """Whether a kernel's name is that of a submission."""
    return AT in kernel


class reading:
    """While it is entered, this process and those that it starts know the kernels of these submissions."""

    def __init__(
        self, folder: Path, submissions: list[Submission], fetched: Mapping[str, dict[str, str]] | None = None
    ) -> None:
        """folder: new, and of this measurement only. fetched: files that lie in repositories, by version."""
        self.folder, self.submissions, self.fetched = folder, submissions, fetched or {}

    def __enter__(self) -> None:
        for one in self.submissions:
            one.write(self.folder, self.fetched.get(one.version))
        os.environ[SUBMITTED_VARIABLE] = str(self.folder)

    def __exit__(self, *error: object) -> None:
        del os.environ[SUBMITTED_VARIABLE]

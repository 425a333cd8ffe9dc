"""A submission without a declaration: the same files with the declaration that they need, or why there is none."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from kernels.formats import bare
from kernels.formats.bringing import Brought, pair_in
from kernels.kernel_files import DECORATORS
from kernels.submission import Unreadable, checked_files

PERF_REPORT = re.compile(r"^\s*@\S*\bperf_report\b", re.M)


def read(files: dict[str, str]) -> Brought:
    """The files of a kernel, with the declaration that they may lack; and of the problem that came with it, if one did.
    Raises Unreadable."""
    files = checked_files(files)
    if _declares(files):
        if _has_pair({name: text for name, text in files.items() if not _declares({name: text})}):
            raise Unreadable("one file declares a kernel, others are a kernel with its problem: submit them separately")
        return Brought({}, files)
    return pair_in(files) or Brought({}, with_declaration(files))


def _declares(files: dict[str, str]) -> bool:
    return any(f"@{name}" in text for text in _kernels(files).values() for name in DECORATORS)


def _has_pair(files: dict[str, str]) -> bool:
    try:
        return pair_in(files) is not None
    except Unreadable:
        return False


def _kernels(files: dict[str, str]) -> dict[str, str]:
    return {n: t for n, t in files.items() if PurePosixPath(n).suffix in (".py", ".cu") and "/" not in n}


def with_declaration(files: dict[str, str]) -> dict[str, str]:
    """The files; where none declares a kernel, and one has a function with the arguments of an operation, with the
    declaration added to it. Raises Unreadable."""
    files = checked_files(files)
    kernels = _kernels(files)
    if _declares(files):
        return files
    if reports := [name for name, text in kernels.items() if PERF_REPORT.search(text)]:
        raise Unreadable(
            f"{reports[0]} times its kernels by triton.testing.perf_report: `python -m kernels try {reports[0]}` compares them; "
            "to submit one, give a file with @kernel, or with one function that has the arguments of an operation"
        )
    found = {}
    for name, text in kernels.items():
        try:
            hints = PurePosixPath(name).stem
            one = bare.adapted_cuda(text, hints) if name.endswith(".cu") else bare.adapted_python(text, hints)
        except SyntaxError as error:
            raise Unreadable(f"{name} cannot be read: line {error.lineno}: {error.msg}") from None
        except (bare.NotAdapted, RecursionError, ValueError) as error:
            raise Unreadable(f"{name} cannot be read: {error}") from None
        if one:
            found[name] = one.text
    if len(found) > 1:
        raise Unreadable(f"{' and '.join(found)} may each be the kernel: put @kernel above one")
    return files | found

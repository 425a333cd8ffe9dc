"""A submission without a declaration: the same files with the declaration that they need, or why there is none."""

from __future__ import annotations

import ast
from pathlib import PurePosixPath

from kernels.formats import bare
from kernels.kernel_files import parsed
from kernels.submission import Unreadable, checked_files

ELSEWHERE = {
    "ModelNew": "KernelBench",
    "custom_kernel": "GPU MODE",
}
"""Names of formats that are workloads of their own."""


def with_declaration(files: dict[str, str]) -> dict[str, str]:
    """The files; where none declares a kernel, and one has a function with the arguments of an operation, with the
    declaration added to it. Raises Unreadable."""
    files = checked_files(files)
    kernels = {n: t for n, t in files.items() if PurePosixPath(n).suffix in (".py", ".cu") and "/" not in n}
    if any("@kernel" in text for text in kernels.values()):
        return files
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
        elif name.endswith(".py"):
            _refuse_other_formats(name, text)
    if len(found) > 1:
        raise Unreadable(f"{' and '.join(found)} may each be the kernel: put @kernel above one")
    return files | found


def _refuse_other_formats(name: str, text: str) -> None:
    for node in parsed(text).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name in ELSEWHERE:
            raise Unreadable(
                f"{name} is a kernel of {ELSEWHERE[node.name]}: that is a workload of its own, which the site does not have "
                "yet; `python -m kernels try` checks it on your machine"
            )

"""Kernels to start from: for each operation and backend, a file that works, under a name of one's own.

They are the shipped kernels of that backend, so the tests of these keep them correct.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernels.catalog import OPERATIONS_DIR, get_operation, operations

BACKENDS = {"pytorch": "eager.py", "triton": "triton_*.py", "cuda": "cuda_*.cu"}
"""Backend -> the file of each operation that a kernel of it starts from."""
DECORATOR = {".py": re.compile(r'^@kernel\(\s*"\w+",', re.M), ".cu": re.compile(r'^// @kernel\("\w+",?', re.M)}
FILE_NAME, KERNEL_NAME = "my_kernel", "my-kernel"


@dataclass(frozen=True)
class Start:
    """One file to start from."""

    operation: str
    backend: str
    file_name: str
    text: str

    @property
    def key(self) -> str:
        return f"{self.operation}/{self.backend}"


def starts(operation: str | None = None) -> Iterator[Start]:
    """All of them, or those of an operation."""
    for name in [operation] if operation else operations():
        for backend, pattern in BACKENDS.items():
            if found := sorted((OPERATIONS_DIR / name).glob(pattern)):
                yield _start(name, backend, found[0])


def start(key: str) -> Start | None:
    """That of "operation/backend"; None if there is none."""
    operation, _, backend = key.partition("/")
    return next((s for s in starts(operation) if s.backend == backend), None) if operation in operations() else None


def _start(operation: str, backend: str, path: Path) -> Start:
    """The shipped file, with a name of its own, and with what the operation gives and expects in its first lines."""
    sign = "//" if path.suffix == ".cu" else "#"
    text = DECORATOR[path.suffix].sub(
        lambda found: f'{found[0].rstrip(",")}, name="{KERNEL_NAME}",', path.read_text(), 1
    )
    lines = "\n".join(f"{sign} {line}" for line in signature(operation))
    blank = "\n//\n" if sign == "//" else "\n"
    return Start(operation, backend, f"{FILE_NAME}{path.suffix}", f"{lines}{blank}{text}")


def signature(operation: str) -> list[str]:
    """How a kernel of the operation is called, and what its tensors are."""
    of = get_operation(operation)
    options = ["*", *of.options] if of.options else []
    shapes = "; ".join(f"{name} ({', '.join(sizes)})" for name, sizes in of.tensors.items())
    return [f"{operation}({', '.join([*of.tensors, *options])})", f"Contiguous tensors: {shapes}"]

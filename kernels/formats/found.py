"""What a file was recognised as."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

DECORATED, BARE, CUDA_FILE, KERNELBENCH, GPU_MODE, PERF_REPORT, FLASHINFER = FORMATS = (
    "@kernel",
    "bare function",
    "CUDA function",
    "KernelBench",
    "GPU MODE",
    "perf_report",
    "flashinfer",
)


@dataclass(frozen=True)
class Found:
    """One kernel in a file, in one of FORMATS."""

    format: str
    path: str
    name: str
    """Of the function, class or solution."""
    operation: str = ""
    """Of a kernel for one of the operations here; empty for a workload of its own."""
    problem: str = ""
    """The file with the reference: of KernelBench, GPU MODE (the folder) and flashinfer."""
    more: dict[str, Any] = field(default_factory=dict)
    """What the loader of the format needs beside that."""
    why_not: str = ""
    """Why it cannot be loaded, as a sentence; empty if it may."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

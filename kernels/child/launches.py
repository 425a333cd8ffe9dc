"""What Triton reports of the kernels that a call launches."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def launched() -> Iterator[set[int]]:
    """Handles of the Triton kernels that are launched inside; none where Triton is not in use.

    What torch.compile launches through launchers of its own is not seen.
    """
    handles: set[int] = set()
    knobs: Any = getattr(sys.modules.get("triton"), "knobs", None)
    if knobs is None:
        yield handles
        return

    def note(metadata: Any) -> None:
        handles.add(metadata.get()["function"])

    knobs.runtime.launch_enter_hook.add(note)
    try:
        yield handles
    finally:
        knobs.runtime.launch_enter_hook.remove(note)


def facts(handles: set[int]) -> dict[str, int]:
    """{"registers": of a thread, "spills": of a thread, in 4 bytes} of the kernel with the most; empty without a kernel."""
    if not handles:
        return {}
    from triton.compiler import CompiledKernel

    found = [one for one in gc.get_objects() if type(one) is CompiledKernel and one.function in handles]
    if not found:
        return {}
    return {"registers": max(one.n_regs for one in found), "spills": max(one.n_spills for one in found)}

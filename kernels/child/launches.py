"""What a second call needs: its memory, and Triton's report on the kernels that it launches."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch


def second_call(call: Callable[[], Any], clock: Any) -> dict[str, Any]:
    """{"peak_memory_bytes": without inputs; None on a CPU, ...} with the facts of its kernels."""
    if clock.kind != "cuda":
        return {"peak_memory_bytes": None}
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    with launched() as handles:
        call()
    clock.synchronize()
    return {"peak_memory_bytes": torch.cuda.max_memory_allocated() - before} | facts(handles)


@contextmanager
def launched() -> Iterator[set[int]]:
    """Handles of the Triton kernels launched inside the block; empty without Triton.

    Kernels of torch.compile with its own launchers are missing.
    """
    handles: set[int] = set()
    knobs: Any = getattr(sys.modules.get("triton"), "knobs", None)
    if knobs is None:
        yield handles
        return

    def note(metadata: Any) -> None:
        with suppress(Exception):  # a kernel must not fail because it is looked at
            handles.add(metadata.data["function"])

    knobs.runtime.launch_enter_hook.add(note)
    try:
        yield handles
    finally:
        knobs.runtime.launch_enter_hook.remove(note)


def facts(handles: set[int]) -> dict[str, int]:
    """{"registers", "spills" (in 4 bytes)} per thread, each the maximum over the kernels; empty without a kernel."""
    if not handles:
        return {}
    from triton.compiler import CompiledKernel

    found = [one for one in gc.get_objects() if type(one) is CompiledKernel and one.function in handles]
    if not found:
        return {}
    return {"registers": max(one.n_regs for one in found), "spills": max(one.n_spills for one in found)}

"""What a second call shows: its memory, and the kernels that it launches, of those that Triton or NVRTC compiled."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch

from kernels.analysis.occupancy import WARP, occupancy
from kernels.nvrtc import kernel as cuda_files

Grids = dict[int, tuple[int, ...]]
"""Handle of a launched kernel -> its grid; () if unknown."""


@dataclass(frozen=True)
class Launch:
    """One launched kernel."""

    registers: int
    local_bytes: int
    static_shared_bytes: int
    dynamic_shared_bytes: int
    grid: tuple[int, ...]
    block: tuple[int, ...]
    log: str = ""


def second_call(call: Callable[[], Any], clock: Any) -> dict[str, Any]:
    """{"peak_memory_bytes": without inputs; None on a CPU, ...} with the facts of its kernels."""
    if clock.kind != "cuda":
        return {"peak_memory_bytes": None}
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    with launched() as grids, cuda_files.launched() as noted:
        call()
    clock.synchronize()
    memory = {"peak_memory_bytes": torch.cuda.max_memory_allocated() - before}
    if not (found := [*of_triton(grids), *of_cuda_files(noted)]):
        return memory
    major, minor = torch.cuda.get_device_capability()
    return memory | facts(found, f"{major}.{minor}")


def facts(launches: Iterable[Launch], capability: str) -> dict[str, Any]:
    """The fields of `Compiled`, of the launched kernel with the most registers; empty without one. The log is of all."""
    each = list(launches)
    if not each:
        return {}
    most = max(each, key=lambda one: one.registers)
    threads = _product(most.block)
    shared = most.static_shared_bytes + most.dynamic_shared_bytes
    return {
        "registers": most.registers,
        "local_bytes": most.local_bytes,
        "static_shared_bytes": most.static_shared_bytes,
        "dynamic_shared_bytes": most.dynamic_shared_bytes,
        "grid": _by(most.grid),
        "block": _by(most.block),
        "occupancy": occupancy(capability, threads, most.registers, shared),
        "log": "\n".join(dict.fromkeys(one.log for one in each if one.log)),
    }


def _product(sizes: tuple[int, ...]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product


def _by(sizes: tuple[int, ...]) -> str:
    return " x ".join(map(str, sizes))


# --- .cu files --------------------------------------------------------------------------------------------------------


def of_cuda_files(noted: Iterable[cuda_files.Launched]) -> list[Launch]:
    return [
        Launch(
            one.compiled.registers,
            one.compiled.local_bytes,
            one.compiled.static_shared_bytes,
            one.dynamic_shared_bytes,
            one.grid,
            one.block,
            one.compiled.log,
        )
        for one in noted
    ]


# --- Triton -----------------------------------------------------------------------------------------------------------


@contextmanager
def launched() -> Iterator[Grids]:
    """The Triton kernels launched inside the block; empty without Triton.

    Kernels of torch.compile with its own launchers are missing.
    """
    grids: Grids = {}
    knobs: Any = getattr(sys.modules.get("triton"), "knobs", None)
    if knobs is None:
        yield grids
        return

    def note(metadata: Any) -> None:
        with suppress(Exception):  # a kernel must not fail because it is looked at
            grids.setdefault(metadata.data["function"], ())

    knobs.runtime.launch_enter_hook.add(note)
    try:
        with _noting_grids(grids):
            yield grids
    finally:
        knobs.runtime.launch_enter_hook.remove(note)


@contextmanager
def _noting_grids(grids: Grids) -> Iterator[None]:
    """Triton gives its hooks no grid: it is an argument of the method that makes what hooks get."""
    from triton.compiler import CompiledKernel

    inner = CompiledKernel.launch_metadata

    def noting(self: Any, grid: Any, stream: Any, *arguments: Any) -> Any:
        made = inner(self, grid, stream, *arguments)
        with suppress(Exception):
            grids[self.function] = (*map(int, grid), 1, 1)[:3]
        return made

    CompiledKernel.launch_metadata = noting
    try:
        yield
    finally:
        CompiledKernel.launch_metadata = inner


def of_triton(grids: Grids) -> list[Launch]:
    """The launched Triton kernels."""
    if not grids:
        return []
    from triton.compiler import CompiledKernel

    found = [one for one in gc.get_objects() if type(one) is CompiledKernel and one.function in grids]
    return [
        Launch(
            registers=one.n_regs,
            local_bytes=4 * one.n_spills,
            static_shared_bytes=0,
            dynamic_shared_bytes=one.metadata.shared,
            grid=grids[one.function],
            block=(WARP * one.metadata.num_warps, 1, 1),
        )
        for one in found
    ]

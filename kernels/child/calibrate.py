"""Ceilings, measured: copy and read bandwidth, matrix products, an empty kernel in each mode.

`probe` returns raw samples; kernels/analysis/ceilings.py makes rates of them. A datasheet's peak is out of reach; these
are not. A kernel clearly above them is suspect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernels.analysis.blocks import Estimate, calls_for, rest_for
from kernels.contract.replies import CeilingSamples, Moved, Multiplied
from kernels.dtypes import DTYPES
from kernels.workload import Protocol

if TYPE_CHECKING:
    import torch

COPY_BYTES = {"cuda": 2**30, "cpu": 2**26}
CALLS, UNTIMED, EMPTY_CALLS = 20, 5, 50
GATE_NS = 1_000_000


def probe(clock: Any) -> CeilingSamples:
    """Raw samples on this device."""
    return CeilingSamples(matmul=_matmul(clock), empty=_empty(clock), **_memory(clock))


def _timed(clock: Any, call: Callable[[int], Any], calls: int = CALLS) -> list[float]:
    """Times in blocks, each after a rest, as kernels are timed."""
    cuda = clock.kind == "cuda"
    each_ns = max(1.0, min(clock.block(call, range(UNTIMED), 0, False).ticks_ns))
    plan = Protocol()
    at_once = min(calls, calls_for(plan, Estimate(each_ns, 0), cuda))
    ticks: list[float] = []
    while len(ticks) < calls:
        clock.rest(rest_for(plan, at_once, each_ns) if cuda else 0)
        ticks += clock.block(call, range(at_once), GATE_NS if cuda else 0, False).ticks_ns
    return ticks[:calls]


def _memory(clock: Any) -> dict[str, Moved]:
    import torch

    size = COPY_BYTES[clock.kind]
    source = torch.ones(size // 4, dtype=torch.float32, device=clock.kind)
    target = torch.empty_like(source)
    return {
        "copied": Moved(bytes=2 * size, ticks_ns=_timed(clock, lambda _: target.copy_(source))),
        "read": Moved(bytes=size, ticks_ns=_timed(clock, lambda _: source.sum())),
    }


def _matmul(clock: Any) -> dict[str, Multiplied]:
    import torch

    def operand(size: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.randn(size, size, device=clock.kind, dtype=dtype)

    multiplied = {}
    sizes = {name: dtype.matmul_size[clock.kind] for name, dtype in DTYPES.items() if clock.kind in dtype.matmul_size}
    for name, size in sizes.items():
        a, b = operand(size, getattr(torch, name)), operand(size, getattr(torch, name))
        out = torch.empty_like(a)
        ticks = _timed(clock, lambda _, a=a, b=b, out=out: torch.mm(a, b, out=out))  # type: ignore[misc]
        multiplied[name] = Multiplied(flops=2 * size**3, ticks_ns=ticks)
    return multiplied


def _empty(clock: Any) -> dict[str, list[float]]:
    """An empty kernel of one thread, in each mode; on a CPU an empty function."""
    if clock.kind == "cpu":
        return {"cpu": _timed(clock, lambda _: None, EMPTY_CALLS)}

    def call(_: int) -> Any:
        return clock.runtime.spin(0)

    graph = clock.capture(call, range(EMPTY_CALLS))
    return {
        "cold": _timed(clock, call, EMPTY_CALLS),
        "graph": graph.block(CALLS, GATE_NS, False).ticks_ns,
        "e2e": clock.host_block(call, range(EMPTY_CALLS)).ticks_ns,
    }

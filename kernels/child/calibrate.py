"""Ceilings, measured: copy and read bandwidth, matrix products, an empty kernel in each mode.

`probe` returns raw samples; kernels/analysis/ceilings.py makes rates and intervals of them. A datasheet's peak is out of
reach; these are not. A kernel clearly above them is suspect.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernels.analysis.blocks import Estimate, calls_for, rest_for
from kernels.analysis.ceilings import margin
from kernels.contract.replies import CeilingFigure, CeilingSamples
from kernels.dtypes import DTYPES
from kernels.protocol import Protocol

if TYPE_CHECKING:
    import torch

COPY_BYTES = {"cuda": 2**30, "cpu": 2**26}
ROUNDS = {"cuda": 12, "cpu": 24}
"""In each round every figure is timed in two blocks, so that a busy device shows in the differences."""
CPU_CALLS = 1
"""Calls of a block on a CPU, where calls are long."""
LOOK, HOPELESS = 6, 0.25
"""After so many rounds a device whose A/A needs such a margin is given up."""
UNTIMED, EMPTY_CALLS, REPLAYS = 5, 50, 5
GATE_NS = 1_000_000

Timer = Callable[[], list[float]]
"""Times one block: the time of each call, ns."""


@dataclass
class Figure:
    """One figure that is measured."""

    name: str
    """As in CeilingFigure."""
    time: Timer
    work: dict[str, int]
    """{"bytes"} or {"flops"} of a call; empty for an empty kernel."""
    blocks_ns: list[list[float]] = field(default_factory=list)


def probe(clock: Any) -> CeilingSamples:
    """Raw samples on this device."""
    figures = [*_memory(clock), *_matmul(clock), *_empty(clock)]
    for number in range(ROUNDS[clock.kind]):
        for figure in figures if number % 2 == 0 else reversed(figures):
            figure.blocks_ns += [figure.time(), figure.time()]
        if number + 1 == LOOK and any(f.work and margin(f.blocks_ns) > HOPELESS for f in figures):
            break
    return CeilingSamples(figures=[CeilingFigure(name=f.name, blocks_ns=f.blocks_ns, **f.work) for f in figures])


def _timer(clock: Any, call: Callable[[int], Any], calls: int = 0) -> Timer:
    """Times a block of calls after a rest, as kernels are timed. calls: 0 for as many as a kernel's block has."""
    cuda = clock.kind == "cuda"
    each_ns = max(1.0, min(clock.block(call, range(UNTIMED), 0, False).ticks_ns))
    plan = Protocol()
    at_once = calls or (calls_for(plan, Estimate(each_ns, 0), cuda) if cuda else CPU_CALLS)

    def block() -> list[float]:
        clock.rest(rest_for(plan, at_once, each_ns) if cuda else 0)
        return clock.block(call, range(at_once), GATE_NS if cuda else 0, False).ticks_ns

    return block


def _memory(clock: Any) -> list[Figure]:
    import torch

    size = COPY_BYTES[clock.kind]
    source = torch.ones(size // 4, dtype=torch.float32, device=clock.kind)
    target = torch.empty_like(source)
    return [
        Figure("copy_gb_per_s", _timer(clock, lambda _: target.copy_(source)), {"bytes": 2 * size}),
        Figure("read_gb_per_s", _timer(clock, lambda _: source.sum()), {"bytes": size}),
    ]


def _matmul(clock: Any) -> list[Figure]:
    import torch

    def operand(size: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.randn(size, size, device=clock.kind, dtype=dtype)

    products = []
    sizes = {name: dtype.matmul_size[clock.kind] for name, dtype in DTYPES.items() if clock.kind in dtype.matmul_size}
    for name, size in sizes.items():
        a, b = operand(size, getattr(torch, name)), operand(size, getattr(torch, name))
        out = torch.empty_like(a)
        timer = _timer(clock, lambda _, a=a, b=b, out=out: torch.mm(a, b, out=out))  # type: ignore[misc]
        products.append(Figure(name, timer, {"flops": 2 * size**3}))
    return products


def _empty(clock: Any) -> list[Figure]:
    """An empty kernel of one thread, in each mode; on a CPU an empty function."""
    if clock.kind == "cpu":
        return [Figure("cpu", _timer(clock, lambda _: None, EMPTY_CALLS), {})]

    def call(_: int) -> Any:
        return clock.runtime.spin(0)

    graph = clock.capture(call, range(EMPTY_CALLS))
    return [
        Figure("cold", _timer(clock, call, EMPTY_CALLS), {}),
        Figure("graph", lambda: graph.block(REPLAYS, GATE_NS, False).ticks_ns, {}),
        Figure("e2e", lambda: clock.host_block(call, range(EMPTY_CALLS)).ticks_ns, {}),
    ]

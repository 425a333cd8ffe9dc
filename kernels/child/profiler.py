"""Profiler spans and event times of the same calls. Used in the measuring child only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from kernels.analysis.blocks import rest_for
from kernels.contract.arm_result import MOST_KERNELS_RAN
from kernels.contract.replies import Profiled
from kernels.protocol import Protocol

CALLS = 7
GATE_NS = 2_000_000
SPIN = "spin_kernel"
"""Part of the gate kernel's name."""
NOT_KERNELS = ("Memset", "Memcpy")

Span = tuple[str, float, float]
"""Name, start, end; ns."""


def profile(clock: Any, call: Callable[[], Any]) -> Profiled:
    """Profiler spans and event times of CALLS calls.

    On a GPU a rest and a gate precede each call, in both measurements.
    """
    gate_ns = GATE_NS if clock.kind == "cuda" else 0
    call()
    event_ns, rest_ns = _events(clock, call, gate_ns)
    with _profiling(clock.kind) as profiler:
        for _ in range(CALLS if gate_ns else 1):
            clock.rest(rest_ns)
            if gate_ns:
                clock.gate(gate_ns)
            call()
            clock.synchronize()
    seen = sorted(_spans(profiler.function_events, clock.kind), key=lambda span: span[1])
    calls = _by_call(seen) if gate_ns else [seen]
    names = [(name[:200], int(end - start)) for name, start, end in calls[0] if not name.startswith(NOT_KERNELS)]
    spans = [max(end for _, _, end in spans) - spans[0][1] for spans in calls if spans] if gate_ns else []
    return Profiled(kernels=names[:MOST_KERNELS_RAN], spans_ns=spans, event_ns=event_ns)


def _events(clock: Any, call: Callable[[], Any], gate_ns: int) -> tuple[list[float], int]:
    """Times of single calls (ns), and the rest before each."""
    found: list[float] = []
    rest_ns = 0
    for _ in range(1 + CALLS):
        clock.rest(rest_ns)
        found += clock.block(lambda _: call(), range(1), gate_ns, False).ticks_ns
        rest_ns = rest_for(Protocol(), 1, found[0]) if gate_ns else 0
    return found[1:], rest_ns


def _profiling(kind: str) -> Any:
    """Autograd's profiler, without its wrapper torch.profiler: that imports the compiler first, which takes seconds."""
    if kind == "cpu":
        return torch.autograd.profiler.profile()
    return torch.autograd.profiler.profile(use_cpu=False, use_device="cuda", use_kineto=True)


def _spans(events: Iterable[Any], kind: str) -> list[Span]:
    wanted = torch.autograd.DeviceType.CUDA if kind == "cuda" else torch.autograd.DeviceType.CPU
    return [(e.name, e.time_range.start * 1e3, e.time_range.end * 1e3) for e in events if e.device_type == wanted]


def _by_call(seen: list[Span]) -> list[list[Span]]:
    """Splits kernels at the gates: one list per call."""
    calls: list[list[Span]] = []
    for span in seen:
        if SPIN in span[0]:
            calls.append([])
        elif calls:
            calls[-1].append(span)
    return calls or [seen]

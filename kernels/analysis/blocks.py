"""Block layout: calls, gate, rest, graph or not; from an estimate of each arm. Parent side."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.protocol import Protocol as Plan

GRAPH_BELOW_NS, HOST_SHARE = 50_000, 0.7
GATE_FACTOR, LEAST_GATE_NS, MAX_GATE_NS = 1.5, 400_000, 10_000_000
"""LEAST_GATE_NS is long enough to read the SM clock."""
MIN_CALLS, MAX_CALLS = 4, 50
LONG_BLOCK_NS = 25e6
"""On a GPU, long calls: fewer than MIN_CALLS in a block, so that it stays below this; at least one."""
MAX_REST_NS = 250e6
"""Rest before a block, in proportion to its work: every call meets a rested clock. Without it a GPU at its power limit
changes its clock for seconds, and an arm's time depends on what ran before. The mode sustained measures continuous
load."""


@dataclass
class Estimate:
    """Estimate of an arm from five calls."""

    call_ns: float
    enqueue_ns: float
    """Host time to launch one call."""
    synchronises: bool = False
    """The arm synchronises with the device: calls cannot be queued ahead."""
    capturable: bool = True


def choose_mode(plan: Plan, estimates: dict[str, Estimate], cuda: bool) -> str:
    """The mode of a group: cpu on a CPU; else as configured; for auto, graph if the fastest arm takes less than 50
    us."""
    if not cuda:
        return "cpu"
    if plan.mode != "auto":
        return plan.mode
    return "graph" if min(e.call_ns for e in estimates.values()) < GRAPH_BELOW_NS else "cold"


def by_graph(mode: str, estimates: dict[str, Estimate]) -> bool:
    """Whether a mode launches captured graphs: graph does; sustained does if the host might not keep up."""
    return mode == "graph" or (mode == "sustained" and any(map(is_host_bound, estimates.values())))


def is_host_bound(guess: Estimate) -> bool:
    """Whether the host might launch an arm's calls more slowly than the device runs them."""
    return guess.call_ns < GRAPH_BELOW_NS or guess.enqueue_ns > HOST_SHARE * guess.call_ns


def gate_for(calls: int, enqueue_ns: float) -> int:
    return min(MAX_GATE_NS, max(LEAST_GATE_NS, int(GATE_FACTOR * calls * enqueue_ns)))


def least_calls(call_ns: float) -> int:
    """Minimum calls of a block on a GPU."""
    return max(1, min(MIN_CALLS, int(LONG_BLOCK_NS / call_ns)))


def is_long(call_ns: float) -> bool:
    """Long calls have no untimed call before: it would add one more call in a row under the power limit."""
    return least_calls(call_ns) < MIN_CALLS


def calls_for(plan: Plan, guess: Estimate, cuda: bool) -> int:
    """Calls in a block: about block_ms, 4 to 50; fewer long ones on a GPU; at most what the longest gate covers."""
    calls = max(
        least_calls(guess.call_ns) if cuda else MIN_CALLS, min(MAX_CALLS, round(plan.block_ms * 1e6 / guess.call_ns))
    )
    if cuda and guess.enqueue_ns > 0:
        calls = max(1, min(calls, int(MAX_GATE_NS / (GATE_FACTOR * guess.enqueue_ns))))
    return calls


def rest_for(plan: Plan, calls: int, call_ns: float) -> int:
    """Rest before a block of `calls` calls and the untimed one: by default twice a single long call."""
    return int(min(MAX_REST_NS, plan.rest * (calls + 1) * call_ns))

"""What a block is made of: how many calls, behind which gate, after how long a rest, by graph or not; from an estimate of
each arm. Parent side.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels.workload import Protocol as Plan

GRAPH_BELOW_NS, HOST_SHARE = 50_000, 0.7
GATE_FACTOR, LEAST_GATE_NS, MAX_GATE_NS = 1.5, 400_000, 10_000_000
"""A gate is at least so long that it tells the SM clock."""
MIN_CALLS, MAX_CALLS = 4, 50
LONG_BLOCK_NS = 25e6
"""On a GPU a block of long calls has fewer than MIN_CALLS, so as to take no longer than this, or has one."""
MAX_REST_NS = 250e6
"""Before a block a device rests, in proportion to its work: then every call finds the clock of a device that is not hot.
Without a pause a GPU at its power limit hunts for a clock it can hold, for seconds, and what an arm finds depends on what ran
before it. What holds under continuous work is the mode sustained."""


@dataclass
class Estimate:
    """What five calls of an arm say."""

    call_ns: float
    enqueue_ns: float
    """Host time to launch one call."""
    synchronises: bool = False
    """The arm waits for the device by itself, so that nothing can be queued ahead of it."""
    capturable: bool = True


def choose_mode(plan: Plan, estimates: dict[str, Estimate], cuda: bool) -> str:
    """The mode of a group: cpu on a CPU; else as asked; else graph if the fastest arm takes less than 50 us."""
    if not cuda:
        return "cpu"
    if plan.mode != "auto":
        return plan.mode
    return "graph" if min(e.call_ns for e in estimates.values()) < GRAPH_BELOW_NS else "cold"


def by_graph(mode: str, estimates: dict[str, Estimate]) -> bool:
    """Whether a mode launches captured graphs: graph does, and sustained where the host might not keep up otherwise."""
    return mode == "graph" or (mode == "sustained" and any(map(is_host_bound, estimates.values())))


def is_host_bound(guess: Estimate) -> bool:
    """Whether the host might not launch an arm's calls as fast as the device runs them, back to back."""
    return guess.call_ns < GRAPH_BELOW_NS or guess.enqueue_ns > HOST_SHARE * guess.call_ns


def gate_for(calls: int, enqueue_ns: float) -> int:
    return min(MAX_GATE_NS, max(LEAST_GATE_NS, int(GATE_FACTOR * calls * enqueue_ns)))


def least_calls(call_ns: float) -> int:
    """Calls that a block has at least on a GPU."""
    return max(1, min(MIN_CALLS, int(LONG_BLOCK_NS / call_ns)))


def is_long(call_ns: float) -> bool:
    """Such calls go without an untimed one before: it would only be one more in a row for a power limit to notice."""
    return least_calls(call_ns) < MIN_CALLS


def calls_for(plan: Plan, guess: Estimate, cuda: bool) -> int:
    """Calls in a block: about block_ms, 4 to 50, fewer of long ones on a GPU, and no more than the longest gate can cover."""
    calls = max(
        least_calls(guess.call_ns) if cuda else MIN_CALLS, min(MAX_CALLS, round(plan.block_ms * 1e6 / guess.call_ns))
    )
    if cuda and guess.enqueue_ns > 0:
        calls = max(1, min(calls, int(MAX_GATE_NS / (GATE_FACTOR * guess.enqueue_ns))))
    return calls


def rest_for(plan: Plan, calls: int, call_ns: float) -> int:
    """Before a block of so many calls, and the untimed one; by default twice a single long call."""
    return int(min(MAX_REST_NS, plan.rest * (calls + 1) * call_ns))

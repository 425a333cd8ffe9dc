"""Not wrong, but not to be believed either: what the times and the memory of an arm say against it. Parent side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

PROBES, FEW_PROBES = 7, 3
"""Calls of each kind in a probe; few of a kernel that takes long."""
LONG_NS = 20e6
SIGHTS, FEW_SIGHTS, SIGHTS_NS = 10, 3, 20e6
"""A kernel may wait a few times before it keeps a result: so many calls on the same tensors, fewer if they take longer than so
long together."""
DOUBTS = 3
"""A measured suspicion counts only when it holds over this many probes, or comes up so many times in a row."""
SEEN_FACTOR, SEEN_OFTEN = 1.2, 0.85
"""What was seen before may not make a call faster by more than this, where so many of all pairs of two calls say so."""
UNTOUCHED_NS = 1000
"""A call on inputs that were just written may be this much slower."""
LEAK_BLOCKS, LEAK_BYTES = 5, 4096
"""Each of the last so many blocks kept more than so many bytes a call: a leak."""
OUTSIDE_FACTOR, OUTSIDE_NS = 1.5, 20e6
"""The time around a batch may be this much longer than the calls in it."""


def why_remembers(seen_ns: Sequence[float], new_ns: Sequence[float]) -> str:
    """A kernel that is faster on values it has seen than on new ones keeps results: an empty string if it does not."""
    if not (factor := _faster(seen_ns, new_ns)):
        return ""
    return f"the kernel caches results: {factor:.1f} times faster on inputs that it has seen"


def why_recognises(untouched_ns: Sequence[float], written_ns: Sequence[float]) -> str:
    """The same of a kernel that knows a tensor by its address and how often it was written, or that waits for some calls."""
    if not (factor := _faster(untouched_ns, written_ns)) or median(written_ns) - median(untouched_ns) <= UNTOUCHED_NS:
        return ""
    return f"the kernel caches results: {factor:.1f} times faster on tensors not written since its last call"


def _faster(known_ns: Sequence[float], new_ns: Sequence[float]) -> float:
    """How many times faster calls on what is known are; 0 if not by more than SEEN_FACTOR, or not SEEN_OFTEN.

    Both were measured in turn, in a random order: on a busy host some calls are slow, but of either kind.
    """
    factor = median(new_ns) / median(known_ns)
    often = sum(known < new for known in known_ns for new in new_ns) / (len(known_ns) * len(new_ns))
    return factor if factor > SEEN_FACTOR and often >= SEEN_OFTEN else 0.0


def why_leaks(grown: Sequence[tuple[int, int]]) -> str:
    """From (bytes, calls) of each block: an empty string if memory does not grow from call to call."""
    last = grown[-LEAK_BLOCKS:]
    per_call = [count / calls for count, calls in last]
    if len(last) < LEAK_BLOCKS or min(per_call) < LEAK_BYTES:
        return ""
    return f"memory leak: every call keeps {median(per_call):.0f} bytes"


def why_outside(ticks_ns: float, wall_ns: float) -> str:
    """From the sum of a batch's ticks and the time that the parent's own clock saw pass around it."""
    if ticks_ns > 1.05 * wall_ns:
        return f"its calls took {ticks_ns / 1e6:.3g} ms in only {wall_ns / 1e6:.3g} ms: the clock was tampered with"
    if wall_ns > OUTSIDE_FACTOR * ticks_ns + OUTSIDE_NS:
        return (
            f"its calls took {ticks_ns / 1e6:.3g} ms, but {wall_ns / 1e6:.3g} ms passed: work outside the timed region"
        )
    return ""


def why_probed(probe: Callable[..., dict[str, Any]], seed: Callable[[], int], call_ns: float) -> str:
    """Whether an arm keeps results, asked until it does not: an empty string, or why.

    probe(seeds=[...], sights=n): as in Bench.probe. What several probes found is judged together.
    """
    known: dict[str, list[float]] = {}
    why, calls = "", FEW_PROBES if call_ns > LONG_NS else PROBES
    sights = max(FEW_SIGHTS, min(SIGHTS, int(SIGHTS_NS / call_ns)))
    for _ in range(DOUBTS):
        got = probe(seeds=[seed() for _ in range(calls)], sights=sights)
        for key in ("seen_ns", "new_ns", "untouched_ns", "written_ns"):
            known.setdefault(key, []).extend(got[key])
        of_values = why_remembers(known["seen_ns"], known["new_ns"])
        if not (why := of_values or why_recognises(known["untouched_ns"], known["written_ns"])):
            break
    return why

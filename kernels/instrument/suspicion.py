"""Not wrong, but not to be believed either: what the times and the memory of an arm say against it. Parent side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

PROBES, FEW_PROBES = 7, 2
"""Pairs of calls on new and on known values; few of a kernel that takes long."""
LONG_NS = 20e6
DOUBTS = 3
"""A measured suspicion counts only when it comes up this many times in a row."""
SEEN_FACTOR = 1.5
"""Values seen before may not make a call faster by more than this."""
UNTOUCHED_NS = 3000
"""A call right after its inputs were written may be this much slower: they, and the code, are no longer where they are fast."""
LEAK_BLOCKS, LEAK_BYTES = 5, 4096
"""Each of the last so many blocks kept more than so many bytes a call: a leak."""
OUTSIDE_FACTOR, OUTSIDE_NS = 1.5, 20e6
"""The time around a batch may be this much longer than the calls in it."""


def why_remembers(
    fresh_ns: Sequence[float],
    again_ns: Sequence[float],
    first_ns: Sequence[float] = (),
    second_ns: Sequence[float] = (),
) -> str:
    """A kernel that is much faster on values it has seen keeps results: an empty string if it does not.

    first_ns, second_ns: the same pairs of calls with new values in both. On a busy host the second of two calls may well be
    the faster one, pair after pair, whatever it computes.
    """
    factor = median(fresh / again for fresh, again in zip(fresh_ns, again_ns, strict=True))
    usual = median([1.0] if not first_ns else [a / b for a, b in zip(first_ns, second_ns, strict=True)])
    too_fast = SEEN_FACTOR * max(1.0, usual)
    if factor <= too_fast or median(fresh_ns) <= too_fast * median(again_ns):
        return ""
    return f"it keeps results: {factor:.1f} times faster on inputs that it has seen before"


def why_recognises(written_ns: Sequence[float] = (), untouched_ns: Sequence[float] = ()) -> str:
    """The same of calls in quick succession, where one that is much faster on tensors that nobody has written since the last call
    keeps results by address and version, or after some calls. What else writing costs a call is less than UNTOUCHED_NS.
    """
    if not written_ns:
        return ""
    # On a busy host some are slow whatever they compute; what is kept makes every call on new values slower.
    written, untouched = min(written_ns), median(untouched_ns)
    factor = written / untouched
    if factor <= SEEN_FACTOR or written - untouched <= UNTOUCHED_NS:
        return ""
    return f"it keeps results: {factor:.1f} times faster on tensors that nobody has written since"


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


def why_probed(probe: Callable[[list[int]], dict[str, Any]], seed: Callable[[], int], call_ns: float) -> str:
    """Whether an arm keeps results, asked until it does not: an empty string, or why. `probe` takes seeds of values."""
    pairs, why = FEW_PROBES if call_ns > LONG_NS else PROBES, ""
    for _ in range(DOUBTS):
        got = probe([seed() for _ in range(pairs)])
        of_values = why_remembers(*(got.get(key, ()) for key in ("fresh_ns", "again_ns", "first_ns", "second_ns")))
        if not (why := of_values or why_recognises(got.get("written_ns", ()), got.get("untouched_ns", ()))):
            break
    return why

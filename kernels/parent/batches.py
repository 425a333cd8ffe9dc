"""Lengths of isolated batches, and of the rests before them."""

from __future__ import annotations

from collections.abc import Callable

CHECKED_CALLS, CHECKED_S = (3, 8), 1.0
"""Calls of a batch that is checked and not timed, at least and at most; where they are slow, as many as take so long."""
BATCH_NS = {"cpu": 50e6, "cuda": 20e6}
"""On a GPU not longer: continuous work lowers the clock. Not shorter: what working after the answer could win is a larger
share of a shorter batch. The result's page shows that share."""
QUICK = {"cpu": 1.0, "cuda": 0.5}
"""Batches and rests are shorter by this factor where intervals may be as wide as those of *quick*. Captures and fresh values
take the host longer than the batches themselves. What working after the answer could win is then twice as large a share."""
LEAST_CALLS = {"cpu": 4, "cuda": 1}
"""On a GPU, a batch of long calls is as short as a block of the shared process: more calls in a row lose clock."""
REST_S = 0.02
"""Rest of a GPU between the writing of inputs and a batch: as long as the batch, as in the shared process. With 100 ms
ratios were no closer to the shared process's (docs/measurements/isolated-rests-h200-2026-11-23.jsonl). The same before every
batch and every empty one: what the host adds depends on it (docs/instrument.md#isolated)."""


def lengths(kind: str, rest: float, quick: bool) -> tuple[float, float]:
    """Of a batch (ns), and of the rest before it (s)."""
    share = QUICK[kind] if quick else 1.0
    return BATCH_NS[kind] * share, REST_S * share * rest if kind == "cuda" else 0.0


def checked_calls(call_s: float, room: int) -> int:
    """Calls of a batch that is checked and not timed. A kernel that returns a few buffers in turn comes to its first one again.

    call_s: time of a call. room: input sets.
    """
    least, most = CHECKED_CALLS
    return min(room, most, max(least, int(CHECKED_S / call_s)))


GROWS = 16
"""Batches grow by this factor at most."""


def estimated(batch: Callable[[int], float], calls_for: Callable[[float], int]) -> float:
    """Time of a call (ns), from batches that grow until they have at least half of the calls that a batch is to have; of three
    batches of that length, the shortest.

    batch: calls -> how long a batch of so many took (ns). calls_for: time of a call (ns) -> calls of a batch.
    """
    calls = 1
    while True:
        call_ns = batch(calls) / calls
        if (wanted := calls_for(call_ns)) <= 2 * calls:
            call_ns = min(call_ns, batch(calls) / calls, batch(calls) / calls)
            if (wanted := calls_for(call_ns)) <= 2 * calls:
                return call_ns
        calls = min(wanted, GROWS * calls)

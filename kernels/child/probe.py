"""Caching probe: times single calls on seen, new, untouched and rewritten inputs. Child side; suspicion.py judges."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from kernels.operations.base import Inputs

SCALE = -0.9
"""Scales inputs to new values; repeated scaling never repeats a value."""


def probe(
    timed: Callable[[], float],
    call: Callable[[], Any],
    inputs: Inputs,
    fresh: Callable[[int], Inputs],
    seeds: Sequence[int],
    sights: int,
    scalable: bool,
) -> dict[str, list[float]]:
    """For each seed one time of each kind (ns), in random order.

    timed, call: one call on `inputs`, timed or not. fresh: the inputs of a seed. scalable: inputs times SCALE are valid
    inputs; else new values are drawn.

    seen_ns, new_ns: the second of two calls, on the first call's values, and on new values.
    untouched_ns, written_ns: the last of `sights` calls on tensors that are not written in between, and on tensors that
    are written before each call. For untouched_ns other tensors are written, so that caches end in the same state.
    """
    others, more = fresh(seeds[0]), random.Random(seeds[0])

    def write(into: Inputs, seed: int) -> None:
        for old, new in zip(into.tensors, fresh(seed).tensors, strict=True):
            old.copy_(new)

    def second(*of_values: int) -> float:
        ticks = 0.0
        for seed in of_values:
            write(inputs, seed)
            ticks = timed()
        return ticks

    def last(into: Inputs) -> float:
        for sight in range(sights):
            if scalable:
                for tensor in into.tensors:
                    if tensor.is_floating_point():
                        tensor.mul_(SCALE)
            else:
                write(into, more.randrange(2**31))
            if sight < sights - 1:
                call()
        return timed()

    times: dict[str, list[float]] = {"seen_ns": [], "new_ns": [], "untouched_ns": [], "written_ns": []}
    for seed in seeds:
        other = next_seed(seed)
        kinds: list[tuple[str, Callable[..., float], tuple[Any, ...]]] = [
            ("seen_ns", second, (seed, seed)),
            ("new_ns", second, (other, next_seed(other))),
            ("untouched_ns", last, (others,)),
            ("written_ns", last, (inputs,)),
        ]
        for key, one, of in random.Random(seed).sample(kinds, len(kinds)):
            times[key].append(one(*of))
    return times


def next_seed(seed: int) -> int:
    return (48_271 * seed + 11) % 2**31

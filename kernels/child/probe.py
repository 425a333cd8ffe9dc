"""Caching probe: times calls on seen, new, untouched and rewritten inputs. Child side; suspicion.py judges."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from kernels.analysis.blocks import gate_for
from kernels.analysis.suspicion import seeds_for
from kernels.child.checks import TRAP_GATE_NS
from kernels.child.rewrite import rewrite
from kernels.child.sets import Sets
from kernels.operations.base import Inputs

SCALE = -0.9
"""Scales inputs to new values; repeated scaling never repeats a value, but drawing new ones every NEW_EVERY times keeps them from
becoming zero."""
NEW_EVERY = 64
OTHERS, SHORT_NS, LOOKS = 28, 100e3, 3
"""A CPU learns which way the branches of a call go on its values, and a short call on the same values is faster: 1.25 times, of
1,024 to 8,192 branches. So between short calls on known values come OTHERS calls on other values: it forgets, a cache does not.
Behind 4 of them a call was still 1.1 to 1.2 times faster, behind 28 1.0 to 1.1 times. Short are calls whose fastest of LOOKS on
new values takes less than SHORT_NS."""
LAST_ONE_IN = 8
"""One in so many calls of a burst, and three at least, are its last ones."""


def timer(clock: Any) -> Callable[[Callable[[int], Any], Sequence[int]], list[float]]:
    """Times calls in a row (ns). A GPU's gate is TRAP_GATE_NS at first, then as long as the host needs to queue so many calls,
    three times over."""
    gates: dict[int, int] = {}

    def timed(run: Callable[[int], Any], indices: Sequence[int]) -> list[float]:
        clock.synchronize()
        gate_ns = gates.get(len(indices), TRAP_GATE_NS) if clock.kind == "cuda" else 0
        block = clock.block(run, indices, gate_ns, False)
        gates[len(indices)] = min(TRAP_GATE_NS, gate_for(2, block.enqueue_ns))
        ticks: list[float] = block.ticks_ns
        return ticks

    return timed


def probe(
    timed: Callable[[Any, Sequence[int]], list[float]],
    call: Callable[[int], Any],
    sets: Sets,
    write: Callable[[Sequence[int]], None],
    seeds: Sequence[int],
    sights: int,
    in_turn: int,
    scalable: bool,
    on_host: bool = False,
    one_buffer: bool = False,
) -> dict[str, list[float]]:
    """For `count` times one time of each kind (ns), in random order.

    timed, call: calls on input sets, timed or not. write: the stock's values into sets; empties the cache. seeds:
    `seeds_for(count, in_turn)`. scalable: inputs times SCALE are valid inputs; else new values are drawn.

    seen_ns, new_ns: the second of two calls, on the first call's values, and on new values.
    untouched_ns, written_ns: the last of `sights` calls on tensors that are not written in between, and on tensors that
    are written before each call. For untouched_ns other tensors are written, so that caches end in the same state.
    again_ns, fresh_ns: medians of calls on the first `in_turn` sets in turn: on values of the calls right before, and on
    new values.
    early_ns, late_ns: only with one_buffer, where timed calls had one set. Of `sights` calls back to back after one write, as
    timed calls are: the mean of the first two, and the median of the last ones.
    on_host: between short calls on known values come others; not with one_buffer.
    """
    left, everything = list(seeds), range(min(in_turn, len(sets)))
    others, more = sets.draw(left.pop()), random.Random(left[0])
    first = sets[0]

    def one() -> float:
        return timed(call, range(1))[0]

    def into(tensors: Inputs, seed: int, index: int = 0) -> None:
        rewrite(tensors, sets.draw(seed))
        sets.note([index], scaled=True)

    def new() -> float:
        into(first, more.getrandbits(64))
        return one()

    is_short = on_host and not one_buffer and min(new() for _ in range(LOOKS)) < SHORT_NS

    def on_others() -> None:
        for number in range(OTHERS) if is_short and len(sets) > 1 else ():
            index = 1 + number % (len(sets) - 1)
            into(sets[index], more.getrandbits(64), index)
            call(index)

    def second(one_seed: int, another: int) -> float:
        into(first, one_seed)
        one()
        on_others()
        into(first, another)
        return one()

    def last(of: Inputs) -> float:
        for sight in range(sights):
            if scalable and (sight + 1) % NEW_EVERY:
                for tensor in of.tensors:
                    if tensor.is_floating_point():
                        tensor.mul_(SCALE)
                sets.note([0], scaled=True)
            else:
                into(of, more.getrandbits(64))
            if sight < sights - 1:
                call(0)
        on_others()
        return one()

    def burst() -> tuple[float, float]:
        call(0)
        into(first, more.getrandbits(64))
        ticks = timed(call, [0] * max(4, sights))
        late = sorted(ticks[-max(3, len(ticks) // LAST_ONE_IN) :])
        return sum(ticks[:2]) / 2, late[len(late) // 2]

    def turn(known: bool) -> float:
        fresh = [left.pop() for _ in everything]
        write(everything)
        outs = [call(index) for index in everything]
        sets.renew(fresh)
        write([] if known else everything)
        ticks = sorted(timed(call, everything))
        del outs
        return ticks[len(ticks) // 2]

    kinds = ("seen_ns", "new_ns", "untouched_ns", "written_ns", "again_ns", "fresh_ns")
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    while len(left) >= seeds_for(1, in_turn) - 1:
        seed, other, third = left.pop(), left.pop(), left.pop()
        calls: list[tuple[str, Callable[..., float], tuple[Any, ...]]] = [
            ("seen_ns", second, (seed, seed)),
            ("new_ns", second, (other, third)),
            ("untouched_ns", last, (others,)),
            ("written_ns", last, (first,)),
            ("again_ns", turn, (True,)),
            ("fresh_ns", turn, (False,)),
        ]
        for key, run, of in more.sample(calls, len(calls)):
            times[key].append(run(*of))
        if one_buffer:
            early, late = burst()
            times.setdefault("early_ns", []).append(early)
            times.setdefault("late_ns", []).append(late)
    return times

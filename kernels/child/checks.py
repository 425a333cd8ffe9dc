"""Checked calls: what a call writes, where, when, and what it leaves alone. Used in the measuring child only."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

import torch

from kernels.child import host_memory, outputs, poison
from kernels.child.reference import Reference, measure, with_facts
from kernels.child.rewrite import rewrite
from kernels.child.sets import facts_of
from kernels.operations.base import Inputs, Operation

LATE_S = 0.003
"""Time for late writes to show after a call has returned."""
TRAP_GATE_NS = 4_000_000
"""Gate length: the checked call is queued before its inputs arrive."""
LATER_CALLS, LATER_S = 6, 1.0
"""Calls of a thorough check after the second one: a kernel that returns a few buffers in turn comes to its first one again.
After so many seconds no more begin."""
Run = Callable[[Inputs], Any]


def trapped(
    run: Run, inputs: Inputs, values: Inputs, problem: Operation, clock: Any, device: str
) -> tuple[Any, Any, dict[str, Any]]:
    """One call: inputs are written just before it and the output is copied just after it, on the current stream.
    Work on another stream, or later, is detected.

    Returns the output, the copy, and {"late": per output, "inputs_changed"}.
    """
    before = [facts_of(tensor) for tensor in inputs.tensors]
    with poison.in_new_memory(outputs.likes(problem, inputs), device):
        clock.synchronize()
        if clock.kind == "cuda":
            clock.gate(TRAP_GATE_NS)
        rewrite(inputs, values)
        out = outputs.plain(run(inputs))
    early = outputs.clone(out)
    clock.synchronize()
    sleep(LATE_S)
    late = outputs.changed(early, out)
    same = before == [facts_of(tensor) for tensor in inputs.tensors]
    same = same and all(poison.same(a, b) for a, b in zip(inputs.tensors, values.tensors, strict=True))
    return out, early, {"late": late, "inputs_changed": not same}


def two_calls(
    run: Run, reference: Reference, problem: Operation, clock: Any, device: str, later: int = 0
) -> dict[str, Any]:
    """Compares the first of two calls on fresh inputs with the reference: the facts of Verified without `busy`. later: further
    calls at most, which must not return the first one's memory."""
    inputs = Inputs(tuple(torch.zeros_like(t) for t in reference.inputs.tensors), reference.inputs.options)
    out, early, flags = trapped(run, inputs, reference.inputs, problem, clock, device)
    reading = measure(early, reference)
    unwritten = [poison.count(one) for one in outputs.as_tuple(early)]
    reading = with_facts(reading, unwritten=unwritten, late=flags.pop("late"))
    shared, deterministic = False, None
    if not reading.get("wrong_kind"):
        shared, deterministic = called_again(run, reference.inputs, out, early, unwritten, clock)
        shared = shared or comes_again(run, reference.inputs, out, clock, later)
    return {"reading": reading, "shared": shared, "deterministic": deterministic, **flags}


def called_again(run: Run, values: Inputs, out: Any, early: Any, unwritten: list[int], clock: Any) -> tuple[bool, bool]:
    """Makes a second call: (shared, deterministic), from the first one's output and its early copy. Poisons all
    outputs. Raises host_memory.FilledWhenRead."""
    for one in outputs.as_tuple(out):
        poison.fill(one)
    again = outputs.plain(run(Inputs(tuple(t.clone() for t in values.tensors), values.options)))
    clock.synchronize()
    if clock.kind == "cpu":
        host_memory.must_be_written(
            outputs.spans(again), thorough=False
        )  # outputs of timed calls are looked at more closely
    counted = [one for one in outputs.as_tuple(out) if poison.is_counted(one)]
    pairs = zip(outputs.as_tuple(again), unwritten, strict=True)
    shared = any(poison.count(one) < one.numel() for one in counted) or any(poison.count(a) > n for a, n in pairs)
    shared = shared or outputs.share_memory(out, again)
    deterministic = outputs.equal(early, again)
    for right in (out, early, again):  # freed memory must not look like the next kernel's work
        for one in outputs.as_tuple(right):
            poison.fill(one)
    return shared, deterministic


def comes_again(run: Run, values: Inputs, out: Any, clock: Any, calls: int) -> bool:
    """Whether one of some calls returns an output at the place of an earlier one, which is alive. Poisons theirs."""
    inputs = Inputs(tuple(t.clone() for t in values.tensors), values.options) if calls else values
    end, found = monotonic() + LATER_S, False
    for number in range(calls):
        if found or (number and monotonic() > end):
            break
        again = outputs.plain(run(inputs))
        clock.synchronize()
        found = outputs.share_memory(out, again)
        for one in outputs.as_tuple(again):
            poison.fill(one)
    return found

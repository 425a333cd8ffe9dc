"""The process of a problem that came with its kernels: it draws inputs, and computes what they should give.

Its code is as foreign as a kernel's, and runs behind the same airlock. What it says is a claim: the trusted process copies
inputs and outputs out of its memory, as it does those of a cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernels.child.nudges import Nudges
from kernels.child.poison import same
from kernels.child.widening import Inexact, Way, way_of, why_not_repeatable
from kernels.contract.isolation import Argument, Array, Described, Expected, Part, Refused
from kernels.contract.replies import Nothing
from kernels.isolated import device_memory
from kernels.isolated.brought import Brought, cut, packed
from kernels.isolated.cell import Cell
from kernels.isolated.memory import Layout, mapped, outputs_of
from kernels.problems.gpu_mode import Unclear
from kernels.problems.opening import ALIKE, drawn, is_packed, reference_of
from kernels.workload import Workload

MOST_SAID = 300
"""Characters of what the problem's own check says."""
PLAIN = (bool, int, float, str, type(None))


class Problem(Cell):
    """One problem: its reference is a kernel, with inputs and a higher precision."""

    def describe(self, workload: dict[str, Any], seed: int, weights: int) -> Described:
        """Loads the reference, and calls it once. weights: the seed of what is drawn once."""
        asked = Workload(**workload)
        self.reference = reference_of(asked, weights, self.device)
        self.truth = getattr(self.reference, "truth", self.reference)
        given = drawn(self.reference, seed, self.device)
        arguments = _arguments(given)
        self.packed = is_packed(self.reference)
        call = packed(self.reference) if self.packed else self.reference
        counts: dict[str, int] = getattr(self.reference, "counts", {"": len(given)})
        parts = list(cut(given, counts.values()))
        outs = [self._outputs(call(*_own(part))) for part in parts]
        others = drawn(self.reference, seed + 1, self.device)
        _must_vary(given, others)
        calls = zip(counts, parts, outs, strict=True)
        why_no_check = self._why_no_check(parts, outs)
        described = Described(
            arguments=arguments,
            outputs=[_array(one) for out in outs for one in out],
            packed=self.packed,
            parts=[Part(name=n, arguments=len(part), outputs=len(out)) for n, part, out in calls if n],
            has_check=why_no_check == "",
            why_no_check=why_no_check or "",
        )
        self.problem = Brought.of(asked.problem, described.model_dump())
        self.way, why_inexact = self._way(_tensors(given), _tensors(others))
        call = self.problem.calling(self.truth)
        self.nudges = Nudges(self.way, call, self._outputs) if self.way else None
        self.layout, self.answers = Layout.of(self.problem, self.device), Layout(self.problem.likes)
        return described.model_copy(update={"why_inexact": why_inexact})

    def _outputs(self, out: Any) -> list[torch.Tensor]:
        claims, why = outputs_of(out)
        if why or not claims:
            raise TypeError(f"the reference {why or 'returned nothing'}")
        return list(out) if isinstance(out, tuple | list) else [out]

    def map(self, memory: str, sets: int) -> Nothing:
        """Maps the memory of the input sets: a path, or a handle in hex."""
        inputs = sets * self.layout.nbytes
        nbytes = inputs + self.answers.nbytes
        if self.kind == "cuda":
            shared = device_memory.as_bytes(device_memory.open_handle(bytes.fromhex(memory)), nbytes)
        else:
            shared = mapped(memory, nbytes)
        self.sets = self.layout.sets(shared, sets)
        self.answer = self.answers.sets(shared[inputs:], 1)[0].tensors
        return Nothing()

    def draw(self, seed: int, calls: int, first: int = 0) -> Nothing:
        """Fresh values for some input sets, different in each. first: of them."""
        for index, one in enumerate(self.sets[first : first + calls], first):
            values = drawn(self.reference, (seed + index * 1_000_003) % 2**31, self.device)
            tensors = [one for one in values if isinstance(one, torch.Tensor)]
            for old, new in zip(one.tensors, tensors, strict=True):
                if (old.shape, old.dtype) != (new.shape, new.dtype):
                    raise ValueError("its inputs do not have the same shapes and dtypes for every seed")
                old.copy_(new)
        self.synchronize()
        return Nothing()

    def expect(self, index: int) -> Expected:
        """What one input set should give."""
        tensors, call = self.sets[index].tensors, self.problem.calling(self.truth)
        plain = self._outputs(call(*_copies(tensors)))
        exact = self._outputs(self.way.outputs(call, tensors)) if self.way else []
        nudged = self.nudges.answers(tensors, plain, exact) if self.nudges else []
        self.outs = [one.contiguous() for one in (*plain, *exact, *nudged)]
        self.synchronize()
        claims, _ = outputs_of(self.outs)
        said = cut(claims, map(len, (plain, exact, nudged)))
        return Expected(**dict(zip(("plain", "exact", "nudged"), said, strict=True)))

    # --- the problem's own check ----------------------------------------------------------------------------------------

    def check(self, index: int) -> Refused:
        """What it says against the outputs that the trusted process shows, of one input set."""
        described: Described = self.problem.described
        given = self.problem.filling()(_copies(self.sets[index].tensors))
        parts = described.parts or [Part(name="", arguments=len(given), outputs=len(described.outputs))]
        outs = cut([one.clone() for one in self.answer], (part.outputs for part in parts))
        for part, mine, out in zip(parts, cut(given, (part.arguments for part in parts)), outs, strict=True):
            try:
                why = self._refusal(mine, out)
            except Unclear as error:  # of the reference's own outputs its answer could be read
                why = str(error)[:MOST_SAID]
            if why:
                return Refused(why=f"{part.name}: {why}" if part.name else why)
        return Refused()

    def _why_no_check(self, parts: list[list[Any]], outs: list[list[torch.Tensor]]) -> str | None:
        """Why it cannot be called, tried on the reference's own outputs; empty if it can. None: its format has none."""
        if not hasattr(self.reference, "check"):
            return None
        if self.reference.check is None:
            return "its reference.py has no check_implementation"
        for part, out in zip(parts, outs, strict=True):
            try:
                why = self._refusal(_own(part), [one.clone() for one in out])
            except Unclear as error:
                return str(error)
            if why:
                return f"of the reference's own output it says: {why}"
        return ""

    def _refusal(self, given: list[Any], outs: list[torch.Tensor]) -> str:
        why: str = self.reference.why_wrong(tuple(given) if self.packed else given[0], outs)
        self.synchronize()
        return why[:MOST_SAID]

    # --- exact values ---------------------------------------------------------------------------------------------------

    def _way(self, tensors: list[torch.Tensor], others: list[torch.Tensor]) -> tuple[Way | None, str]:
        """How the reference gives exact outputs; or why it cannot. others: inputs that it is called with in between: it may keep
        state."""
        call = self.problem.calling(self.truth)
        first = self._outputs(call(*_copies(tensors)))
        self.problem.calling(self.reference)(*_copies(others))
        plain = self._outputs(call(*_copies(tensors)))
        if why := why_not_repeatable(first, plain):
            return None, why
        try:
            return way_of(call, tensors, plain, self._outputs), ""
        except Inexact as error:
            return None, str(error)[:MOST_SAID]


def _tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    return [one for one in values if isinstance(one, torch.Tensor)]


def _copies(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [one.clone() for one in tensors]


def _own(values: Sequence[Any]) -> list[Any]:
    """The same arguments, which a call may change."""
    return [one.clone() if isinstance(one, torch.Tensor) else one for one in values]


def _must_vary(some: Sequence[Any], others: Sequence[Any]) -> None:
    """Raises ValueError if the inputs of two seeds are the same."""
    tensors = [(one, other) for one, other in zip(some, others, strict=False) if isinstance(one, torch.Tensor)]
    if all(isinstance(other, torch.Tensor) and same(one, other) for one, other in tensors):
        raise ValueError(ALIKE)


def _arguments(given: list[Any]) -> list[Argument]:
    arguments = []
    for number, one in enumerate(given, 1):
        if not isinstance(one, (torch.Tensor, *PLAIN)):
            raise TypeError(f"input {number} is a {type(one).__name__}: an input must be a tensor, a number or a text")
        arguments.append(Argument(array=_array(one)) if isinstance(one, torch.Tensor) else Argument(value=one))
    if not any(isinstance(one, torch.Tensor) and one.numel() for one in given):
        raise TypeError("its inputs hold no tensor with elements")
    return arguments


def _array(tensor: torch.Tensor) -> Array:
    return Array(shape=list(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))

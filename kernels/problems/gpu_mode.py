"""GPU MODE: ref_kernel, generate_input and check_implementation of a problem, in the namespace of its reference.py."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernels.catalog import TESTS

Sizes = dict[str, Any]


class Reference:
    """The reference of a problem, with inputs of one size, or of all of its tests."""

    def __init__(
        self,
        file: Mapping[str, Any],
        size: Sizes,
        device: str,
        cases: dict[str, Sizes] | None = None,
        tests: dict[str, Sizes] | None = None,
    ) -> None:
        """cases, tests: sizes by name, of a problem that has more than one size."""
        self.call, self.make, self.device = file["ref_kernel"], file["generate_input"], device
        self.check: Callable[..., Any] | None = file.get("check_implementation")
        self.cases, self.tests, self.sizes = cases or {}, tests or {}, {"": size}
        if "seed" not in inspect.signature(self.make).parameters:
            raise ValueError("generate_input takes no seed: inputs of a later call would be known")
        self.packed = False
        """Whether its data is a tuple, or one tensor."""
        self.several = False
        """Whether it returns several outputs."""
        self.counts: dict[str, int] = {}
        """Arguments of each call, by the name of its size."""

    def choose(self, case: str) -> None:
        """The sizes of a case."""
        self.sizes = self.tests if case == TESTS else {"": self.cases[case]}

    def __call__(self, data: Any) -> Any:
        out = self.call(data)
        self.several = isinstance(out, tuple | list)
        return out

    def inputs(self, seed: int) -> list[Any]:
        """The parts of the data of a seed, of all sizes one after the other."""
        given: list[Any] = []
        for name, size in self.sizes.items():
            parts = self._parts(self.make(**size | {"seed": seed}))
            self.counts[name] = len(parts)
            given += parts
        return given

    def _parts(self, data: Any) -> list[Any]:
        if not isinstance(data, torch.Tensor | tuple | list):
            raise TypeError(
                f"its data is a {type(data).__name__}: only tensors, and tuples of tensors and numbers, are known"
            )
        packed = isinstance(data, tuple | list)
        if self.counts and packed != self.packed:
            raise TypeError("its data is a tuple for some sizes, and one tensor for others")
        self.packed = packed
        return list(data) if isinstance(data, tuple | list) else [data]

    def why_wrong(self, data: Any, outs: list[Any]) -> str:
        """What the problem's own check says against the outputs of one call; empty: they are right."""
        assert self.check is not None
        return said(self.check(data, tuple(outs) if self.several else outs[0]))


def said(answer: Any) -> str:
    """Why outputs are wrong, from the answer of a check_implementation: (whether they are right, why not), why not alone, or
    whether they are right. Empty if they are right."""
    if isinstance(answer, tuple):
        right, why = answer
    else:
        right, why = (not answer, answer) if isinstance(answer, str) else (answer is not False, "")
    return "" if right else str(why or "wrong").strip()

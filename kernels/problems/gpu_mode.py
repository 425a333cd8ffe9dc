"""GPU MODE: ref_kernel, generate_input and check_implementation of a problem, in the namespace of its reference.py."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from kernels.catalog import TESTS

Sizes = dict[str, Any]
YES_OR_NO = (bool, int, np.bool_, np.integer)


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
        """What the problem's own check says against the outputs of one call; empty: they are right. Raises Unclear."""
        assert self.check is not None
        return why_refused(self.check, data, tuple(outs) if self.several else outs[0])


class Unclear(ValueError):
    """A check whose answers cannot be read. The message says why."""


def why_refused(check: Callable[..., Any], data: Any, out: Any) -> str:
    """What a check_implementation says against what a kernel returned, which may be an exception; empty: it is right. Raises
    Unclear."""
    try:
        answer = check(data, out)
    except Exception as error:  # an assertion, or whatever else it raises
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return said(answer)


def said(answer: Any) -> str:
    """Why outputs are wrong, from the answer of a check_implementation: whether they are right, alone or with why not; why not, a
    sentence or a list; or None, if it raises where they are wrong. Empty if they are right. Raises Unclear."""
    if answer is None:
        return ""
    if isinstance(answer, str):
        return answer.strip()
    if isinstance(answer, list) and all(isinstance(one, str) for one in answer):
        return "; ".join(answer).strip() or ("wrong" if answer else "")
    right, *more = answer if isinstance(answer, tuple) and answer else (answer,)
    why = ", ".join(str(one) for one in more if one is not None)
    if not (isinstance(right, YES_OR_NO) or (isinstance(right, torch.Tensor) and right.ndim == 0)):
        raise Unclear(f"its check answers with {kind_of(answer)}: it must say whether outputs are right, or why not")
    return "" if right else str(why or "wrong").strip()


def kind_of(answer: Any) -> str:
    """ "a dict", "a tuple of 3" """
    name = type(answer).__name__
    size = f" of {len(answer)}" if isinstance(answer, tuple | list) else ""
    size = f" of shape {tuple(answer.shape)}" if isinstance(answer, torch.Tensor) else size
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}{size}"

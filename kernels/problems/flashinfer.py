"""flashinfer: run of a definition and of a solution, with inputs of the shapes that the definition says."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

Tensor = Mapping[str, Any]
"""{"shape": sizes, or None of a number; "dtype"}"""


class Reference:
    """The reference of a definition."""

    def __init__(self, run: Callable[..., Any], inputs: list[Tensor], device: str) -> None:
        self.run, self.said, self.device = run, inputs, device

    def __call__(self, *inputs: Any) -> Any:
        return self.run(*inputs)

    def inputs(self, seed: int) -> list[Any]:
        """Floating-point values from N(0, 1), and 1 for numbers."""
        torch.manual_seed(seed)
        return [self._drawn(one["shape"], one["dtype"]) for one in self.said]

    def _drawn(self, shape: list[int] | None, dtype: str) -> Any:
        if shape is None:
            return 1.0 if dtype.startswith(("float", "bfloat")) else 1
        return torch.randn(shape, device=self.device).to(getattr(torch, dtype))

    def exact(self, dtype: torch.dtype) -> Callable[..., Any]:
        """It has no weights: it follows its inputs."""
        return self.run


def solution(run: Callable[..., Any], inputs: int, outputs: list[Tensor], device: str) -> Callable[..., Any]:
    """A solution; one that writes into its last arguments gets new outputs there, within the call."""
    if len(inspect.signature(run).parameters) != inputs + len(outputs):
        return run
    likes = [(one["shape"] or [], getattr(torch, one["dtype"])) for one in outputs]

    def returning(*given: Any) -> Any:
        made = tuple(torch.empty(shape, dtype=dtype, device=device) for shape, dtype in likes)
        run(*given, *made)
        return made if len(made) > 1 else made[0]

    return returning

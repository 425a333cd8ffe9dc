"""GPU MODE: ref_kernel and generate_input of a problem, in the namespace of its reference.py."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch


class Reference:
    """The reference of a problem, with inputs of one size."""

    def __init__(self, file: Mapping[str, Any], size: dict[str, Any], device: str) -> None:
        self.call, self.make, self.size, self.device = file["ref_kernel"], file["generate_input"], size, device
        if "seed" not in inspect.signature(self.make).parameters:
            raise ValueError("generate_input takes no seed: inputs of a later call would be known")
        self.packed = False
        """Whether its data is a tuple, or one tensor."""

    def __call__(self, data: Any) -> Any:
        return self.call(data)

    def inputs(self, seed: int) -> list[Any]:
        """The parts of the data of a seed."""
        data = self.make(**self.size | {"seed": seed})
        self.packed = isinstance(data, tuple | list)
        if not isinstance(data, torch.Tensor | tuple | list):
            raise TypeError(
                f"its data is a {type(data).__name__}: only tensors, and tuples of tensors and numbers, are known"
            )
        return list(data) if self.packed else [data]

    def exact(self, dtype: torch.dtype) -> Callable[[Any], Any]:
        """It has no weights: it follows the data."""
        return self.call

"""flashinfer: run of a definition and of a solution, with inputs of the shapes that the definition or a workload says."""

from __future__ import annotations

import base64
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

Tensor = Mapping[str, Any]
"""{"shape": sizes, or None of a number; "dtype"; "value" of a number; "file" with the bytes of a tensor in base64}"""
WHOLE = 1024
"""Random whole numbers lie between this and its negative, if their dtype holds it."""


class Reference:
    """The reference of a definition."""

    def __init__(
        self,
        run: Callable[..., Any],
        inputs: list[Tensor],
        device: str,
        cases: dict[str, list[Tensor]] | None = None,
        file: str = "",
    ) -> None:
        """cases: inputs of its workloads, by name. file: in the folder of the tensors that workloads give."""
        self.run, self.said, self.device = run, inputs, device
        self.cases, self.folder = cases or {}, Path(file).parent
        self.given: dict[str, torch.Tensor] = {}

    def choose(self, case: str) -> None:
        """The inputs of a workload."""
        self.said = self.cases[case]

    def __call__(self, *inputs: Any) -> Any:
        return self.run(*inputs)

    def inputs(self, seed: int) -> list[Any]:
        """Values that the workload gives; others are random, numbers 1."""
        torch.manual_seed(seed)
        return [self._given(one) if "file" in one else self._drawn(one) for one in self.said]

    def _given(self, said: Tensor) -> torch.Tensor:
        name = str(said["file"])
        if name not in self.given:
            values = bytearray(base64.b64decode((self.folder / name).read_text()))
            self.given[name] = torch.frombuffer(values, dtype=torch.uint8).to(self.device)
        return self.given[name].view(getattr(torch, said["dtype"])).view(said["shape"])

    def _drawn(self, said: Tensor) -> Any:
        shape, name = said["shape"], str(said["dtype"])
        if shape is None:
            return said.get("value", 1.0 if name.startswith(("float", "bfloat")) else 1)
        dtype = getattr(torch, name)
        if dtype == torch.bool:
            return torch.randint(0, 2, shape, device=self.device, dtype=dtype)
        if not dtype.is_floating_point:
            limits = torch.iinfo(dtype)
            low, high = max(limits.min, -WHOLE), min(limits.max + 1, WHOLE)
            return torch.randint(low, high, shape, device=self.device, dtype=dtype)
        return torch.randn(shape, device=self.device).to(dtype)

    def exact(self, dtype: torch.dtype) -> Callable[..., Any]:
        """It has no weights: it follows its inputs."""
        return self.run


def solution(
    run: Callable[..., Any], inputs: int | list[Tensor], outputs: list[Tensor], device: str
) -> Callable[..., Any]:
    """A solution; one that writes into its last arguments gets new outputs there, within the call. inputs: their number; or
    themselves, whose shapes name the axes that workloads give."""
    count = inputs if isinstance(inputs, int) else len(inputs)
    if len(inspect.signature(run).parameters) != count + len(outputs):
        return run
    named = [] if isinstance(inputs, int) else [one["shape"] or [] for one in inputs]
    likes = [(one["shape"] or [], getattr(torch, one["dtype"])) for one in outputs]

    def returning(*given: Any) -> Any:
        lengths = {axis: size for axes, one in zip(named, given, strict=False) if axes
                   for axis, size in zip(axes, one.shape, strict=True)}  # fmt: skip
        made = tuple(
            torch.empty([lengths.get(axis, axis) for axis in shape], dtype=dtype, device=device)
            for shape, dtype in likes
        )
        run(*given, *made)
        return made if len(made) > 1 else made[0]

    return returning

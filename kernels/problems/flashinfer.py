"""flashinfer: run of a definition and of a solution, with inputs of the shapes that the definition or a workload says."""

from __future__ import annotations

import base64
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from kernels.formats.definitions import length_of

Tensor = Mapping[str, Any]
"""{"shape": sizes, or None of a number; "dtype"; "value" of a number; "file" with the bytes of a tensor in base64;
"custom": its name, of one that a function makes}"""
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
        custom: Callable[..., Mapping[str, Any]] | None = None,
        lengths: dict[str, dict[str, float]] | None = None,
        names: Sequence[str] = (),
        by_name: Sequence[str] = (),
    ) -> None:
        """cases: inputs of its workloads, by name. file: in the folder of the tensors that workloads give. custom: makes inputs
        from axes and numbers, and a device; lengths: these, by the names of workloads. names: of the outputs, where run returns
        them by name. by_name: of the inputs, where run takes them by name."""
        run = in_order(named(run, by_name), names)
        self.run, self.said, self.device = run, inputs, device
        self.cases, self.folder = cases or {}, Path(file).parent
        self.given: dict[str, torch.Tensor] = {}
        self.custom, self.lengths, self.case = custom, lengths or {}, ""

    def choose(self, case: str) -> None:
        """The inputs of a workload."""
        self.case, self.said = case, self.cases[case]

    def __call__(self, *inputs: Any) -> Any:
        return self.run(*inputs)

    def inputs(self, seed: int) -> list[Any]:
        """Values that the workload gives, or that the definition's function makes; others are random, numbers 1."""
        torch.manual_seed(seed)
        made: Mapping[str, Any] = {}
        if self.custom and any("custom" in one for one in self.said):
            made = self.custom(dict(self.lengths[self.case]), torch.device(self.device))
        return [
            self._given(one) if "file" in one else self._made(one, made) if "custom" in one else self._drawn(one)
            for one in self.said
        ]

    def _made(self, said: Tensor, made: Mapping[str, Any]) -> Any:
        """What the function made; a tensor has the shape and dtype of the definition. Raises ValueError."""
        name, wanted = str(said["custom"]), f"{said['dtype']} {said['shape']}"
        if name not in made:
            raise ValueError(f"the function that makes custom inputs makes no {name}")
        value = made[name]
        if said["shape"] is None:
            return value.item() if isinstance(value, torch.Tensor) else value
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"the custom input {name} is {type(value).__name__}, not a tensor of {wanted}")
        found = f"{str(value.dtype).removeprefix('torch.')} {[*value.shape]}"
        if found != wanted:
            raise ValueError(f"the custom input {name} is {found}, and the definition says {wanted}")
        return value.to(self.device)

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


def named(run: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """A function of arguments with these names as one of their values in this order."""
    if not names:
        return run

    @functools.wraps(run)
    def positional(*given: Any) -> Any:
        return run(**dict(zip(names, given, strict=True)))

    return positional


def in_order(run: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """A function that returns its outputs by name, such as {"output": ..., "lse": ...}: it returns them in this order."""
    if not names:
        return run

    @functools.wraps(run)
    def ordered(*given: Any, **more: Any) -> Any:
        out = run(*given, **more)
        if not isinstance(out, dict) or out.keys() != set(names):
            return out
        return tuple(out[name] for name in names) if len(names) > 1 else out[names[0]]

    return ordered


def solution(
    run: Callable[..., Any],
    inputs: int | list[Tensor],
    outputs: list[Tensor],
    device: str,
    expressions: Mapping[str, str] | None = None,
    names: Sequence[str] = (),
    by_name: Sequence[str] = (),
) -> Callable[..., Any]:
    """A solution; one that writes into its last arguments gets new outputs there, within the call. inputs: their number; or
    themselves, whose shapes name the axes that workloads give. expressions: of axes that follow from these. names: as in
    Reference. by_name: of all arguments, where it takes them by name."""
    taken = len(by_name) or len(inspect.signature(run).parameters)
    run = in_order(named(run, by_name), names)
    count = inputs if isinstance(inputs, int) else len(inputs)
    if taken != count + len(outputs):
        return run
    shapes = [] if isinstance(inputs, int) else [one["shape"] or [] for one in inputs]
    computed = expressions or {}
    open_axes = {axis for one in outputs for axis in one["shape"] or () if axis in computed}
    likes = [(one["shape"] or [], getattr(torch, one["dtype"])) for one in outputs]

    def returning(*given: Any) -> Any:
        lengths = {axis: size for axes, one in zip(shapes, given, strict=False) if axes
                   for axis, size in zip(axes, one.shape, strict=True)}  # fmt: skip
        for axis in open_axes - lengths.keys():
            lengths[axis] = length_of(computed[axis], lengths)
        made = tuple(
            torch.empty([lengths.get(axis, axis) for axis in shape], dtype=dtype, device=device)
            for shape, dtype in likes
        )
        run(*given, *made)
        return made if len(made) > 1 else made[0]

    return returning

"""KernelBench: Model, which ModelNew replaces, and get_inputs, in the namespace of their file."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernels.catalog import PROBLEM, get_kernel, load

Namespace = Mapping[str, Any]


def made(cls: Any, arguments: Any, seed: int, device: str) -> torch.nn.Module:
    """A model. The same seed gives the same weights."""
    torch.manual_seed(seed)
    values = copy.deepcopy(arguments)
    model = cls(**values) if isinstance(values, dict) else cls(*values)
    return model.to(device).eval()


def replacing(cls: Any, right: Reference, seed: int, device: str) -> torch.nn.Module:
    """A model in the place of a problem's: with the same seed and arguments and, where the names fit, the same weights."""
    model = made(cls, right.arguments, seed, device)
    with contextlib.suppress(RuntimeError):
        model.load_state_dict(right.model.state_dict())
    return model


class Reference:
    """The model of a problem, and its inputs."""

    def __init__(self, file: Namespace, seed: int, device: str) -> None:
        self.file, self.device = file, device
        given = file["get_init_inputs"]() if "get_init_inputs" in file else []
        self.arguments = given if isinstance(given, dict) else list(given)
        self.model = made(file["Model"], self.arguments, seed, device)
        self._exact: dict[torch.dtype, torch.nn.Module] = {}

    def __call__(self, *inputs: Any) -> Any:
        return self.model(*inputs)

    def inputs(self, seed: int) -> list[Any]:
        """The arguments of a seed. What is drawn without a device is drawn on this one."""
        torch.manual_seed(seed)
        with torch.device(self.device):
            return list(self.file["get_inputs"]())

    def exact(self, dtype: torch.dtype) -> Callable[..., Any]:
        """The same with weights of another dtype."""
        if dtype not in self._exact:
            self._exact[dtype] = converted(self.model, dtype)
        return self._exact[dtype]


def converted(model: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    """A copy with another dtype: also of tensors that are no parameter and no buffer, such as the first state of an LSTM,
    which `to` leaves as they are."""

    def in_dtype(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(dtype) if value.is_floating_point() else value
        return type(value)(map(in_dtype, value)) if type(value) in (list, tuple) else value

    copied = copy.deepcopy(model).to(dtype)
    for module in copied.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) or type(value) in (list, tuple):
                vars(module)[name] = in_dtype(value)
    return copied


def reference(file: Namespace, seed: int, device: str) -> Reference:
    """What the declaration of a problem returns."""
    return Reference(file, seed, device)


def solution(file: Namespace, problem: str, seed: int, device: str) -> torch.nn.Module:
    """What the declaration of a kernel for a problem returns. Its arguments and weights are those of the problem's Model,
    whose files travel with every run of it."""
    right = load(get_kernel(PROBLEM, problem)).call(seed, device)
    return replacing(file["ModelNew"], right, seed, device)

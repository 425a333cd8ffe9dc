"""KernelBench: Model, which ModelNew replaces, and get_inputs, in the namespace of their file."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping
from typing import Any

import torch

from kernels.catalog import PROBLEM, get_kernel, load
from kernels.problems.seeding import seeded

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

    def __call__(self, *inputs: Any) -> Any:
        return self.model(*inputs)

    def truth(self, *inputs: Any) -> Any:
        """The same for a comparison: the model is afterwards as it was, in whatever dtype it was called. Its parameters are not
        looked at: a model that changes these in a call learns."""
        modules = list(self.model.modules())
        before = [(dict(vars(module)), dict(module._buffers)) for module in modules]
        states = (one for own, buffers in before for one in (*own.values(), *buffers.values()) if _is_state(one))
        values = [(one, one.clone(), one._version) for one in states]
        try:
            return self.model(*inputs)
        finally:
            for module, (own, buffers) in zip(modules, before, strict=True):
                vars(module).clear()
                vars(module).update(own)
                module._buffers.clear()
                module._buffers.update(buffers)
            for one, was, version in values:
                if one._version != version:
                    one.copy_(was)

    def inputs(self, seed: int) -> list[Any]:
        """The arguments of a seed. What is drawn without a device is drawn on this one."""
        with seeded(seed), torch.device(self.device):
            return list(self.file["get_inputs"]())


def _is_state(value: Any) -> bool:
    """Whether it is a tensor that a call may write into."""
    return isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter) and not value.is_inference()


def reference(file: Namespace, seed: int, device: str) -> Reference:
    """What the declaration of a problem returns."""
    return Reference(file, seed, device)


def solution(file: Namespace, problem: str, seed: int, device: str) -> torch.nn.Module:
    """What the declaration of a kernel for a problem returns. Its arguments and weights are those of the problem's Model,
    whose files travel with every run of it."""
    right = load(get_kernel(PROBLEM, problem)).call(seed, device)
    return replacing(file["ModelNew"], right, seed, device)

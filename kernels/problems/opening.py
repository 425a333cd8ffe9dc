"""A problem that came with its kernels, loaded: its reference on one workload, and its inputs."""

from __future__ import annotations

from typing import Any

import torch

from kernels.catalog import PROBLEM, get_kernel, load
from kernels.workload import Workload

ALIKE = "its inputs are the same for every seed: a kernel that remembers an answer would look fast"


def reference_of(workload: Workload, weights: int, device: str) -> Any:
    """The reference, for the case of the workload. weights: the seed of what is drawn once."""
    torch.set_grad_enabled(False)
    made = load(get_kernel(PROBLEM, workload.sizes[PROBLEM])).call(weights, device)
    if case := workload.sizes.get("case"):
        made.choose(case)
    return made


def drawn(reference: Any, seed: int, device: str) -> list[Any]:
    """The arguments of a seed, on the device."""
    return [one.to(device) if isinstance(one, torch.Tensor) else one for one in reference.inputs(seed)]


def is_packed(reference: Any) -> bool:
    """Whether the arguments are the parts of one tuple. Known when inputs were drawn."""
    return bool(getattr(reference, "packed", False))

"""Outputs of a call: one tensor, or several in a tuple or a list. Used in the measuring child only.

Non-tensors are ignored here; reference.py reports them.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.child.poison import bits, same
from kernels.operations.base import Inputs, Like, Operation


def likes(problem: Operation, inputs: Inputs) -> tuple[Like, ...]:
    """(shape, dtype) of each output that a kernel must return."""
    like: Any = problem.output_like(inputs)
    return (like,) if len(like) == 2 and isinstance(like[1], torch.dtype) else tuple(like)


def new(wanted: tuple[Like, ...], device: Any) -> Any:
    """What a call writes into: a new tensor, or a tuple of several."""
    made = tuple(torch.empty(shape, dtype=dtype, device=device) for shape, dtype in wanted)
    return made if len(made) > 1 else made[0]


def plain(out: Any) -> Any:
    """A tuple or list of a subclass as a plain one, whatever its class overrides; any other output unchanged."""
    kind = next((kind for kind in (tuple, list) if issubclass(type(out), kind)), None)
    return kind(kind.__iter__(out)) if kind else out


def why_not_plain(out: Any) -> str:
    """Why an output is not a dense tensor; empty if it is one."""
    if type(out) is not torch.Tensor:
        return f"returned a {type(out).__module__}.{type(out).__name__}, not a torch.Tensor"
    if out.layout != torch.strided:
        return f"returned a tensor of the layout {str(out.layout).removeprefix('torch.').lstrip('_')}, not a dense one"
    return ""


def as_tuple(out: Any) -> tuple[Any, ...]:
    """The outputs of a call, one or several."""
    return tuple(out) if type(out) in (tuple, list) else (out,)


def clone(out: Any) -> Any:
    """A copy of an output, or of each of several."""
    if type(out) in (tuple, list):
        return type(out)(map(clone, out))
    if type(out) is not torch.Tensor:
        return out
    return bits(out).clone().view(out.dtype) if out.dtype == torch.bool else out.clone()  # else poison becomes True


def nbytes(out: Any) -> int:
    return sum(t.numel() * t.element_size() for t in as_tuple(out) if type(t) is torch.Tensor)


def kept_bytes(out: Any) -> int:
    """Memory that lives as long as an output: a small tensor may be a view into large memory, as PyTorch's mse_loss is."""
    tensors = [one for one in as_tuple(plain(out)) if type(one) is torch.Tensor]
    return sum({one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}.values())


def spans(out: Any) -> list[tuple[int, int]]:
    """(first address, address behind the last byte) of the memory of each tensor of an output."""
    storages = [one.untyped_storage() for one in as_tuple(plain(out)) if type(one) is torch.Tensor and one.numel()]
    return [(one.data_ptr(), one.data_ptr() + one.nbytes()) for one in storages]


def equal(some: Any, others: Any) -> bool:
    """Whether both hold the same values. Raises if they are not tensors, or differ in number."""
    return all(same(a, b) for a, b in zip(as_tuple(some), as_tuple(others), strict=True))


def share_memory(some: Any, others: Any) -> bool:
    """Whether outputs of two calls, both still alive, lie at the same place."""
    places = [
        {one.data_ptr() for one in as_tuple(out) if type(one) is torch.Tensor and one.numel()} for out in (some, others)
    ]
    return bool(places[0] & places[1])


def changed(early: Any, out: Any) -> list[bool]:
    """Per output: whether its bits differ from an earlier copy."""
    pairs = zip(as_tuple(early), as_tuple(out), strict=True)
    return [type(b) is torch.Tensor and not torch.equal(bits(a), bits(b)) for a, b in pairs]

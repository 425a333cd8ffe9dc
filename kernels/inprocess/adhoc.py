"""Inputs and problem from a caller of measure(), as an operation for the bench."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import torch
from pydantic import ConfigDict

from kernels.child.outputs import as_tuple
from kernels.child.poison import same
from kernels.dtypes import DTYPES, Dtype
from kernels.operations.base import (
    Allowance,
    Distribution,
    Inputs,
    Like,
    Operation,
    Piece,
    allowance_of_unknown,
)
from kernels.parent.seeds import secret

Kernel = Callable[..., Any]
Tensors = tuple[torch.Tensor, ...]
DRAWN = "inputs were plain tensors: floating-point values are drawn from N(0, 1), others are kept"
CALLERS_SEEDS = 2**32
"""A caller's function gets a seed below this, which NumPy takes, too; PyTorch's generator is seeded with all of it."""
CONSTANT = "inputs(seed) ignores the seed: a callable that caches results would not be noticed"


# --- inputs -----------------------------------------------------------------------------------------------------------


class Unfit(ValueError):
    """Inputs or a reference that cannot be used: no fault of a kernel."""


class Source:
    """Draws inputs: new tensors for each seed, on one device, with the memory layout of the caller's tensors.

    The caller's tensors are never written. PyTorch's generator is seeded around the caller's function and restored.
    """

    def __init__(self, given: Any, device: torch.device | str | None, seed: int | None) -> None:
        self.seed = seed = secret() if seed is None else seed
        self.notes: list[str] = []
        self.kinds: list[tuple[Any, ...]] = []
        self.device = usable(device) if device is not None else None
        if callable(given):
            self.give: Callable[[int], Any] = given
        else:
            plain = checked(given)
            self.give = lambda _: tuple(_redrawn(tensor) for tensor in plain)
            self.notes.append(DRAWN)
        first = self.draw(seed)
        self.device, self.kinds = usable(first[0].device), _kinds(first)
        if not _equal(first, self.draw(seed)):
            raise Unfit("inputs(seed) is not deterministic: draw with torch, or from the seed")
        if callable(given) and _equal(first, self.draw(seed + 1)):
            self.notes.append(CONSTANT)

    def draw(self, seed: int) -> Tensors:
        """Raises TypeError or ValueError if the result is not a tuple of tensors on one device, or its shapes change
        with the seed."""
        gpus = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
        with torch.random.fork_rng(devices=gpus):
            torch.default_generator.manual_seed(seed)
            for gpu in gpus:
                torch.cuda.default_generators[gpu].manual_seed(seed)
            tensors = checked(self.give(seed % CALLERS_SEEDS))
        own = tuple(_laid_out_like(tensor, tensor, self.device) for tensor in tensors)
        if self.kinds and _kinds(own) != self.kinds:
            raise ValueError("inputs(seed) must have the same shapes, dtypes and device for every seed")
        return own


def usable(device: torch.device | str) -> torch.device:
    """The device with its index. Raises ValueError if it cannot be measured, RuntimeError if it is missing."""
    found = torch.device(device)
    if found.type not in ("cpu", "cuda"):
        raise ValueError(f"measure() knows the devices cpu and cuda, not {found.type}")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(f"the device {device} was asked for, but PyTorch finds no CUDA GPU here")
    if found.type == "cuda" and found.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return found


def checked(given: Any) -> Sequence[torch.Tensor]:
    if not isinstance(given, tuple | list):
        raise TypeError(
            f"inputs must be a tuple of tensors, or a function of a seed that returns one, not {a(type(given))}"
        )
    for position, item in enumerate(given):
        if not isinstance(item, torch.Tensor):
            raise TypeError(f"inputs[{position}] is {a(type(item))}, not a tensor: bind it with functools.partial")
        if any(size > 1 and step == 0 for size, step in zip(item.shape, item.stride(), strict=True)):
            raise ValueError(f"inputs[{position}] is an expanded view, which cannot be refilled: make it contiguous")
    if not any(item.numel() for item in given):
        raise ValueError("inputs must hold at least one element")
    if len(devices := sorted({str(item.device) for item in given})) > 1:
        raise ValueError(f"inputs must be on one device, not on {' and '.join(devices)}")
    return given


def a(kind: type) -> str:
    """ "a tuple", "an int" """
    return f"{'an' if kind.__name__[0] in 'aeiouAEIOU' else 'a'} {kind.__name__}"


def _laid_out_like(tensor: torch.Tensor, values: torch.Tensor, device: torch.device | None) -> torch.Tensor:
    """Copies values into new memory with the strides of a tensor."""
    where = device or tensor.device
    new = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=where)
    return new.copy_(values.detach())


def _redrawn(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    dtype = tensor.dtype if tensor.element_size() > 1 else torch.float32
    return _laid_out_like(tensor, torch.randn(tensor.shape, dtype=dtype, device=tensor.device), None)


def _kinds(tensors: Tensors) -> list[tuple[Any, ...]]:
    return [(tensor.shape, tensor.dtype, tensor.device) for tensor in tensors]


def _equal(some: Tensors, others: Tensors) -> bool:
    return _kinds(some) == _kinds(others) and all(same(x, y) for x, y in zip(some, others, strict=True))


# --- the problem ------------------------------------------------------------------------------------------------------


class Adhoc(Operation):
    """An operation for the bench. `truth` gives the correct values, or replaces them."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)
    name: ClassVar[str] = "adhoc"
    scalable: ClassVar[bool] = False

    source: Source
    truth: Kernel
    whose: str
    """"reference" or "baseline"; empty if nothing is compared with `truth`."""
    exact: torch.dtype | None
    """The dtype in which `truth` is exact enough to judge. None: `truth` is not a reference; outputs only have to agree
    with it."""
    outputs: tuple[Like, ...]
    """(shape, dtype) of each output."""
    bounded: bool
    """Whether the peak of `dtype` bounds every kernel on these inputs. Not in float32 without a reference: tf32 is
    faster, and agrees with the baseline."""
    """Whether the peak of `dtype` bounds every kernel on these inputs."""
    terms: int
    """Size of the longest dimension of an input."""
    aside: Callable[[], AbstractContextManager[None]]
    """Context for the caller's functions that are not measured."""
    work: float = 0
    """FLOPs of one call; `traffic`: bytes of one call. 0: unknown."""
    traffic: int = 0

    @property
    def allowance(self) -> Allowance:
        """The longest dimension of an input may be summed."""
        name = next((str(dtype).removeprefix("torch.") for _, dtype in self.outputs if dtype.is_floating_point), "")
        return allowance_of_unknown(name, self.terms)

    def inputs(self, device: str, seed: int, distribution: Distribution = "normal") -> Inputs:
        with self.aside():
            return Inputs(self.source.draw(seed), {})

    def output_like(self, inputs: Inputs) -> Like | tuple[Like, ...]:
        return self.outputs if len(self.outputs) > 1 else self.outputs[0]

    def check(self, inputs: Inputs, seed: int, thorough: bool) -> Iterator[Piece]:
        """One piece for each output: all of it. The yardstick is the reference in the inputs' own dtype, never the
        baseline."""
        with self.aside():
            plain = [one.detach().clone() for one in as_tuple(self.truth(*in_dtype(inputs.tensors, None)))]
            right = plain
            if self.exact is not None:
                right = [one.detach() for one in as_tuple(self.truth(*in_dtype(inputs.tensors, self.exact)))]
        for number, (one, yard) in enumerate(zip(right, plain, strict=True)):
            if yard.is_floating_point():
                one = one.double() if self.exact is None or one.dtype == yard.dtype else one
                if self.whose and not torch.isfinite(one).all():
                    raise ValueError(f"the {self.whose}'s output is not finite on these inputs: draw other inputs")
            yield Piece(None, one[None], yard[None], output=number)

    def flops(self) -> int:
        return int(self.work)

    def bytes_moved(self) -> tuple[int, int]:
        sizes = [torch.Size(shape).numel() * dtype.itemsize for shape, dtype in self.outputs]
        written = min(self.traffic, sum(sizes))
        return self.traffic - written, written


def in_dtype(tensors: Tensors, dtype: torch.dtype | None) -> list[torch.Tensor]:
    """Copies; floating-point ones in another dtype."""
    return [t.to(dtype) if dtype and t.is_floating_point() and t.dtype != dtype else t.clone() for t in tensors]


def exact_dtype(reference: Kernel, tensors: Tensors, own: Sequence[torch.Tensor]) -> torch.dtype:
    """float64 if the reference supports it, else float32 if that is more precise than its own outputs. Raises
    ValueError.

    own: its outputs for these tensors. Without floating-point inputs or outputs it is exact as it is.
    """
    floating = [out.dtype for out in own if out.is_floating_point()]
    for dtype in floating:
        if str(dtype).removeprefix("torch.") not in DTYPES:
            raise ValueError(f"a reference judges outputs of {', '.join(DTYPES)}, not of {dtype}: leave it out")
    if not any(tensor.is_floating_point() for tensor in tensors):
        return torch.float64
    why = ""
    for dtype in (torch.float64, torch.float32):
        if all(dtype.itemsize > one.itemsize for one in floating):
            try:
                outs = as_outputs("the reference", reference(*in_dtype(tensors, dtype)))
            except Exception as error:
                why = why or f"{type(error).__name__}: {error}"
                continue
            got = [out.dtype for out in outs if out.is_floating_point()]
            if len(got) == len(floating) and all(x.itemsize > y.itemsize for x, y in zip(got, floating, strict=True)):
                return dtype
            why = why or f"it returns {' and '.join(map(str, got))} for {dtype}"
    raise Unfit(f"the reference must also accept float64 (or float32) inputs, including weights: {why}")


def as_outputs(name: str, out: Any) -> tuple[torch.Tensor, ...]:
    """The outputs: one non-empty tensor of real numbers or truth values, or several in a tuple or a list. Raises
    TypeError if they are something else."""
    several = type(out) in (tuple, list) and len(out) > 1
    for one in out if several else (out,):
        if type(one) is not torch.Tensor:
            raise TypeError(
                f"{name} returned {a(type(one))}, not a torch.Tensor or several: wrap it so that it returns these"
            )
        if not one.numel() or one.is_complex() or (one.is_floating_point() and one.element_size() == 1):
            raise TypeError(
                f"{name} returned {one.numel()} elements of {one.dtype}: outputs have elements of floating-point numbers "
                "of 16 to 64 bits, of integers, or of bool"
            )
    return tuple(out) if several else (out,)


def like(outs: Sequence[torch.Tensor]) -> tuple[Like, ...]:
    """(shape, dtype) of each output."""
    return tuple((tuple(out.shape), out.dtype) for out in outs)


def peak_dtype(tensors: Sequence[torch.Tensor]) -> Dtype | None:
    """The dtype whose peak bounds work on these tensors; None if no peak is listed (8 bits, float64)."""
    narrowest = min((tensor.element_size() for tensor in tensors if tensor.dtype != torch.bool), default=1)
    return next((dtype.name for dtype in DTYPES.values() if dtype.bytes == narrowest), None)

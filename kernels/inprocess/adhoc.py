"""Inputs and problem from a caller of measure(), as an operation for the bench."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import torch
from pydantic import ConfigDict

from kernels.dtypes import DTYPES, Dtype
from kernels.operations.base import Distribution, Inputs, Operation, Piece
from kernels.parent.seeds import secret

Kernel = Callable[..., Any]
Tensors = tuple[torch.Tensor, ...]
DRAWN = "inputs were plain tensors: floating-point values are drawn from N(0, 1), others are kept"
CALLERS_SEEDS = 2**32
"""A caller's function gets a seed below this, which NumPy takes, too; PyTorch's generator is seeded with all of it."""
CONSTANT = "inputs(seed) ignores the seed: a callable that caches results would not be noticed"


# --- inputs -----------------------------------------------------------------------------------------------------------


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
            raise ValueError("inputs(seed) is not deterministic: draw with torch, or from the seed")
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
    return _kinds(some) == _kinds(others) and all(torch.equal(x, y) for x, y in zip(some, others, strict=True))


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
    output: tuple[tuple[int, ...], torch.dtype]
    bounded: bool
    """Whether the peak of `dtype` bounds every kernel on these inputs."""
    aside: Callable[[], AbstractContextManager[None]]
    """Context for the caller's functions that are not measured."""
    work: float = 0
    """FLOPs of one call; `traffic`: bytes of one call. 0: unknown."""
    traffic: int = 0

    def inputs(self, device: str, seed: int, distribution: Distribution = "normal") -> Inputs:
        with self.aside():
            return Inputs(self.source.draw(seed), {})

    def output_like(self, inputs: Inputs) -> tuple[tuple[int, ...], torch.dtype]:
        return self.output

    def check(self, inputs: Inputs, seed: int, thorough: bool) -> Iterator[Piece]:
        """One piece: the whole output. The yardstick is the reference in the inputs' own dtype, never the baseline."""
        with self.aside():
            plain = self.truth(*in_dtype(inputs.tensors, None)).detach().clone()
            right = plain.double() if self.exact is None else self.truth(*in_dtype(inputs.tensors, self.exact)).detach()
        if self.whose and not torch.isfinite(right).all():
            raise ValueError(f"the {self.whose}'s output is not finite on these inputs: draw other inputs")
        yield Piece(None, right[None], plain[None])

    def flops(self) -> int:
        return int(self.work)

    def bytes_moved(self) -> tuple[int, int]:
        shape, dtype = self.output
        written = min(self.traffic, torch.Size(shape).numel() * dtype.itemsize)
        return self.traffic - written, written


def in_dtype(tensors: Tensors, dtype: torch.dtype | None) -> list[torch.Tensor]:
    """Copies; floating-point ones in another dtype."""
    return [t.to(dtype) if dtype and t.is_floating_point() and t.dtype != dtype else t.clone() for t in tensors]


def exact_dtype(reference: Kernel, tensors: Tensors, own: torch.dtype) -> torch.dtype:
    """float64 if the reference supports it, else float32 if that is more precise than its own dtype. Raises
    ValueError."""
    if str(own).removeprefix("torch.") not in DTYPES:
        raise ValueError(f"a reference judges outputs of {', '.join(DTYPES)}, not of {own}: leave it out")
    why = ""
    for dtype in (torch.float64, torch.float32):
        if dtype.itemsize > own.itemsize:
            try:
                got = as_output("the reference", reference(*in_dtype(tensors, dtype))).dtype
            except Exception as error:
                why = why or f"{type(error).__name__}: {error}"
                continue
            if got.itemsize > own.itemsize:
                return dtype
            why = why or f"it returns {got} for {dtype}"
    raise ValueError(f"the reference must also accept float64 (or float32) inputs, including weights: {why}")


def as_output(name: str, out: Any) -> torch.Tensor:
    """The output, if it is one non-empty floating-point tensor. Raises TypeError if not."""
    if type(out) is not torch.Tensor:
        raise TypeError(f"{name} returned {a(type(out))}, not one torch.Tensor: wrap it so that it returns one")
    if not out.is_floating_point() or not out.numel():
        raise TypeError(f"{name} returned {out.numel()} elements of {out.dtype}: only floating outputs are measured")
    return out


def peak_dtype(tensors: Sequence[torch.Tensor]) -> Dtype | None:
    """The dtype whose peak bounds work on these tensors; None if no peak is listed (8 bits, float64)."""
    narrowest = min(tensor.element_size() for tensor in tensors if tensor.dtype != torch.bool)
    return next((dtype.name for dtype in DTYPES.values() if dtype.bytes == narrowest), None)

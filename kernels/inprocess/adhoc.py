"""Inputs and problem from a caller of measure(), as an operation for the bench."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, ClassVar

import torch
from pydantic import ConfigDict
from torch.overrides import TorchFunctionMode

from kernels.child.nonfinite import as_held
from kernels.child.nudges import Nudges, nudged_piece
from kernels.child.outputs import as_tuple
from kernels.child.poison import fill, same
from kernels.child.widening import Inexact, Way, way_of, why_not_repeatable
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
UNFILLED = "is not initialised by inputs(seed): it is filled, and a kernel that writes there is called incorrect"
CONSTANT = "inputs(seed) ignores the seed: a callable that caches results would not be noticed"


# --- inputs -----------------------------------------------------------------------------------------------------------


class Filling(TorchFunctionMode):  # type: ignore[misc]
    """While it is on, `torch.empty` and its like fill what they make."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if "empty" in getattr(func, "__name__", "") and isinstance(out, torch.Tensor):
            fill(out)
        return out


class Unfit(ValueError):
    """Inputs or a reference that cannot be used: no fault of a kernel."""


class Source:
    """Draws inputs: new tensors for each seed, on one device, with the memory layout of the caller's tensors.

    The caller's tensors are never written. PyTorch's generator is seeded around the caller's function and restored.
    """

    def __init__(
        self, given: Any, device: torch.device | str | None, seed: int | None, called: str = "inputs(seed)"
    ) -> None:
        """called: what messages call the caller's function."""
        self.called = called
        self.seed = seed = secret() if seed is None else seed
        self.notes: list[str] = []
        self.fills = False
        """Whether memory that the caller's function does not initialise is filled."""
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
        if not _equal(first, again := self.draw(seed)):
            first = self._filled(_unlike(first, again))
        if callable(given) and _equal(first, self.draw(seed + 1)):
            self.notes.append(CONSTANT)

    def _filled(self, which: list[int]) -> Tensors:
        """The inputs of the seed, if some were only not initialised: new memory is filled from now on. Raises Unfit."""
        names = " and ".join(f"inputs[{position}]" for position in which)
        self.fills = True
        first = self.draw(self.seed)
        if not _equal(first, self.draw(self.seed)):
            raise Unfit(
                f"{self.called} is not deterministic: {names} differs for the same seed: draw with torch"
                f"{', or from the seed' if 'seed' in self.called else ', or from a generator with a fixed seed'}"
            )
        self.notes.append(f"{names} {UNFILLED}")
        return first

    def draw(self, seed: int) -> Tensors:
        """Raises TypeError or ValueError if the result is not a tuple of tensors on one device, or its shapes change
        with the seed."""
        gpus = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
        with torch.random.fork_rng(devices=gpus):
            torch.default_generator.manual_seed(seed)
            for gpu in gpus:
                torch.cuda.default_generators[gpu].manual_seed(seed)
            with Filling() if self.fills else contextlib.nullcontext():
                tensors = checked(self.give(seed % CALLERS_SEEDS))
        own = tuple(_laid_out_like(tensor, tensor, self.device) for tensor in tensors)
        if self.kinds and _kinds(own) != self.kinds:
            raise ValueError(f"{self.called} must have the same shapes, dtypes and device for every seed")
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


def _unlike(some: Tensors, others: Tensors) -> list[int]:
    """Which of them differ."""
    return [number for number, (one, other) in enumerate(zip(some, others, strict=True)) if not same(one, other)]


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
    exact: Way | None
    """How `truth` gives the exact answer. None: `truth` is not a reference; outputs only have to agree with it."""
    outputs: tuple[Like, ...]
    """(shape, dtype) of each output."""
    bounded: bool
    """Whether the peak of `dtype` bounds every kernel on these inputs. Not in float32 without a reference: tf32 is
    faster, and agrees with the baseline."""
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

    @cached_property
    def nudges(self) -> Nudges | None:
        return Nudges(self.exact, self.truth, as_tuple) if self.exact is not None else None

    def inputs(self, device: str, seed: int, distribution: Distribution = "normal") -> Inputs:
        with self.aside():
            return Inputs(self.source.draw(seed), {})

    def output_like(self, inputs: Inputs) -> Like | tuple[Like, ...]:
        return self.outputs if len(self.outputs) > 1 else self.outputs[0]

    def check(self, inputs: Inputs, seed: int, thorough: bool) -> Iterator[Piece]:
        """One piece for each output: all of it. The yardstick is the reference in the inputs' own dtype, never the
        baseline."""
        with self.aside():
            plain = [one.detach().clone() for one in as_tuple(self.truth(*copies(inputs.tensors)))]
            right = plain
            if self.exact is not None:
                right = [one.detach() for one in as_tuple(self.exact.outputs(self.truth, inputs.tensors))]
            nudged = self.nudges.answers(inputs.tensors, plain, right) if self.nudges else []
        for number, (one, yard) in enumerate(zip(right, plain, strict=True)):
            if yard.is_floating_point():
                one = one.double() if self.exact is None or one.dtype == yard.dtype else one
                one, yard = as_held(one, yard)
                if self.whose and not torch.isfinite(one).any():
                    raise Unfit(f"the {self.whose}'s output is nowhere finite on these inputs: draw other inputs")
            answers = nudged_piece(nudged[number]) if nudged else None
            yield Piece(None, one[None], yard[None], output=number, nudged=answers)

    def flops(self) -> int:
        return int(self.work)

    def bytes_moved(self) -> tuple[int, int]:
        sizes = [torch.Size(shape).numel() * dtype.itemsize for shape, dtype in self.outputs]
        written = min(self.traffic, sum(sizes))
        return self.traffic - written, written


def of_reference(why: str) -> str:
    """Why an output is wrong, where the yardstick is the caller's reference."""
    return why.replace("eager PyTorch's own", "the reference's own")


def copies(tensors: Tensors) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in tensors]


def exact_way(reference: Kernel, tensors: Tensors, own: Sequence[torch.Tensor]) -> Way:
    """How the reference gives the exact answer. Raises ValueError, and Unfit if it has none.

    own: its outputs for these tensors.
    """
    if odd := unjudged(own):
        raise ValueError(f"a reference judges outputs of {', '.join(DTYPES)}, not of {odd}: leave it out")
    if why := why_not_repeatable(own, as_outputs("the reference", reference(*copies(tensors)))):
        raise Unfit(f"the reference cannot judge: {why}")
    try:
        return way_of(reference, tensors, own, lambda out: as_outputs("the reference", out))
    except Inexact as error:
        raise Unfit(f"the reference has no exact answer, in float64 or float32: {error}") from None


def unjudged(own: Sequence[torch.Tensor]) -> torch.dtype | None:
    """The first floating-point dtype of outputs in which no errors are judged."""
    found = (out.dtype for out in own if out.is_floating_point())
    return next((dtype for dtype in found if str(dtype).removeprefix("torch.") not in DTYPES), None)


def as_outputs(name: str, out: Any) -> tuple[torch.Tensor, ...]:
    """The outputs: one non-empty tensor of real numbers or truth values, or several in a tuple or a list. Raises
    TypeError if they are something else."""
    several = type(out) in (tuple, list) and len(out) > 1
    for one in out if several else (out,):
        if why := why_no_output(one):
            advice = "" if type(one) is torch.Tensor else ": wrap it so that it returns these"
            raise TypeError(f"{name} {why}{advice}")
    return tuple(out) if several else (out,)


def why_no_output(one: Any) -> str:
    """Why this is not an output that can be judged, as what a function did; empty if it is."""
    if type(one) is not torch.Tensor:
        return f"returned {a(type(one))}, not a torch.Tensor or several"
    if not one.numel() or one.is_complex() or (one.is_floating_point() and one.element_size() == 1):
        return (
            f"returned {one.numel()} elements of {one.dtype}: outputs have elements of floating-point numbers "
            "of 16 to 64 bits, of integers, or of bool"
        )
    return ""


def like(outs: Sequence[torch.Tensor]) -> tuple[Like, ...]:
    """(shape, dtype) of each output."""
    return tuple((tuple(out.shape), out.dtype) for out in outs)


def peak_dtype(tensors: Sequence[torch.Tensor]) -> Dtype | None:
    """The dtype whose peak bounds work on these tensors; None if no peak is listed (8 bits, float64)."""
    narrowest = min((tensor.element_size() for tensor in tensors if tensor.dtype != torch.bool), default=1)
    return next((dtype.name for dtype in DTYPES.values() if dtype.bytes == narrowest), None)

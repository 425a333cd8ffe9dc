"""The exact answer of a reference that names its dtypes: it is called as it is written, but in a wider dtype.

Most references compute in float32 and end with a cast, `.to(torch.bfloat16)`. With float64 inputs they would do the same. While
`Widening` is on, PyTorch's functions give the wider dtype wherever a narrower floating-point dtype is named, made or given:
casts, new tensors, and weights. So no step rounds. Casts to fp8 and to whole numbers stay: what is rounded to few values is
another function.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from kernels.child.errors import FEW
from kernels.dtypes import DTYPES

WIDER = (torch.float64, torch.float32)
"""Dtypes that are exact enough to judge narrower outputs, the best first."""
NUMBERS = (torch.float16, torch.bfloat16, torch.float32, torch.complex32, torch.complex64)
CASTS = {
    torch.Tensor.half: torch.float16, torch.Tensor.bfloat16: torch.bfloat16, torch.Tensor.float: torch.float32,
}  # fmt: skip
CONVERSIONS = {torch.Tensor.to, torch.Tensor.type, torch.Tensor.type_as}
AS_WRITTEN = {"view", "frombuffer"}
"""Functions that read bits: their dtype says which."""
RANDOM = {
    "normal", "normal_", "log_normal_", "uniform_", "exponential_", "bernoulli", "bernoulli_", "cauchy_", "geometric_", "poisson",
}  # fmt: skip
"""Functions that draw other values in another dtype, beside those whose names begin with "rand"."""
ROUNDING = {"round", "round_", "floor", "floor_", "ceil", "ceil_", "trunc", "trunc_", "sign", "sign_", "frac", "fix"}
"""Names of functions that give few values as floating-point numbers."""
Nudge = Callable[[str, torch.Tensor], None]
"""Changes the result of a function, which has this name, in place."""
DTYPE_OF = torch.Tensor.dtype.__get__


CHANGING = "called again with the same inputs, it gives other values: it draws random numbers, or keeps state"


TF32 = ": PyTorch computes convolutions and RNNs in tf32 on a GPU, unless torch.backends.cudnn.allow_tf32 is False"


class Inexact(ValueError):
    """A reference without an exact answer. The message says why."""


class Way(NamedTuple):
    """How a reference is called for its exact answer."""

    dtype: torch.dtype
    told: bool
    """Whether its inputs say that they have their own dtypes: code that asks does what it does for these."""

    def outputs(self, call: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> Any:
        """What a call returns. The tensors are not changed."""
        out, _ = self._called(call, tensors)
        return out

    def nudged(self, call: Callable[..., Any], tensors: Sequence[torch.Tensor], nudge: Nudge) -> tuple[Any, Widening]:
        """What a call returns whose results on the way are nudged, and what it did."""
        return self._called(call, tensors, nudge)

    def _called(
        self, call: Callable[..., Any], tensors: Sequence[torch.Tensor], nudge: Nudge | None = None
    ) -> tuple[Any, Widening]:
        given = [one.to(self.dtype, copy=True) if _is_number(one.dtype) else one.clone() for one in tensors]
        own = {id(wide): one.dtype for wide, one in zip(given, tensors, strict=True)} if self.told else {}
        given_as = {one.dtype for one in tensors if _is_number(one.dtype)}
        with Widening(self.dtype, own, nudge, given_as) as mode, _uncompiled():
            return call(*given), mode


def way_of(
    call: Callable[..., Any],
    tensors: Sequence[torch.Tensor],
    plain: Sequence[torch.Tensor],
    outputs_of: Callable[[Any], Sequence[torch.Tensor]],
) -> Way:
    """The best way to the exact answer of a reference: float64, or else float32 if all outputs are narrower. Raises Inexact.

    plain: its outputs for these tensors, as it is written. outputs_of: a list of what a call returns, or raises.
    """
    whys: list[tuple[bool, str]] = []
    """Whether it returned values, and what is wrong."""
    sizes = [one.element_size() for one in plain if one.is_floating_point()]
    for way in (Way(dtype, told) for dtype in WIDER for told in (True, False)):
        if way.dtype != WIDER[0] and not all(size < way.dtype.itemsize for size in sizes):
            continue
        try:
            exact = outputs_of(way.outputs(call, tensors))
        except Exception as error:  # whatever code that was not made for this dtype raises, or too little memory
            whys.append((False, f"{type(error).__name__}: {error}"))
            continue
        if why := _why_not_like(plain, exact, way.dtype) or _why_far(plain, exact):
            whys.append((True, why))
            continue
        return way
    raise Inexact(max(whys, key=lambda one: one[0])[1])


def _why_not_like(plain: Sequence[torch.Tensor], exact: Sequence[torch.Tensor], dtype: torch.dtype) -> str:
    """Why these are not the same outputs in this dtype; empty if they are."""
    if [one.shape for one in exact] != [one.shape for one in plain]:
        return f"its outputs have other shapes in {dtype}"
    wanted = [dtype if _is_number(one.dtype) else one.dtype for one in plain]
    if (found := [one.dtype for one in exact]) != wanted:
        return f"it returns {' and '.join(map(str, found))} for {dtype}"
    return ""


def _why_far(plain: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> str:
    """Why a reference is another function where no step rounds: as it is written, it would be called wrong itself. It may cast,
    keep state in a narrow dtype, or run under autocast. Empty if it would not be."""
    for one, right in zip(plain, exact, strict=True):
        row = DTYPES.get(str(one.dtype).removeprefix("torch."))
        known = torch.isfinite(right)
        if not known.all():
            one, right = one[known], right[known]
        if row is None or one.numel() < FEW:
            continue
        size = torch.linalg.vector_norm(right)
        error, rounded = (float(torch.linalg.vector_norm(x - right) / size) for x in (one, right.to(one.dtype)))
        cap = max(row.frobenius_cap, row.factor * rounded)
        if size and not error <= cap:
            away = f"its answer in {one.dtype} is {error:.2g} away from that in {right.dtype}, and a kernel may be {cap:.2g} away"
            return away + (TF32 if _may_be_tf32(one) else "")
    return ""


def _may_be_tf32(output: torch.Tensor) -> bool:
    return output.is_cuda and output.dtype == torch.float32 and torch.backends.cudnn.allow_tf32


def why_not_repeatable(first: Sequence[torch.Tensor], again: Sequence[torch.Tensor]) -> str:
    """Why a reference cannot judge: called twice with the same inputs, it gives other values. Empty if it gives the same, but for
    the order in which it adds."""
    for one, other in zip(first, again, strict=True):
        same = one.shape == other.shape and one.dtype == other.dtype
        if same and one.is_floating_point():
            known = torch.isfinite(one)
            same = torch.equal(known, torch.isfinite(other)) and not _why_far([other[known]], [one[known].double()])
        elif same:
            same = torch.equal(one, other)
        if not same:
            return CHANGING
    return ""


@contextlib.contextmanager
def _uncompiled() -> Iterator[None]:
    """What torch.compile compiled runs as it is written."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def _is_number(dtype: torch.dtype) -> bool:
    """Whether it is a floating-point dtype that is widened: fp8 is not."""
    return dtype.is_floating_point and dtype.itemsize > 1


class Widening(TorchFunctionMode):  # type: ignore[misc]
    """While it is on, PyTorch's functions compute in a wider dtype than the code says."""

    def __init__(
        self,
        dtype: torch.dtype,
        own: Mapping[int, torch.dtype],
        nudge: Nudge | None = None,
        narrow: Iterable[torch.dtype] = (),
    ) -> None:
        """own: what tensors say that their dtype is, by id. nudge: is called with the name of each function and its result.
        narrow: dtypes of the inputs as they were."""
        super().__init__()
        self.dtype, self.own, self.nudge = dtype, own, nudge
        wide = {one: dtype.to_complex() if one.is_complex else dtype for one in NUMBERS}
        self.wider = {narrow: wider for narrow, wider in wide.items() if narrow.itemsize < wider.itemsize}
        self.outside: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """Narrow tensors that were not made here, such as weights, and what is read and written in their place."""
        self.narrow = set(narrow)
        """Dtypes that the code named, made or got."""
        self.decides = False
        """Whether the code made whole numbers, truth values or fp8 of numbers, or rounded them."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if func == DTYPE_OF:
            return self.own.get(id(args[0])) or self._wide(func(*args))
        if name == "__get__":
            out = func(*args)
            return func(*self._wide(args)) if isinstance(out, torch.Tensor) else out  # x.T
        if _is_random(name) or (name in AS_WRITTEN and _names_dtype(args, kwargs)):
            return self._made(self._of_bits(func, args, kwargs))
        if func in CASTS:
            func, args = torch.Tensor.to, (args[0], CASTS[func], *args[1:])
        args = self._wide(args)
        out = func(*args, **self._wide(kwargs))
        if self.nudge is not None and self._is_wide(out):
            self.nudge(name, out)
        self.decides |= name in ROUNDING or (_has_few_values(out) and any(map(self._is_wide, args)))
        if func in CONVERSIONS and out is args[0]:  # as written it is a copy, which may be changed
            return out.clone()
        return self._made(out)

    def _is_wide(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.dtype == self.dtype

    def _made(self, out: Any) -> Any:
        """What a function returned, in the wider dtype. Nobody else has it."""
        if isinstance(out, torch.Tensor) and out.dtype in self.wider:
            return out.to(self.wider[out.dtype])
        return self._wide(out)

    def _of_bits(self, func: Any, args: Any, kwargs: Any) -> Any:
        if args and isinstance(args[0], torch.Tensor) and args[0].dtype == self.dtype:
            others = (
                f"draws random numbers like its inputs, which are others in {str(self.dtype).removeprefix('torch.')}"
            )
            raise TypeError(f"it {others if _is_random(func.__name__) else 'reads the bits of its numbers'}")
        return func(*args, **kwargs)

    def _wide(self, value: Any) -> Any:
        """The same with wider dtypes: of a dtype, a tensor, and what is in tuples, lists and dicts."""
        if isinstance(value, torch.Tensor):
            if value.dtype not in self.wider:
                return value
            self.narrow.add(value.dtype)
            if id(value) not in self.outside:
                self.outside[id(value)] = value, value.to(self.wider[value.dtype])
            return self.outside[id(value)][1]
        if isinstance(value, torch.dtype):
            self.narrow |= {value} & self.wider.keys()
            return self.wider.get(value, value)
        if isinstance(value, dict):
            return {name: self._wide(one) for name, one in value.items()}
        if isinstance(value, (tuple, list)):
            wide = [self._wide(one) for one in value]
            same = all(new is old for new, old in zip(wide, value, strict=True))
            return value if same else type(value)(wide)
        return value


def _has_few_values(out: Any) -> bool:
    """Whether a tensor of whole numbers, truth values or fp8 is among what a function returned."""
    outs = out if isinstance(out, tuple) else (out,)
    return any(isinstance(one, torch.Tensor) and not (_is_number(one.dtype) or one.is_complex()) for one in outs)


def _is_random(name: str) -> bool:
    return name.startswith("rand") or name in RANDOM


def _names_dtype(args: Any, kwargs: Any) -> bool:
    return any(isinstance(one, torch.dtype) for one in (*args, *kwargs.values()))

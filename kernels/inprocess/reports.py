"""Files with triton.testing.perf_report: what their benchmarks would time, taken instead and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernels.analysis.correctness import why_nonfinite
from kernels.child.nonfinite import Nonfinite
from kernels.formats.found import Found

LIBRARIES = ("torch", "pytorch", "naive", "native", "eager", "reference", "ref", "cublas", "rocblas", "cudnn", "aten")
"""Providers that are right, in this order; another name that holds one of these follows."""
TOLERANCE = {torch.float16: 5e-3, torch.bfloat16: 2e-2, torch.float32: 3e-3, torch.float64: 1e-6}
"""Largest norm of the difference, relative to the norm of the output: a tf32 product is within it."""
OF_PART = 4
"""The same for the worst row, and for the worst element relative to the largest one: this many times as much."""
TINY = 1e-30
SHORTEST_ROW = 16
"""Columns of a row that is compared alone."""
LEAST_ROW = 0.25
"""A row's difference is relative to this share of the rows' usual norm, at least: a sum may be near 0."""


class NothingTimed(ValueError):
    """A benchmark that calls neither do_bench nor do_bench_cudagraph."""


def reported(found: Found, load: Callable[[Path, str], ModuleType]) -> Iterator[Callable[[], str]]:
    """For each provider of each report a comparison: why it is wrong, or empty."""
    import triton.testing

    timed: list[Callable[[], Any]] = []

    def taken(call: Callable[[], Any], *_: Any, quantiles: Any = None, **__: Any) -> Any:
        timed.append(call)
        return [1.0] * len(quantiles) if quantiles else 1.0

    for name in ("do_bench", "do_bench_cudagraph"):
        setattr(triton.testing, name, taken)
    module = load(Path(found.path), "benchsite_report")
    for function in found.more["functions"]:
        yield from _of_one(getattr(module, function), timed)


def _of_one(mark: Any, timed: list[Callable[[], Any]]) -> Iterator[Callable[[], str]]:
    for benchmark in mark.benchmarks if isinstance(mark.benchmarks, list) else [mark.benchmarks]:
        providers = list(benchmark.line_vals)
        right = _right(providers)

        def output(provider: Any, benchmark: Any = benchmark) -> Any:
            timed.clear()
            torch.manual_seed(0)
            mark.fn(**_smallest(benchmark), **{benchmark.line_arg: provider}, **benchmark.args)
            if not timed:
                raise NothingTimed("its benchmark times nothing with triton.testing.do_bench")
            return timed[-1]()

        for provider in [p for p in providers if p != right] or providers:
            yield partial(_compared, output, provider, right)


def _compared(output: Callable[[Any], Any], provider: Any, right: Any) -> str:
    return _difference(output(provider), output(right), str(right))


def _smallest(benchmark: Any) -> dict[str, Any]:
    """The arguments of the first point of a plot: the smallest, as these files have them."""
    x = benchmark.x_vals[0]
    values = x if isinstance(x, (list, tuple)) else [x] * len(benchmark.x_names)
    return dict(zip(benchmark.x_names, values, strict=True))


def _right(providers: list[Any]) -> Any:
    """The provider that others are compared with. Raises ValueError if no library is among them."""
    for library in LIBRARIES:
        for provider in providers:
            if str(provider).lower() == library:
                return provider
    for provider in providers:
        if any(library in str(provider).lower() for library in LIBRARIES):
            return provider
    if len(providers) == 1:
        raise ValueError(f"its only provider is {providers[0]}: a second one, such as torch, would say what is right")
    raise ValueError(f"none of its providers ({', '.join(map(str, providers))}) is a library that says what is right")


def _difference(out: Any, right: Any, whose: str) -> str:
    outs, rights = (list(one) if isinstance(one, (tuple, list)) else [one] for one in (out, right))
    if not all(isinstance(one, torch.Tensor) for one in (*outs, *rights)):
        return "what it times returns no tensor: nothing can be compared"
    if [tuple(o.shape) for o in outs] != [tuple(r.shape) for r in rights]:
        return f"its output has shape {tuple(outs[0].shape)}, that of {whose} {tuple(rights[0].shape)}"
    for one, other in zip(outs, rights, strict=True):
        if one.dtype != other.dtype:
            return f"its output is of {one.dtype}, that of {whose} of {other.dtype}"
        if one.numel() and (why := _why_unlike(one.double(), other.double(), whose, TOLERANCE.get(one.dtype, 0.0))):
            return f"it differs from {whose}{why}"
    return ""


def _why_unlike(out: torch.Tensor, right: torch.Tensor, whose: str, allowed: float) -> str:
    """How an output differs, from a colon or a space on; empty if it does not. NaN and infinities must be the same. Raises
    ValueError where the other one is nowhere finite."""
    special = Nonfinite()
    kept = special.kept(right, right, out)
    if not kept.any():
        raise ValueError(f"the output of {whose} is nowhere finite: it judges nothing")
    nonfinite = int((~torch.isfinite(out[kept])).sum())
    if why := why_nonfinite({"nonfinite": nonfinite} | special.reading()):
        return f": {why}"
    away = _too_far(out.where(kept, 0), right.where(kept, 0), allowed)
    return f" {away} is allowed" if away else ""


def _too_far(out: torch.Tensor, right: torch.Tensor, allowed: float) -> str:
    """How far an output is away: as a whole, in its worst row, or in its worst element; empty if all are within what is
    allowed."""
    gap, most = out - right, OF_PART * allowed
    error = float(gap.norm() / right.norm().clamp_min(TINY))
    if not error <= allowed:
        return f"by {error:.2g} of its norm; {allowed:g}"
    if out.ndim > 1 and out.shape[-1] >= SHORTEST_ROW:
        norms = right.norm(dim=-1)
        least = (LEAST_ROW * norms.square().mean().sqrt()).clamp_min(TINY)
        row = float((gap.norm(dim=-1) / norms.clamp_min(least)).max())
        if not row <= most:
            return f"in one row by {row:.2g} of its norm; {most:g}"
    element = float(gap.abs().max() / right.abs().max().clamp_min(TINY))
    return "" if element <= most else f"in one element by {element:.2g} of the largest one; {most:g}"

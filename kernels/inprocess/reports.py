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
TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 3e-2, torch.float32: 5e-3, torch.float64: 1e-6}
"""Largest norm of the difference, relative to the norm of the output: a tf32 product is within it."""


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
        special = Nonfinite()
        wide, exact = one.double(), other.double()
        kept = special.kept(exact, exact, wide)
        if not kept.any():
            raise ValueError(f"the output of {whose} is nowhere finite: it judges nothing")
        nonfinite = int((~torch.isfinite(wide[kept])).sum())
        if why := why_nonfinite({"nonfinite": nonfinite} | special.reading()):
            return f"it differs from {whose}: {why}"
        wide, exact = wide[kept], exact[kept]
        error = float((wide - exact).norm() / exact.norm().clamp_min(1e-30))
        if not error <= (allowed := TOLERANCE.get(one.dtype, 0.0)):
            return f"it differs from {whose} by {error:.2g} of its norm; {allowed:g} is allowed"
    return ""

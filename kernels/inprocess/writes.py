"""Callables of measure() that write into their argument `out`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernels.child.into import returning, takes_out, wants_out
from kernels.inprocess.adhoc import Kernel, Source, as_outputs, copies, like
from kernels.inprocess.judged import BASELINE
from kernels.inprocess.session import InProcess


def give_outputs(bench: InProcess, source: Source, reference: Kernel | None, out: Kernel | None) -> None:
    """Makes callables with a parameter `out` return what they write. Raises TypeError if nobody says how it is made.

    out: makes it from the inputs. Without it, callables that need an `out` get a tensor like the output of the reference,
    or of a baseline that returns one.
    """
    if out is not None:
        writing = [arm for arm, call in bench.callables.items() if takes_out(call)]
        if not writing:
            raise TypeError("out= is for callables with a parameter named out: there is none")
    else:
        writing = [arm for arm, call in bench.callables.items() if wants_out(call)]
        if writing:
            out = _like_the_output(bench, source, reference, writing)
    for arm in writing:
        assert out is not None
        bench.use(arm, returning(bench.callables[arm], out))


def _like_the_output(
    bench: InProcess, source: Source, reference: Kernel | None, writing: list[str]
) -> Callable[..., Any]:
    known = reference or (None if BASELINE in writing else bench.callables.get(BASELINE))
    if known is None:
        raise TypeError(
            f"{writing[0]} writes into its argument out: say how that is made, such as out=torch.empty_like, or give a reference"
        )
    with bench.aside():
        likes = like(as_outputs("the reference", known(*copies(source.draw(source.seed)))))

    def new(*tensors: torch.Tensor) -> Any:
        made = tuple(torch.empty(shape, dtype=dtype, device=tensors[0].device) for shape, dtype in likes)
        return made if len(made) > 1 else made[0]

    return new

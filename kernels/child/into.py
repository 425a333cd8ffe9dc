"""Callables that write into their argument `out`, seen as callables that return a new output."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

NAME = "out"
Call = Callable[..., Any]


def wants_out(call: Call) -> bool:
    """Whether a callable has a parameter `out` without a default."""
    parameter = _parameter(call)
    return parameter is not None and parameter.default is inspect.Parameter.empty


def takes_out(call: Call) -> bool:
    """Whether a callable has a parameter `out`."""
    return _parameter(call) is not None


def _parameter(call: Call) -> inspect.Parameter | None:
    try:
        found = inspect.signature(call).parameters.get(NAME)
    except (TypeError, ValueError):  # a builtin without a signature
        return None
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return found if found is not None and found.kind in named else None


def returning(call: Call, new: Call) -> Call:
    """A callable that makes the output by `new`, passes it as `out`, and returns it. What `call` returns is ignored.

    new: called with the inputs; returns one tensor, or several in a tuple. Its time is part of the call, as in a
    callable that returns a new tensor.
    """

    def run(*tensors: Any, **options: Any) -> Any:
        made = new(*tensors)
        call(*tensors, **options, **{NAME: made})
        return made

    return run

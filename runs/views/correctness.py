"""Correctness facts of a result: its errors beside eager PyTorch's, other checks, other inputs and sizes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from kernels.contract.arm_result import Correctness
from kernels.operations.base import DISTRIBUTIONS
from runs.templatetags.figures import error

ERRORS = (
    ("max_abs", "yard_abs", "largest absolute error"),
    ("frobenius", "yard_frobenius", "relative Frobenius error"),
    ("row", "yard_row", "relative error of the worst row"),
    ("column", "yard_column", "relative error of the worst column"),
)
"""(error, eager PyTorch's error in the workload's dtype, name)."""
LOOKED_AT = (
    ("deterministic", True, "deterministic", "not deterministic"),
    ("inputs_changed", False, "inputs unchanged", "the kernel changed its inputs"),
    ("shared", False, "a new output for each call", "calls share one output"),
    ("late", False, "complete when the call returns", "not complete when the call returns"),
    ("unwritten", 0, "every element written", "elements never written"),
    ("nonfinite", 0, "no unexpected NaN or Inf", "unexpected NaN or Inf"),
    ("constant", False, "not constant", "constant"),
    ("allclose", True, "allclose at 1e-2", "not allclose at 1e-2"),
)
"""(fact, good value, words if good, words if bad)."""
CHANCE = 2
"""So many standard errors, or fewer, may be chance."""
COUNTS = (("seeds", "seeds checked before timing"), ("timed_calls_checked", "outputs from the rounds checked"))
TABLES = {"distributions": "inputs", "edges": "size"}
"""Facts shown as a table -> heading of its first column."""
NO_FAULT = ("right", "not judged", "unsupported")
"""Prefixes of entries that do not count against the kernel."""


def _undecided(correctness: Correctness) -> str:
    """How many elements rounding decides; empty if none."""
    if not (correctness.undecided and correctness.elements):
        return ""
    return f"{correctness.undecided} of {correctness.elements} elements: rounding decides them"


def facts(correctness: Correctness | None) -> list[tuple[str, str]]:
    """The facts as (name, text) pairs."""
    if correctness is None:
        return []
    word = "not known" if correctness.correct is None else "yes" if correctness.correct else "no"
    pairs = [("correct", word), ("why not", correctness.why), ("the problem's own check", correctness.own_check)]
    for own, yard, name in ERRORS:
        if (mine := getattr(correctness, own)) is not None:
            its = getattr(correctness, yard)
            pairs.append((name, error(mine) + (f"; eager PyTorch {error(its)}" if its is not None else "")))
    pairs.append(("undecided by the reference itself", _undecided(correctness)))
    pairs += [("systematic error", _systematic(correctness)), ("products", correctness.precision or "")]
    pairs += [(name, str(count)) for key, name in COUNTS if (count := getattr(correctness, key)) is not None]
    known = [
        (value == good, words, fault)
        for key, good, words, fault in LOOKED_AT
        if (value := getattr(correctness, key)) is not None
    ]
    pairs.append(("passed", "; ".join(words for passed, words, _ in known if passed)))
    pairs.append(("not passed", "; ".join(fault for passed, _, fault in known if not passed)))
    return [(name, words) for name, words in pairs if words]


def _systematic(correctness: Correctness) -> str:
    """How much too large or too small the output is on average: "0.0032% too large, standard error 0.0009%"; "none seen" where
    it may be chance."""
    slope, its_error = correctness.slope, correctness.slope_error
    if slope is None or its_error is None:
        return ""
    if abs(slope) <= CHANCE * its_error:
        return f"none seen, standard error {_percent(its_error)}"
    return f"{_percent(abs(slope))} too {'large' if slope > 0 else 'small'}, standard error {_percent(its_error)}"


def _percent(share: float) -> str:
    """With two significant digits: 0.00087%."""
    decimals = 1 - math.floor(math.log10(100 * share)) if share else 0
    return f"{100 * share:.{max(0, decimals)}f}%"


def tables(correctness: Correctness | None) -> list[dict[str, Any]]:
    """The small tables: right or wrong on other inputs, and on edge sizes."""
    return [
        {
            "heading": heading,
            "rows": [(what, said, is_fault(said)) for what, said in sorted(found.items(), key=_order)],
        }
        for name, heading in TABLES.items()
        if (found := getattr(correctness, name, None))
    ]


def is_fault(said: str) -> bool:
    return not said.startswith(NO_FAULT)


def _order(row: tuple[str, str]) -> tuple[int, list[tuple[int, str]]]:
    """Sort key: inputs in the library's order; S=63 before S=127."""
    what = row[0]
    parts = [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", what)]
    return _place(what, DISTRIBUTIONS), parts


def _place(name: str, known: Sequence[str]) -> int:
    return known.index(name) if name in known else len(known)

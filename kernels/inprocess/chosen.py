"""The small problems on which a kernel of an operation is tried: few, and each shows what the others do not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError

from kernels.catalog import KernelInfo
from kernels.config_files import configs
from kernels.operations.base import EDGE_SIZES, Operation
from kernels.workload import Workload

MOST, MOST_REFUSED = 8, 40
"""Problems that a kernel is tried on; others that it may call unsupported when it is called."""
USUAL, LEAST = 1, 3
"""Workloads of configs among them, at least; problems of a kernel that declares to support few uneven sizes, or none."""
MOST_BYTES, MOST_FLOPS = 2**25, 2**31
TILE = 16
UNEVEN = tuple(size for size in EDGE_SIZES if size > TILE)
"""Sizes of more than one tile, the last of which is not full."""


class Chosen:
    """Problems that a kernel declares to support, one after the other, until each trait was in one of them."""

    def __init__(self, info: KernelInfo) -> None:
        usual, edges = problems_for(info)
        self.usual = usual
        self.traits = {problem: traits(problem) for problem in edges}
        self.tried: list[Operation] = []
        self.refused = 0

    def __iter__(self) -> Iterator[Operation]:
        while len(self.tried) < MOST - USUAL and self.refused < MOST_REFUSED and (problem := self._next()):
            self.tried.append(problem)
            yield problem
        count = max(USUAL, LEAST - len(self.tried))
        for problem in self.usual[len(self.usual) // (count + 1) :: len(self.usual) // (count + 1) or 1][:count]:
            self.tried.append(problem)
            yield problem

    def refuse(self, problem: Operation) -> None:
        """The kernel does not support this one: another one shows its traits."""
        self.tried.remove(problem)
        self.traits.pop(problem, None)
        self.refused += 1

    def _next(self) -> Operation | None:
        """The one with the most traits that were in none, and the smallest of these: plain ones first."""
        seen = {trait for problem in self.tried for trait in self.traits[problem]}
        new = {problem: len(found - seen) for problem, found in self.traits.items() if found - seen}
        plain = [problem for problem in new if not said_sizes(problem)]
        return max(plain or new, key=lambda problem: new[problem], default=None)


def problems_for(info: KernelInfo) -> tuple[list[Operation], list[Operation]]:
    """(workloads of the configs, and problems at uneven sizes) that the kernel declares to support, the smallest first."""
    dtypes = info.dtypes or ("float32", "float16")
    known = [w.problem for config in configs() for w in config.workloads if w.operation == info.operation]

    def fitting(problems: Sequence[Operation]) -> list[Operation]:
        each = (changed(problem, dtype=dtype) for problem in problems for dtype in dtypes)
        unlike = dict.fromkeys(one for one in each if one and not info.why_not_for(one.dtype, one.model_dump()))
        return sorted(unlike, key=lambda one: one.flops())

    every = fitting(known)
    kinds = {(has_one(problem), *said_sizes(problem)): problem for problem in reversed(every)}
    varied = [one for problem in kinds.values() for values in _options(problem) if (one := changed(problem, **values))]
    edges = fitting([edge for problem in varied for edge in _edges(problem)])
    return [problem for problem in every if is_small(problem)], [problem for problem in edges if is_small(problem)]


def is_small(problem: Operation) -> bool:
    return problem.tensor_bytes <= MOST_BYTES and problem.flops() <= MOST_FLOPS


def changed(problem: Operation, **values: Any) -> Operation | None:
    """The problem with other values; None if it has no such values."""
    try:
        return type(problem)(**problem.model_dump() | values)
    except ValidationError:
        return None


def said_sizes(problem: Operation) -> list[str]:
    """Sizes that it must say, because they are not what they are if nothing is said."""
    workload = Workload(operation=problem.name, dtype=problem.dtype, sizes=problem.sizes())
    may_be_left_out = [name for name, field in type(problem).model_fields.items() if not field.is_required()]
    optional = {*may_be_left_out, *_may_be_empty(problem)}
    return [name for name in workload.brief_sizes if name in optional.difference(options_of(problem))]


def _may_be_empty(problem: Operation) -> list[str]:
    extras = {name: field.json_schema_extra for name, field in type(problem).model_fields.items()}
    return [name for name, extra in extras.items() if isinstance(extra, dict) and extra.get("may_be_empty")]


def _options(problem: Operation) -> Iterator[dict[str, Any]]:
    """Every combination of the values of its options."""
    fields = type(problem).model_fields
    values = {name: get_args(fields[name].annotation) or (False, True) for name in options_of(problem)}
    for combination in itertools.product(*values.values()):
        yield dict(zip(values, combination, strict=True))


def options_of(problem: Operation) -> list[str]:
    """Names of its sizes that are one of a few values."""
    kinds = {name: field.annotation for name, field in type(problem).model_fields.items() if name != "dtype"}
    return [name for name, kind in kinds.items() if kind is bool or get_origin(kind) is Literal]


def has_one(problem: Operation) -> bool:
    """Whether a size that it cannot leave out is 1."""
    fields = type(problem).model_fields
    return any(field.is_required() and getattr(problem, name) == 1 for name, field in fields.items())


def _edges(problem: Operation) -> list[Operation]:
    """Its edges, and one where all sizes are uneven that are so in one of them."""
    edges = list(problem.edges())
    found = {name: {getattr(edge, name) for edge in edges} for name in type(problem).model_fields}
    uneven = [name for name, sizes in found.items() if len(sizes) > 1 and any(map(is_uneven, sizes))]
    values = {name: UNEVEN[number % len(UNEVEN)] for number, name in enumerate(uneven)}
    every = changed(edges[0], **values) if edges else None
    return [*edges, every] if every else edges


def is_uneven(size: Any) -> bool:
    return type(size) is int and size > TILE and size % TILE != 0


def traits(problem: Operation) -> set[tuple[Any, ...]]:
    """What shows in it: its uneven sizes, sizes that it must say, its dtype, the values of its options, alone and beside such a
    size; or a size of 1, beside which an option may do nothing."""
    if has_one(problem):
        return {("", 1)}
    values, said = problem.model_dump(), said_sizes(problem)
    uneven: set[tuple[Any, ...]] = {(name, "uneven") for name, size in values.items() if is_uneven(size)}
    if not uneven:
        return set()
    options = [(name, values[name]) for name in options_of(problem)]
    beside = [(*option, name) for option in options for name in said]
    return uneven | {*options, *beside, ("dtype", problem.dtype)} | {(name, "said") for name in said}

"""Tensor maps: they tell the hardware that copies tiles (TMA) where a tensor lies. No GPU, no torch.

    // @call("copy<T>", tensor_map(x, 64, 128, swizzle=128), out, cols)

The numbers are the box: how many elements one copy takes of each dimension. The innermost dimension is the first, as for the
driver. The map is of the whole tensor.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kernels.nvrtc.expressions import BadExpression, Expression, Typed

NAME = "tensor_map"
EXAMPLE = "tensor_map(x, 64, 128, swizzle=128)"
CHOICES = {"swizzle": (0, 32, 64, 128), "l2": (0, 64, 128, 256)}
"""Bytes that a declaration may choose. The driver knows each by its place here: CUtensorMapSwizzle, CUtensorMapL2promotion."""
DEFAULTS = {"swizzle": Expression(ast.Constant(0)), "l2": Expression(ast.Constant(128))}
MOST_DIMENSIONS = 5
MOST_OF_BOX = 256
SIZE_LIMIT, STRIDE_LIMIT = 2**32, 2**40
ALIGNED = 16
"""Bytes: addresses, strides and the rows of a box are multiples of it."""
BYTES = ("uint8", "int8", "bool", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn_x2")
KINDS = {
    **dict.fromkeys(BYTES, 0),
    "int16": 1,
    "uint16": 1,
    "uint32": 2,
    "int32": 3,
    "uint64": 4,
    "int64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bfloat16": 9,
}
"""PyTorch's dtype -> its CUtensorMapDataType."""


class Refused(Exception):
    """The hardware has no such map. The message says why."""


class Box(NamedTuple):
    """What a declaration says of a map, computed for a workload."""

    text: str
    sizes: tuple[int, ...]
    """Innermost first."""
    swizzle: int
    l2: int


class Layout(NamedTuple):
    """What the driver is told, innermost dimension first."""

    kind: int
    address: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    """Bytes, of all dimensions but the innermost."""
    box: tuple[int, ...]
    swizzle: int
    l2: int


@dataclass(frozen=True)
class TensorMap:
    """An argument of @call that is a map."""

    text: str
    tensor: str
    sizes: tuple[Expression, ...]
    swizzle: Expression
    l2: Expression

    @classmethod
    def parsed(cls, node: ast.Call) -> TensorMap:
        """Raises BadExpression, also for a number that no tensor allows."""
        text = ast.unparse(node)
        tensor, sizes = node.args[0] if node.args else None, node.args[1:]
        if not isinstance(tensor, ast.Name):
            raise BadExpression(f"`{text}`: {NAME} takes the name of a tensor and the numbers of its box: {EXAMPLE}")
        if not 1 <= len(sizes) <= MOST_DIMENSIONS:
            raise BadExpression(f"`{text}`: the box has {len(sizes)} dimensions; it must have one to {MOST_DIMENSIONS}")
        given = {one.arg or "**": one.value for one in node.keywords}
        if unknown := sorted(given.keys() - CHOICES.keys()):
            raise BadExpression(f"`{text}`: {NAME} has no `{unknown[0]}`; it has {' and '.join(CHOICES)}")
        chosen = DEFAULTS | {name: Expression(value) for name, value in given.items()}
        found = cls(text, tensor.id, tuple(map(Expression, sizes)), **chosen)
        found._check_constants()
        return found

    @property
    def names(self) -> frozenset[str]:
        """Names of tensors, sizes and options that it uses."""
        return frozenset({self.tensor}).union(*(one.names for one in (*self.sizes, self.swizzle, self.l2)))

    def box(self, values: Mapping[str, Any]) -> Box:
        """Raises BadExpression for what is no box."""
        sizes = tuple(self._size(one, values) for one in self.sizes)
        return Box(self.text, sizes, self._choice("swizzle", values), self._choice("l2", values))

    def _check_constants(self) -> None:
        for one in self.sizes:
            if not one.names and self._size(one, {}) > MOST_OF_BOX:
                raise BadExpression(f"`{self.text}`: {one.text} is too much; a box has at most {MOST_OF_BOX}")
        for name in CHOICES:
            if not getattr(self, name).names:
                self._choice(name, {})

    def _size(self, one: Expression, values: Mapping[str, Any]) -> int:
        found = _plain(one.value(values))
        if type(found) is not int or found < 1:
            raise BadExpression(f"`{self.text}`: `{one.text}` is {found}; it must be a whole number above 0")
        return found

    def _choice(self, name: str, values: Mapping[str, Any]) -> int:
        found = _plain(getattr(self, name).value(values))
        if type(found) is not int or found not in CHOICES[name]:
            raise BadExpression(f"`{self.text}`: {name} is {found}; it must be {_or(CHOICES[name])}")
        return found


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Typed) else value


def _or(values: Sequence[int]) -> str:
    return f"{', '.join(map(str, values[:-1]))} or {values[-1]}"


def layout(box: Box, dtype: str, itemsize: int, address: int, shape: Sequence[int], stride: Sequence[int]) -> Layout:
    """What the driver is told of a tensor. shape, stride: as PyTorch has them. Raises Refused, or BadExpression
    for a box of other dimensions."""
    if dtype not in KINDS:
        raise Refused(f"there is no tensor map of {dtype}")
    if len(shape) != len(box.sizes):
        raise BadExpression(f"`{box.text}`: the box has {len(box.sizes)} and the tensor {len(shape)} dimensions")
    sizes = tuple(shape)[::-1]
    strides = _strides(sizes, tuple(step * itemsize for step in stride)[::-1], itemsize)
    if why := _why_no_box(box, itemsize) or _why_no_tensor(sizes, strides, itemsize, address):
        raise Refused(why)
    swizzle, l2 = CHOICES["swizzle"].index(box.swizzle), CHOICES["l2"].index(box.l2)
    return Layout(KINDS[dtype], address, sizes, strides[1:], box.sizes, swizzle, l2)


def _strides(sizes: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """In bytes, of all dimensions. That of a dimension with one element means nothing: it gets one that the driver takes."""
    found: list[int] = []
    for place, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        free = itemsize if place == 0 else -(-sizes[place - 1] * found[-1] // ALIGNED) * ALIGNED
        found.append(free if size == 1 else stride)
    return tuple(found)


def _why_no_box(box: Box, itemsize: int) -> str:
    row = box.sizes[0] * itemsize
    if max(box.sizes) > MOST_OF_BOX:
        return f"the box has {max(box.sizes)} elements in a dimension; it may have {MOST_OF_BOX}"
    if row % ALIGNED:
        return f"a row of the box has {row} bytes; it must have a multiple of {ALIGNED}"
    if box.swizzle and row > box.swizzle:
        return f"a row of the box has {row} bytes; with swizzle={box.swizzle} it may have {box.swizzle}"
    return ""


def _why_no_tensor(sizes: tuple[int, ...], strides: tuple[int, ...], itemsize: int, address: int) -> str:
    if not all(sizes):
        return "the tensor has no elements"
    if max(sizes) > SIZE_LIMIT:
        return f"the tensor has {max(sizes):,} elements in a dimension; it may have {SIZE_LIMIT:,}"
    if strides[0] != itemsize:
        return f"the last dimension of the tensor has the stride {strides[0] // itemsize}; it must have 1"
    for stride in strides[1:]:
        if stride % ALIGNED or not 0 <= stride < STRIDE_LIMIT:
            return f"a dimension of the tensor has a stride of {stride:,} bytes; it must be a multiple of {ALIGNED}"
    if address % ALIGNED:
        return f"the tensor begins at an address that is no multiple of {ALIGNED}"
    return ""

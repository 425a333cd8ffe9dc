"""Expressions of a .cu file's declaration, such as `ceil_div(rows, 4)`. They are parsed, checked and computed, never run.

A value is a number, a bool, a tensor (its shape and strides) or a tuple of values.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {ast.USub: operator.neg, ast.Not: operator.not_}
COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class Tensor(NamedTuple):
    """What expressions may ask of a tensor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]


class Typed(NamedTuple):
    """A number with the C++ type that the declaration chose for it: "long", "double", ..."""

    kind: str
    value: Any


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """The smallest power of 2 that is at least n."""
    return 1 << max(0, int(n) - 1).bit_length()


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ceil_div": ceil_div,
    "next_power_of_2": next_power_of_2,
    "min": min,
    "max": max,
    "int": lambda value: Typed("int", int(value)),
    "long": lambda value: Typed("long", int(value)),
    "float": lambda value: Typed("float", float(value)),
    "double": lambda value: Typed("double", float(value)),
    "bool": lambda value: Typed("bool", bool(value)),
}
OF_TENSORS = ("shape", "stride")
ALLOWED = (
    "numbers, names, + - * / // %, comparisons, and/or/not, `a if b else c`, x.shape[0], x.stride[0] and "
    + ", ".join(f"{name}()" for name in FUNCTIONS)
)


class BadExpression(ValueError):
    """An expression has a part that is not allowed, or cannot be computed. The message says which."""


@dataclass(frozen=True)
class Expression:
    """A checked expression."""

    node: ast.expr

    def __post_init__(self) -> None:
        _check(self.node)

    @classmethod
    def parsed(cls, text: str) -> Expression:
        try:
            return cls(ast.parse(text.strip(), mode="eval").body)
        except SyntaxError:
            raise BadExpression(f"`{text.strip()}` is not an expression") from None

    @property
    def text(self) -> str:
        return ast.unparse(self.node)

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of tensors, sizes and options that it uses."""
        return frozenset(_names(self.node))

    def value(self, values: Mapping[str, Any]) -> Any:
        """Computes it. Raises BadExpression if that is impossible."""
        try:
            return _value(self.node, values)
        except BadExpression:
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise BadExpression(f"`{self.text}` cannot be computed: {error}") from None


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    children = [*node.args] if isinstance(node, ast.Call) else list(ast.iter_child_nodes(node))
    for child in children:
        yield from _names(child)


def _check(node: ast.expr) -> None:
    """Raises unless every part is allowed."""
    match node:
        case ast.Constant(value=bool() | int() | float()) | ast.Name():
            return
        case ast.BinOp(op=op) if type(op) in BINARY:
            children = [node.left, node.right]
        case ast.UnaryOp(op=op) if type(op) in UNARY:
            children = [node.operand]
        case ast.BoolOp():
            children = node.values
        case ast.Compare() if all(type(op) in COMPARE for op in node.ops):
            children = [one for one in (node.left, *node.comparators) if not _is_word(one)]
        case ast.IfExp():
            children = [node.test, node.body, node.orelse]
        case ast.Tuple():
            children = node.elts
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in FUNCTIONS:
            children = node.args
        case ast.Subscript(value=ast.Attribute(value=ast.Name(), attr=what)) if what in OF_TENSORS:
            children = [node.slice]
        case _:
            raise BadExpression(f"`{ast.unparse(node)}` is not allowed; allowed are {ALLOWED}")
    for child in children:
        _check(child)


def _is_word(node: ast.expr) -> bool:
    """A word may be compared with an option that is one."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    def of(child: ast.expr) -> Any:
        found = _value(child, values)
        return found.value if isinstance(found, Typed) else found

    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return values[node.id]
        case ast.BinOp():
            return BINARY[type(node.op)](of(node.left), of(node.right))
        case ast.UnaryOp():
            return UNARY[type(node.op)](of(node.operand))
        case ast.BoolOp():
            wanted = isinstance(node.op, ast.Or)
            return next((True for one in node.values if bool(of(one)) == wanted), False) == wanted
        case ast.Compare():
            sides = [of(side) for side in (node.left, *node.comparators)]
            return all(COMPARE[type(op)](a, b) for op, a, b in zip(node.ops, sides, sides[1:], strict=False))
        case ast.IfExp():
            return _value(node.body if of(node.test) else node.orelse, values)
        case ast.Tuple():
            return tuple(of(one) for one in node.elts)
        case ast.Call(func=ast.Name(id=name)):
            return FUNCTIONS[name](*map(of, node.args))
        case ast.Subscript(value=ast.Attribute(value=tensor, attr=what)):
            return getattr(of(tensor), what)[of(node.slice)]
    raise BadExpression(f"`{ast.unparse(node)}` is not allowed")

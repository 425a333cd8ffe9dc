"""A flashinfer definition and its solution, read from JSON: shapes, files, and the function that is called."""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from kernels.submission import Unreadable

LONGEST_AXIS = 2**31
VAR_AXIS = 1024
"""Length of an axis that the definition leaves open, where no workload gives one."""
FLOATING = ("float16", "bfloat16", "float32", "float64")
DTYPE = re.compile(r"bool|u?int(?:8|16|32|64)|b?float16|float(?:32|64)|float8_\w+|float4_\w+|complex(?:32|64|128)")
"""Names of PyTorch's dtypes."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.UAdd: operator.pos, ast.USub: operator.neg,
}  # fmt: skip
Array = dict[str, Any]
"""{"shape": names or lengths of axes, or None of a number; "dtype"}"""


@dataclass(frozen=True)
class Definition:
    """Inputs and outputs by name, their shapes in names of axes."""

    name: str
    reference: str
    axes: dict[str, int | None]
    """None: workloads give the length."""
    inputs: dict[str, Array]
    outputs: dict[str, Array]
    expressions: dict[str, str] = field(default_factory=dict)
    """Of axes whose lengths follow from those of others."""
    custom: str = ""
    """The function of the reference that makes inputs, from the lengths of the axes and a device; empty: there is none."""

    def lengths(self, given: Mapping[str, int] | None = None, usual: int | None = None) -> dict[str, int]:
        """Of its axes: given, or its own; those that it leaves open have the usual one. Raises Unreadable."""
        found = {axis: usual if length is None else length for axis, length in self.axes.items()} | dict(given or {})
        known = {axis: length for axis, length in found.items() if length is not None}
        for axis, said in self.expressions.items():
            try:
                known[axis] = length_of(said, known)
            except KeyError:  # of an axis that is open
                continue
            except (ArithmeticError, MemoryError, RecursionError, SyntaxError, TypeError, ValueError) as error:
                raise Unreadable(
                    f"the axis {axis} of {self.name}, {said[:60]!r}, has no length: {error or 'too long'}"
                ) from None
        return known

    def arrays(self, of: dict[str, Array], lengths: dict[str, int]) -> list[Array]:
        """Its inputs or outputs with these lengths. An axis without one keeps its name."""
        return [
            one | {"shape": None if one["shape"] is None else [lengths.get(axis, axis) for axis in one["shape"]]}
            for one in of.values()
        ]

    @property
    def why_not_alone(self) -> str:
        """Why it cannot be measured without workloads; empty if it can."""
        tensors = ((name, one["dtype"]) for name, one in self.inputs.items() if one["shape"] is not None)
        if odd := [f"{name} of {dtype}" for name, dtype in tensors if dtype not in FLOATING]:
            return f"its input {odd[0]} needs values: add the workloads of {self.name}, a .jsonl file"
        return ""


@dataclass(frozen=True)
class Solution:
    """Its files, and the one with the function."""

    name: str
    files: dict[str, str]
    entry: str
    function: str
    into: bool = True
    """Whether its spec says that it writes into its last arguments, which is what a spec says that is silent."""


def definition_in(text: str, name: str) -> Definition:
    """Raises Unreadable. name: of the file, for the message."""
    said, file = json.loads(text), PurePosixPath(name).name
    try:
        if odd := [axis for axis, one in said["axes"].items() if not isinstance(one, dict)]:
            raise ValueError(f'the axis {odd[0]} must be a mapping, such as {{"type": "var"}}')
        expressions = {axis: str(one["expression"]) for axis, one in said["axes"].items() if one.get("type") == "expr"}
        axes = {
            axis: None if (length := one.get("value")) is None else int(length)
            for axis, one in said["axes"].items() if axis not in expressions
        }  # fmt: skip
        inputs, outputs = (
            {array: _array(array, one, {*axes, *expressions}) for array, one in said[what].items()}
            for what in ("inputs", "outputs")
        )
        custom = str(said.get("custom_inputs_entrypoint") or "")
        if custom and (not NAME.fullmatch(custom) or f"def {custom}(" not in str(said["reference"])):
            raise ValueError(f"custom_inputs_entrypoint {custom[:40]!r} is no function of the reference")
        ast.parse(str(said["reference"]))
    except SyntaxError as error:
        raise Unreadable(f"the reference of {file} is not Python: {error.msg}, in its line {error.lineno}") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, MemoryError) as error:
        raise Unreadable(f"{file} cannot be read as a definition: {type(error).__name__}: {error}") from None
    return Definition(str(said["name"]), str(said["reference"]), axes, inputs, outputs, expressions, custom)


def length_of(expression: str, lengths: Mapping[str, int]) -> int:
    """The length of an axis that is computed from others: "batch * heads // 2". Raises KeyError for an axis without a length,
    and errors of arithmetic and syntax."""
    length = _value(ast.parse(expression, mode="eval").body, lengths)
    if length != int(length) or not 0 < length < LONGEST_AXIS:
        raise ValueError(f"it is {length:g}")
    return int(length)


def _value(node: ast.expr, lengths: Mapping[str, int]) -> float:
    if isinstance(node, ast.Name):
        return lengths[node.id]
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
        return float(OPERATORS[type(node.op)](_value(node.operand, lengths)))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        base, power = _value(node.left, lengths), _value(node.right, lengths)
        return float(base) ** power  # of floats: a large power is an OverflowError, not an hour
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return float(OPERATORS[type(node.op)](_value(node.left, lengths), _value(node.right, lengths)))
    raise SyntaxError(f"{ast.unparse(node)[:40]} is no arithmetic of axes")


def _array(name: str, said: dict[str, Any], axes: set[str]) -> Array:
    shape = said["shape"]
    if unknown := [axis for axis in shape or () if axis not in axes]:
        raise KeyError(unknown[0])
    if not isinstance(said["dtype"], str) or not NAME.fullmatch(said["dtype"]):
        raise ValueError("a dtype is no name")
    if not DTYPE.fullmatch(said["dtype"]):
        raise ValueError(f"the dtype {said['dtype'][:40]} of {name} is unknown: PyTorch has no dtype of this name")
    return {"shape": shape, "dtype": said["dtype"]}


def solution_in(text: str, name: str, beside: dict[str, str] | None = None) -> Solution:
    """Raises Unreadable. name: of the file, for the message. beside: other files, by their paths: a source without content is
    one of them, in the solution's folder."""
    said, folder, beside = json.loads(text), PurePosixPath(name).parent, beside or {}
    file = PurePosixPath(name).name
    sources = said.get("sources") if isinstance(said, dict) else None
    if not isinstance(sources, list) or not all(isinstance(one, dict) and "path" in one for one in sources):
        raise Unreadable(f"{file} cannot be read as a solution: its sources must be a list, each with its path")
    try:
        files = {str(one["path"]): str(one.get("content") or beside[str(folder / one["path"])]) for one in sources}
        entry, function = str(said["spec"]["entry_point"]).split("::")
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"{file} cannot be read as a solution: {type(error).__name__}: {error}") from None
    if entry not in files or "/" in entry or not entry.endswith(".py") or not NAME.fullmatch(function):
        raise Unreadable(f"the entry_point in {file} must be a function in a .py file of its sources, in no folder")
    into = bool(said["spec"].get("destination_passing_style", True))
    return Solution(str(said.get("name") or name), files, entry, function, into)


def names_for(text: str, function: str, inputs: Sequence[str], outputs: Sequence[str], into: bool) -> list[str]:
    """The names of the arguments of a function that can only be called by name: `run(*, x, w)`, `run(**given)`. Empty: it is
    called by position. into: whether a function of any arguments gets the outputs, too."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # whoever imports it says so
        return []
    made = (node for node in body if isinstance(node, ast.FunctionDef) and node.name == function)
    if (said := next(made, None)) is None:
        return []
    of = said.args
    needed = [one for one, default in zip(of.kwonlyargs, of.kw_defaults, strict=True) if default is None]
    if not needed and not (of.kwarg and len(of.args) < len(inputs)):
        return []
    known = {one.arg for one in (*of.args, *of.kwonlyargs)}
    gets_outputs = {*outputs} <= known or (of.kwarg is not None and into)
    return [*inputs, *(outputs if gets_outputs else ())]

"""A flashinfer definition and its solution, read from JSON: shapes, files, and the function that is called."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from kernels.submission import Unreadable

VAR_AXIS = 1024
"""Length of an axis that the definition leaves open, where no workload gives one."""
FLOATING = ("float16", "bfloat16", "float32", "float64")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
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

    def lengths(self, usual: int | None = None) -> dict[str, int]:
        """Of its axes; those that it leaves open have the usual one."""
        found = {axis: usual if length is None else length for axis, length in self.axes.items()}
        return {axis: length for axis, length in found.items() if length is not None}

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


def definition_in(text: str, name: str) -> Definition:
    """Raises Unreadable. name: of the file, for the message."""
    said = json.loads(text)
    try:
        axes = {
            axis: None if (length := one.get("value")) is None else int(length) for axis, one in said["axes"].items()
        }
        inputs, outputs = (
            {name: _array(one, axes) for name, one in said[what].items()} for what in ("inputs", "outputs")
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unreadable(f"{name} cannot be read as a definition: {type(error).__name__}: {error}") from None
    return Definition(str(said["name"]), str(said["reference"]), axes, inputs, outputs)


def _array(said: dict[str, Any], axes: dict[str, int | None]) -> Array:
    shape = said["shape"]
    if unknown := [axis for axis in shape or () if axis not in axes]:
        raise KeyError(unknown[0])
    if not isinstance(said["dtype"], str) or not NAME.fullmatch(said["dtype"]):
        raise ValueError("a dtype is no name")
    return {"shape": shape, "dtype": said["dtype"]}


def solution_in(text: str, name: str, beside: dict[str, str] | None = None) -> Solution:
    """Raises Unreadable. name: of the file, for the message. beside: other files, by their paths: a source without content is
    one of them, in the solution's folder."""
    said, folder, beside = json.loads(text), PurePosixPath(name).parent, beside or {}
    try:
        files = {
            str(one["path"]): str(one.get("content") or beside[str(folder / one["path"])]) for one in said["sources"]
        }
        entry, function = str(said["spec"]["entry_point"]).split("::")
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"{name} cannot be read as a solution: {type(error).__name__}: {error}") from None
    if entry not in files or "/" in entry or not entry.endswith(".py") or not NAME.fullmatch(function):
        raise Unreadable(f"the entry_point in {name} must be a function in a .py file of its sources, in no folder")
    return Solution(str(said.get("name") or name), files, entry, function)

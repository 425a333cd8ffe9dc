"""A flashinfer definition and its solution, read from JSON: shapes, files, and the function that is called."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from kernels.submission import Unreadable

VAR_AXIS = 1024
"""Length of an axis that the definition leaves open: workloads of a trace are not read."""
FLOATING = ("float16", "bfloat16", "float32", "float64")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


@dataclass(frozen=True)
class Definition:
    """Inputs and outputs as {"shape": sizes, or None of a number; "dtype"}."""

    name: str
    reference: str
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]


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
        axes = {axis: int(length.get("value", VAR_AXIS)) for axis, length in said["axes"].items()}
        inputs, outputs = ([_array(one, axes) for one in said[what].values()] for what in ("inputs", "outputs"))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unreadable(f"{name} cannot be read as a definition: {type(error).__name__}: {error}") from None
    if odd := [one["dtype"] for one in inputs if one["shape"] is not None and one["dtype"] not in FLOATING]:
        raise Unreadable(f"an input of {odd[0]} needs values from a workload, which are not read yet")
    return Definition(str(said["name"]), str(said["reference"]), inputs, outputs)


def _array(said: dict[str, Any], axes: dict[str, int]) -> dict[str, Any]:
    shape = said["shape"]
    if not isinstance(said["dtype"], str) or not NAME.fullmatch(said["dtype"]):
        raise ValueError("a dtype is no name")
    return {"shape": None if shape is None else [axes[axis] for axis in shape], "dtype": said["dtype"]}


def solution_in(text: str, name: str) -> Solution:
    """Raises Unreadable. name: of the file, for the message."""
    said = json.loads(text)
    try:
        files = {str(one["path"]): str(one["content"]) for one in said["sources"]}
        entry, function = str(said["spec"]["entry_point"]).split("::")
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"{name} cannot be read as a solution: {type(error).__name__}: {error}") from None
    if entry not in files or "/" in entry or not entry.endswith(".py") or not NAME.fullmatch(function):
        raise Unreadable(f"the entry_point in {name} must be a function in a .py file of its sources, in no folder")
    return Solution(str(said.get("name") or name), files, entry, function)

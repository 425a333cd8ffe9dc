"""Workloads of a flashinfer definition, from the lines of .jsonl files: lengths of axes, and where inputs come from.

An input is random, a number (scalar), a tensor of a safetensors file that is among the files, or custom: a function of the
definition makes it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from kernels.formats.cases import Cases, cases
from kernels.formats.definitions import LONGEST_AXIS, Definition
from kernels.formats.safetensors import tensor_in
from kernels.submission import Unreadable

SUFFIX = ".jsonl"


@dataclass
class Workloads:
    """Inputs of each workload, as {"shape"; "dtype"; and "value" of a number, "file" with a tensor's bytes, or "custom", its
    name}."""

    cases: Cases
    lengths: dict[str, dict[str, float]] = field(default_factory=dict)
    """Axes and numbers of each workload with a custom input: what the function that makes it gets."""
    values: dict[str, str] = field(default_factory=dict)
    """Name of a file -> bytes of a tensor in base64."""


def workloads_in(files: dict[str, str], of: Definition) -> Workloads | None:
    """None: there is no .jsonl file. Raises Unreadable."""
    traces = [name for name in files if name.endswith(SUFFIX)]
    if not traces:
        return None
    found = [one for name in traces for one in _lines(files[name], name, of.name)]
    found = list({json.dumps(one, sort_keys=True): one for one in found}.values())
    if not found:
        raise Unreadable(f"{' and '.join(traces)} has no workload of the definition {of.name}")
    beside = {PurePosixPath(name).name: text for name, text in files.items()}
    whys = [_why_not(one, of, beside) for one in found]
    able = [one for one, why in zip(found, whys, strict=True) if not why]
    if not able:
        raise Unreadable(f"no workload of {of.name} can be measured: {whys[-1]}")
    chosen = cases((_axes(one, of), one) for one in able)
    made = Workloads(Cases({}, chosen.left_out + [f"one: {why}" for why in dict.fromkeys(whys) if why]))
    for name, one in chosen.chosen.items():
        arrays = {said: _input(said, one, of, beside, made) for said in of.inputs}
        made.cases.chosen[name] = [*arrays.values()]
        if any("custom" in array for array in arrays.values()):
            numbers = {said: array["value"] for said, array in arrays.items() if "value" in array}
            made.lengths[name] = of.lengths(_axes(one, of)) | numbers
    return made


def _lines(text: str, name: str, definition: str) -> Iterator[dict[str, Any]]:
    """The workloads of a definition: a trace that was measured has one, too. In SOL-ExecBench a line is a workload itself, and
    names no definition: it is for the one beside it."""
    for number, line in enumerate(text.splitlines(), 1):
        try:
            said = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError):
            raise Unreadable(f"{name} cannot be read: line {number} is not JSON") from None
        if isinstance(said, dict) and said.get("definition", definition) == definition:
            workload = said.get("workload", said if {"axes", "inputs"} <= said.keys() else None)
            if isinstance(workload, dict):
                yield {part: workload.get(part) or {} for part in ("axes", "inputs", "uuid")}


def _source(said: str, workload: dict[str, Any]) -> dict[str, Any]:
    """Where an input comes from."""
    found = workload["inputs"].get(said, {}) if isinstance(workload["inputs"], dict) else {}
    return found if isinstance(found, dict) else {}


def _why_not(workload: dict[str, Any], of: Definition, beside: dict[str, str]) -> str:
    """Why a workload is left out, as a sentence; empty if it is not."""
    drawn = False
    for name, array in of.inputs.items():
        source = _source(name, workload)
        path = str(source.get("path", ""))
        if source.get("type") == "safetensors" and PurePosixPath(path).name not in beside:
            return f"its input {name} comes from {path[-100:]}, which is not among the files"
        if source.get("type") == "custom" and not of.custom:
            return f"its input {name} is custom, and the definition has no custom_inputs_entrypoint"
        drawn |= array["shape"] is not None and source.get("type", "random") in ("random", "custom")
    return "" if drawn else "all of its tensors have given values, so a kernel could remember its outputs"


def _axes(workload: dict[str, Any], of: Definition) -> dict[str, int]:
    """Lengths of the axes that the definition leaves open. Raises Unreadable."""
    found = {}
    for axis in (name for name, length in of.axes.items() if length is None):
        length = workload["axes"].get(axis) if isinstance(workload["axes"], dict) else None
        if not isinstance(length, int) or not 0 < length < LONGEST_AXIS:
            raise Unreadable(f"a workload of {of.name} gives no length of the axis {axis}")
        found[axis] = length
    return found


def _input(
    name: str, workload: dict[str, Any], of: Definition, beside: dict[str, str], made: Workloads
) -> dict[str, Any]:
    (array,) = of.arrays({name: of.inputs[name]}, of.lengths(_axes(workload, of)))
    source = _source(name, workload)
    kind = source.get("type", "random")
    if kind == "random":
        return array
    if kind == "custom":
        return array | {"custom": name}
    if kind == "scalar":
        value = source.get("value")
        if array["shape"] is not None or not isinstance(value, int | float) or not math.isfinite(value):
            raise Unreadable(
                f"the value of the input {name} of {of.name} must be a finite number, and the input no tensor"
            )
        return array | {"value": value}
    if kind != "safetensors":
        raise Unreadable(
            f"the input {name} of {of.name} is {str(kind)[:40]}: known are random, scalar, safetensors and custom"
        )
    path = PurePosixPath(str(source["path"])).name
    tensor = tensor_in(beside[path], str(source.get("tensor_key", "")), path)
    if (tensor.dtype, tensor.shape) != (array["dtype"], array["shape"]):
        wanted = f"{array['dtype']} {array['shape']}"
        raise Unreadable(f"the input {name} of {of.name} is {wanted}, and in {path} {tensor.dtype} {tensor.shape}")
    known = {text: file for file, text in made.values.items()}
    file = known.get(tensor.values, f"values_{len(made.values) + 1}.b64")
    made.values[file] = tensor.values
    return array | {"file": file}

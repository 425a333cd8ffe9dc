"""A kernel beside what it replaces, where a format has both: KernelBench, GPU MODE, flashinfer. Such a pair is a workload of
its own: it can be timed, although no operation of this repository has its sizes."""

from __future__ import annotations

import inspect
import json
import math
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import yaml

from kernels.formats.bringing import flashinfer_pair
from kernels.formats.found import FLASHINFER, GPU_MODE, KERNELBENCH, Found
from kernels.formats.safetensors import text_of
from kernels.inprocess.adhoc import Unfit
from kernels.inprocess.api import Measured, measure
from kernels.inprocess.modules import module_at
from kernels.problems.kernelbench import Reference, replacing
from kernels.problems.seeding import seeded
from kernels.protocol import EFFORTS, Protocol
from kernels.submission import Unreadable

SEED = 11
VAR_AXIS = 16
"""Length of an axis that no workload gives."""
MOST_CASES = 3
"""Workloads of a definition that are tried: the smallest."""
LARGEST = 2**26
"""Bytes of a file of tensors; larger ones are not read."""
TENSORS = re.compile(r'"path":\s*"([^"]+\.safetensors)"')


@dataclass
class Pair:
    """The kernel, what it replaces, and their inputs."""

    name: str
    call: Callable[..., Any]
    replaced: Callable[..., Any]
    truth: Callable[..., Any]
    """The same for comparisons, in any dtype."""
    give: Callable[[int], list[Any]]
    """The arguments of a seed: tensors, and others, which stay as they are."""

    @cached_property
    def places(self) -> list[int]:
        """Which arguments are tensors."""
        return [n for n, one in enumerate(self.give(SEED)) if isinstance(one, torch.Tensor)]

    def of_tensors(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A function of the tensors alone."""
        example, places = self.give(SEED), self.places

        def run(*tensors: Any) -> Any:
            values = list(example)
            for place, tensor in zip(places, tensors, strict=True):
                values[place] = tensor
            return call(*values)

        return run

    def tensors(self, seed: int) -> tuple[torch.Tensor, ...]:
        values = self.give(seed)
        return tuple(values[n] for n in self.places)


def pairs_of(found: Found, device: str) -> list[Pair]:
    """Loads a pair, on each of its workloads that are tried, the smallest first; none: its format has none, or its files do not
    say what the kernel replaces."""
    make = PAIRS.get(found.format)
    return make(found, device) if make else []


def timed(pair: Pair, device: str) -> Measured:
    """Is the kernel faster than what it replaces? In this process, quickly: a first answer."""
    return measure(
        {pair.name: pair.of_tensors(pair.call)},
        pair.of_tensors(pair.replaced),
        inputs=pair.tensors,
        reference=pair.of_tensors(pair.truth),
        device=device,
        protocol=Protocol(**EFFORTS["quick"]),
    )[pair.name]


# --- KernelBench ------------------------------------------------------------------------------------------------------


def _kernelbench(found: Found, device: str) -> list[Pair]:
    """Both models get the same seed, the same arguments and, where the names fit, the same weights."""
    problem = module_at(Path(found.problem), "benchsite_problem")
    mine = problem if found.problem == found.path else module_at(Path(found.path), "benchsite_solution")
    right = Reference(vars(problem), SEED, device)
    model = replacing(mine.ModelNew, right, SEED, device)

    def give(seed: int) -> list[Any]:
        with seeded(seed):
            return list(problem.get_inputs())

    return [Pair("ModelNew", model, right.model, right.truth, give)]


# --- GPU MODE ---------------------------------------------------------------------------------------------------------


@dataclass
class Task:
    """A problem of GPU MODE with a kernel for it."""

    reference: Any
    kernel: Callable[[Any], Any]
    tests: list[dict[str, Any]]
    benchmarks: list[dict[str, Any]]


def task_of(found: Found) -> Task:
    """Loads the problem's reference.py and the kernel. Raises ValueError without tests."""
    folder = Path(found.problem)
    task = yaml.safe_load(next(p for p in (folder / "task.yml", folder / "task.yaml") if p.is_file()).read_text())
    for entry in task.get("files") or []:
        source = folder / str(entry["source"])
        if source.is_file() and str(source.parent.resolve()) not in sys.path:
            sys.path.insert(0, str(source.parent.resolve()))
    sys.path.insert(0, str(folder))
    reference = module_at(folder / "reference.py", "reference")
    kernel = module_at(Path(found.path), "submission").custom_kernel
    tests, benchmarks = task.get("tests") or [], task.get("benchmarks") or []
    if not (tests or benchmarks):
        raise ValueError("its task.yml lists no tests")
    return Task(reference, kernel, tests or benchmarks, benchmarks or tests)


def _gpu_mode(found: Found, device: str) -> list[Pair]:
    """On the last benchmark of the problem, beside its ref_kernel; none without one, where inputs have no seed, and where
    they are neither a tensor nor a tuple."""
    task = task_of(found)
    right, make = getattr(task.reference, "ref_kernel", None), task.reference.generate_input
    if right is None or "seed" not in inspect.signature(make).parameters:
        return []
    size = task.benchmarks[-1]
    example = make(**size)
    if not isinstance(example, torch.Tensor | tuple | list):
        return []
    alone = isinstance(example, torch.Tensor)

    def give(seed: int) -> list[Any]:
        data = make(**size | {"seed": seed})
        return [data] if alone else list(data)

    def of_all(call: Callable[[Any], Any]) -> Callable[..., Any]:
        return call if alone else lambda *values: call(tuple(values))

    return [Pair("custom_kernel", of_all(task.kernel), of_all(right), of_all(right), give)]


# --- flashinfer -------------------------------------------------------------------------------------------------------


def _flashinfer(found: Found, device: str) -> list[Pair]:
    """As a submission of the same files is read and called, on the smallest of its workloads."""
    root = Path(tempfile.mkdtemp())
    try:
        brought = flashinfer_pair(texts_of(found), found.path, found.problem, VAR_AXIS)
    except Unreadable as error:
        raise Unfit(str(error)) from None
    for name, files in (("problem", brought.problem), ("kernel", brought.kernel)):
        for file, text in files.items():
            _write(root / name, file, text)
    reference = module_at(root / "problem" / "definition.py", "benchsite_problem").benchsite_reference(SEED, device)
    entry, function = json.loads(Path(found.path).read_text())["spec"]["entry_point"].split("::")
    call = module_at(root / "kernel" / entry, "benchsite_solution").benchsite_solution(SEED, device)
    cases = sorted(reference.cases, key=lambda name: _elements(reference.cases[name]))

    def giving(case: str) -> Callable[[int], list[Any]]:
        def give(seed: int) -> list[Any]:
            if case:
                reference.choose(case)
            return reference.inputs(seed)

        return give

    return [Pair(function, call, reference, reference, giving(case)) for case in cases[:MOST_CASES] or [""]]


def texts_of(found: Found) -> dict[str, str]:
    """The files of a solution, by their paths: its definition, its sources, its workloads, and the tensors that these name."""
    workloads = found.more.get("workloads", ())
    texts = {path: Path(path).read_text() for path in (found.path, found.problem, *workloads)}
    for one in json.loads(texts[found.path])["sources"]:
        source = Path(found.path).parent / one["path"]
        if not one.get("content") and source.is_file():
            texts[str(source)] = source.read_text()
    for name in {name for path in workloads for name in TENSORS.findall(texts[path])}:
        file = next((one for folder in Path(found.problem).parents if (one := folder / name).is_file()), None)
        if file and file.stat().st_size <= LARGEST:
            texts[str(file)] = text_of(file.read_bytes())
    return texts


def _write(folder: Path, name: str, text: str) -> None:
    target = (folder / name).resolve()
    if not target.is_relative_to(folder.resolve()):
        raise ValueError(f"the source {name} lies outside of its folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def _elements(inputs: list[dict[str, Any]]) -> int:
    return sum(math.prod(one["shape"]) for one in inputs if one["shape"] is not None)


PAIRS: dict[str, Callable[[Found, str], list[Pair]]] = {
    KERNELBENCH: _kernelbench,
    GPU_MODE: _gpu_mode,
    FLASHINFER: _flashinfer,
}

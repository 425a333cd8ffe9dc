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

from kernels.child.outputs import plain
from kernels.formats.bringing import flashinfer_pair
from kernels.formats.definitions import definition_in, solution_in
from kernels.formats.found import FLASHINFER, GPU_MODE, KERNELBENCH, Found
from kernels.formats.safetensors import text_of
from kernels.formats.tasks import Listed, listed_in
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
MOST_NAMED = 4
"""Weights named in a sentence."""
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
    dtypes: tuple[str, ...] = ()
    """What the problem says that the dtypes of its outputs are; empty: nothing."""
    called: str = "the inputs of a seed"
    """What the problem's files call `give`."""
    note: str = ""
    """What explains wrong outputs, if something does."""

    @cached_property
    def places(self) -> list[int]:
        """Which arguments are tensors."""
        return [n for n, one in enumerate(self.give(SEED)) if isinstance(one, torch.Tensor)]

    def of_tensors(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A function of the tensors alone: of a tuple or a list of any class, it returns a plain one, and of one output this."""
        example, places = self.give(SEED), self.places

        def run(*tensors: Any) -> Any:
            values = list(example)
            for place, tensor in zip(places, tensors, strict=True):
                values[place] = tensor
            out = plain(call(*values))
            return out[0] if isinstance(out, tuple | list) and len(out) == 1 else out

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

    note = _strangers(model, right.model)
    return [Pair("ModelNew", model, right.model, right.truth, give, called="get_inputs", note=note)]


def _strangers(model: torch.nn.Module, right: torch.nn.Module) -> str:
    """Which weights of a model are not those of the problem's, because no name and shape there fits; empty if all are."""
    own, given = ({name: one.shape for name, one in each.state_dict().items()} for each in (model, right))
    strange = [name for name, shape in own.items() if given.get(name) != shape]
    if not strange or not given:
        return ""
    named = ", ".join(strange[:MOST_NAMED]) + f" and {len(strange) - MOST_NAMED} more" * (len(strange) > MOST_NAMED)
    return f"its weights are others: Model has no {named} of this shape to copy from"


# --- GPU MODE ---------------------------------------------------------------------------------------------------------


@dataclass
class Task:
    """A problem of GPU MODE with a kernel for it."""

    reference: Any
    kernel: Callable[[Any], Any]
    tests: list[dict[str, Any]]
    benchmarks: list[dict[str, Any]]


def task_of(found: Found) -> Task:
    """Loads the problem's reference.py and the kernel. Raises Unfit if its task.yml cannot be read, or lists no tests."""
    folder = Path(found.problem)
    file = next(path for path in (folder / "task.yml", folder / "task.yaml") if path.is_file())
    listed = _listed(file)
    for entry in listed.sources:
        source = folder / entry
        if source.is_file() and str(source.parent.resolve()) not in sys.path:
            sys.path.insert(0, str(source.parent.resolve()))
    sys.path.insert(0, str(folder))
    reference = module_at(folder / "reference.py", "reference")
    kernel = module_at(Path(found.path), "submission").custom_kernel
    seed = {"seed": SEED} if "seed" in inspect.signature(reference.generate_input).parameters else {}
    tests, benchmarks = ([seed | one for one in each] for each in (listed.tests, listed.benchmarks))
    return Task(reference, kernel, tests or benchmarks, benchmarks or tests)


def _listed(file: Path) -> Listed:
    """What a task.yml lists, each with its sizes by name. Raises Unfit."""
    try:
        listed = listed_in(file.read_text(errors="replace"), file.name)
    except Unreadable as error:
        raise Unfit(str(error)) from None
    if not (listed.tests or listed.benchmarks):
        raise Unfit(f"its {file.name} lists no tests")
    for what, each in (("test", listed.tests), ("benchmark", listed.benchmarks)):
        if odd := [one for one in each if not isinstance(one, dict)]:
            raise Unfit(f"each {what} in {file.name} must give its sizes by name, not {str(odd[0])[:40]!r}")
    return listed


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

    return [Pair("custom_kernel", of_all(task.kernel), of_all(right), of_all(right), give, called="generate_input")]


# --- flashinfer -------------------------------------------------------------------------------------------------------


def _flashinfer(found: Found, device: str) -> list[Pair]:
    """As a submission of the same files is read and called, on the smallest of its workloads. Raises Unreadable if the solution
    cannot be read, and Unfit if its problem cannot."""
    root, texts = Path(tempfile.mkdtemp()), texts_of(found)
    solution_in(texts[found.path], found.path, texts)
    try:
        definition = definition_in(texts[found.problem], found.problem)
        brought = flashinfer_pair(texts, found.path, found.problem, VAR_AXIS)
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

    said = tuple(one["dtype"] if one["shape"] is not None else "" for one in definition.outputs.values())
    return [Pair(function, call, reference, reference, giving(case), said) for case in cases[:MOST_CASES] or [""]]


def texts_of(found: Found) -> dict[str, str]:
    """The files of a solution, by their paths: its definition, its sources, its workloads, and the tensors that these name."""
    workloads = found.more.get("workloads", ())
    texts = {path: Path(path).read_text() for path in (found.path, found.problem, *workloads)}
    sources = json.loads(texts[found.path])["sources"]
    for one in sources if isinstance(sources, list) else []:
        source = Path(found.path).parent / str(one.get("path", "")) if isinstance(one, dict) else None
        if source and not one.get("content") and source.is_file():
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

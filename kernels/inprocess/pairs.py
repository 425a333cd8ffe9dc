"""A kernel beside what it replaces, where a format has both: KernelBench, GPU MODE, flashinfer. Such a pair is a workload of
its own: it can be timed, although no operation of this repository has its sizes."""

from __future__ import annotations

import inspect
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import yaml

from kernels.formats.found import FLASHINFER, GPU_MODE, KERNELBENCH, Found
from kernels.inprocess.api import Measured, measure
from kernels.inprocess.modules import module_at
from kernels.problems.flashinfer import in_order
from kernels.problems.kernelbench import Reference, converted, replacing
from kernels.protocol import EFFORTS, Protocol

SEED = 11
VAR_AXIS = 16
"""Length of an axis that no workload gives."""


@dataclass
class Pair:
    """The kernel, what it replaces, and their inputs."""

    name: str
    call: Callable[..., Any]
    replaced: Callable[..., Any]
    truth: Callable[..., Any]
    """The same in any dtype: its weights follow the inputs."""
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


def pair_of(found: Found, device: str) -> Pair | None:
    """Loads a pair; None: its format has none, or its files do not say what the kernel replaces."""
    make = PAIRS.get(found.format)
    return make(found, device) if make else None


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


def _kernelbench(found: Found, device: str) -> Pair:
    """Both models get the same seed, the same arguments and, where the names fit, the same weights."""
    problem = module_at(Path(found.problem), "benchsite_problem")
    mine = problem if found.problem == found.path else module_at(Path(found.path), "benchsite_solution")
    right = Reference(vars(problem), SEED, device)
    model = replacing(mine.ModelNew, right, SEED, device)

    def give(seed: int) -> list[Any]:
        torch.manual_seed(seed)
        return list(problem.get_inputs())

    return Pair("ModelNew", model, right.model, _in_any_dtype(right.model), give)


def _in_any_dtype(model: torch.nn.Module) -> Callable[..., Any]:
    """The model as a function that also takes float64 inputs: its weights follow them."""
    own = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)
    given: list[Any] = []

    def run(*tensors: Any) -> Any:
        wanted = next((t.dtype for t in tensors if isinstance(t, torch.Tensor) and t.is_floating_point()), None)
        given[:] = given or [wanted]
        if own is None or wanted == given[0] or wanted is None:
            return model(*tensors)
        return converted(model, wanted)(*tensors)

    return run


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


def _gpu_mode(found: Found, device: str) -> Pair | None:
    """On the last benchmark of the problem, beside its ref_kernel; None without one, where inputs have no seed, and where
    they are neither a tensor nor a tuple."""
    task = task_of(found)
    right, make = getattr(task.reference, "ref_kernel", None), task.reference.generate_input
    if right is None or "seed" not in inspect.signature(make).parameters:
        return None
    size = task.benchmarks[-1]
    example = make(**size)
    if not isinstance(example, torch.Tensor | tuple | list):
        return None
    alone = isinstance(example, torch.Tensor)

    def give(seed: int) -> list[Any]:
        data = make(**size | {"seed": seed})
        return [data] if alone else list(data)

    def of_all(call: Callable[[Any], Any]) -> Callable[..., Any]:
        return call if alone else lambda *values: call(tuple(values))

    return Pair("custom_kernel", of_all(task.kernel), of_all(right), of_all(right), give)


# --- flashinfer -------------------------------------------------------------------------------------------------------


def _flashinfer(found: Found, device: str) -> Pair:
    said, definition = (json.loads(Path(path).read_text()) for path in (found.path, found.problem))
    entry, function = str(said["spec"]["entry_point"]).split("::")
    folder = Path(tempfile.mkdtemp())
    for each in said["sources"]:
        target = (folder / each["path"]).resolve()
        if not target.is_relative_to(folder.resolve()):
            raise ValueError(f"the source {each['path']} lies outside of its folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(each["content"])
    (folder / "benchsite_definition.py").write_text(definition["reference"])
    right = module_at(folder / "benchsite_definition.py", "benchsite_definition").run
    call = getattr(module_at(folder / entry, "benchsite_solution"), function)
    shapes = _Shapes(definition, device)
    if _parameters(call) == len(definition["inputs"]) + len(definition["outputs"]):
        call = shapes.returning(call)
    names = list(definition["outputs"])
    right = in_order(right, names)
    return Pair(function, in_order(call, names), right, right, shapes.draw)


def _parameters(call: Any) -> int:
    code = getattr(call, "__code__", None)
    return code.co_argcount if code else 0


class _Shapes:
    """Inputs and outputs of a definition, with a length for each axis."""

    def __init__(self, definition: dict[str, Any], device: str) -> None:
        self.definition, self.device = definition, device
        self.axes = {name: int(axis.get("value", VAR_AXIS)) for name, axis in definition["axes"].items()}

    def _new(self, said: dict[str, Any]) -> Any:
        dtype = getattr(torch, said["dtype"])
        if said.get("shape") is None:
            return 1.0 if dtype.is_floating_point else 1
        shape = [self.axes[axis] for axis in said["shape"]]
        if dtype.is_floating_point:
            return torch.randn(shape).to(self.device, dtype)
        raise ValueError(f"an input of {said['dtype']} needs values from a workload: `try` reads none")

    def draw(self, seed: int) -> list[Any]:
        return [self._new(said) for said in self.definition["inputs"].values()]

    def returning(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A solution that writes into its last arguments, as one that returns new outputs."""

        def run(*given: Any) -> Any:
            made = [torch.empty_like(self._new(said)) for said in self.definition["outputs"].values()]
            call(*given, *made)
            return made[0] if len(made) == 1 else tuple(made)

        return run


PAIRS: dict[str, Callable[[Found, str], Pair | None]] = {
    KERNELBENCH: _kernelbench,
    GPU_MODE: _gpu_mode,
    FLASHINFER: _flashinfer,
}

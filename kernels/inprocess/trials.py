"""Loads one kernel of a foreign format with its problem, and checks it. Runs in a process of its own (attempt.py).

A loader imports what the file needs and yields trials: functions that call the kernel once on fresh inputs. A trial
raises Wrong if the outputs are wrong; any other exception means that the kernel does not run.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import yaml

from kernels import catalog
from kernels.analysis.correctness import judge
from kernels.child import into, outputs
from kernels.child.reference import Reference, measure
from kernels.config_files import configs
from kernels.formats.found import BARE, CUDA_FILE, DECORATED, FLASHINFER, GPU_MODE, KERNELBENCH, PERF_REPORT, Found
from kernels.inprocess.adhoc import Adhoc, Source, as_outputs, exact_dtype, in_dtype, like, peak_dtype
from kernels.inprocess.reports import reported
from kernels.operations.base import Operation
from kernels.submission import Submission, reading

Trial = Callable[[], None]
SEEDS = (11, 12, 13)
MOST_PROBLEMS, MOST_BYTES = 3, 2**25
VAR_AXIS = 16
"""Length of an axis that no workload gives."""


class Wrong(Exception):
    """The outputs are wrong. The message says how."""


def trials(found: Found, device: str) -> Iterator[Trial]:
    """The trials of a kernel. The first step of the iterator loads it."""
    return LOADERS[found.format](found, device)


def module_at(path: Path, name: str) -> ModuleType:
    """Runs a file as a module; its folder can be imported from."""
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def judged(problem: Operation, call: Callable[..., Any], device: str, seed: int) -> None:
    """One call on inputs of a seed. Raises Wrong."""
    inputs = problem.inputs(device, seed)
    out = call(*inputs.tensors, **inputs.options)
    values = problem.inputs(device, seed)
    verdict = judge([measure(out, Reference(problem, values, seed, thorough=True))], problem.dtype, {})
    if not verdict["correct"]:
        raise Wrong(verdict["why"])
    if not all(torch.equal(a, b) for a, b in zip(inputs.tensors, values.tensors, strict=True)):
        raise Wrong("it changes its inputs")


# --- kernels of an operation ------------------------------------------------------------------------------------------


def of_operation(found: Found, device: str) -> Iterator[Trial]:
    path = Path(found.path)
    text = found.more.get("text") or path.read_text()
    submission = Submission(operation=found.operation, files={_plain(path.name): text})
    with tempfile.TemporaryDirectory() as folder, reading(Path(folder), [submission]):
        sys.path.insert(0, str(path.parent))  # it may import what lies beside it
        info = catalog.get_kernel(found.operation, f"{found.name}@{submission.version}")
        gpu = torch.cuda.get_device_capability() if device != "cpu" else None
        why = info.why_not_on("cpu" if gpu is None else "cuda", gpu and gpu[0] + gpu[1] / 10)
        if why:
            raise catalog.Unsupported(why)
        call = catalog.load(info).call
        problems = list(_problems(info))
        if not problems:
            raise catalog.Unsupported("no small workload of its operation is within its dtypes and limits")
        for problem, seed in zip(problems, SEEDS, strict=False):
            yield partial(judged, problem, _returning(call, problem, device), device, seed)


def _plain(name: str) -> str:
    return "".join(sign if sign.isalnum() or sign in "._-" else "_" for sign in name).lstrip(".-") or "kernel.py"


def _returning(call: Callable[..., Any], problem: Operation, device: str) -> Callable[..., Any]:
    if not into.wants_out(call):
        return call
    likes = outputs.likes(problem, problem.inputs(device, 0))
    return into.returning(call, lambda *tensors: outputs.new(likes, tensors[0].device))


def _problems(info: catalog.KernelInfo) -> Iterator[Operation]:
    """Small problems that the kernel declares to support: of the configs, and at odd sizes."""
    workloads = [w.problem for config in configs() for w in config.workloads if w.operation == info.operation]
    dtypes = info.dtypes or ("float32", "float16")
    known = [p.model_copy(update={"dtype": d}) for p in [*workloads, *workloads[0].edges()] for d in dtypes]
    fitting = [p for p in known if p.tensor_bytes <= MOST_BYTES and not info.why_not_for(p.dtype, p.model_dump())]
    unlike = {p.model_dump_json(): p for p in sorted(fitting, key=lambda p: p.flops())}
    chosen = list(unlike.values())
    yield from (chosen[:: max(1, len(chosen) // MOST_PROBLEMS)])[:MOST_PROBLEMS]


# --- KernelBench ------------------------------------------------------------------------------------------------------


def of_kernelbench(found: Found, device: str) -> Iterator[Trial]:
    """Both models get the same seed, the same arguments and, where the names fit, the same weights."""
    problem = module_at(Path(found.problem), "benchsite_problem")
    mine = problem if found.problem == found.path else module_at(Path(found.path), "benchsite_solution")
    arguments = list(problem.get_init_inputs()) if hasattr(problem, "get_init_inputs") else []
    right, model = (_made(cls, arguments, device) for cls in (problem.Model, mine.ModelNew))
    with contextlib.suppress(RuntimeError):
        model.load_state_dict(right.state_dict())
    yield from _beside_reference(model, _in_any_dtype(right), lambda _: list(problem.get_inputs()), device)


def _made(cls: Any, arguments: list[Any], device: str) -> torch.nn.Module:
    torch.manual_seed(SEEDS[0])
    if isinstance(arguments, dict):
        return cls(**arguments).to(device).eval()
    return cls(*copy.deepcopy(arguments)).to(device).eval()


def _in_any_dtype(model: torch.nn.Module) -> Callable[..., Any]:
    """The model as a function that also takes float64 inputs: its weights follow them."""
    own = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)
    given: list[Any] = []

    def run(*tensors: Any) -> Any:
        wanted = next((t.dtype for t in tensors if isinstance(t, torch.Tensor) and t.is_floating_point()), None)
        given[:] = given or [wanted]
        if own is None or wanted == given[0] or wanted is None:
            return model(*tensors)
        return copy.deepcopy(model).to(wanted)(*tensors)

    return run


def _beside_reference(
    call: Callable[..., Any], reference: Callable[..., Any], give: Callable[[int], list[Any]], device: str
) -> Iterator[Trial]:
    """Trials against a reference in a higher precision. What is not a tensor among the inputs stays as it is."""
    example = give(SEEDS[0])
    places = [n for n, one in enumerate(example) if isinstance(one, torch.Tensor)]
    if not places:
        raise ValueError("get_inputs gives no tensor")

    def filled(tensors: tuple[Any, ...]) -> list[Any]:
        values = list(example)
        for place, tensor in zip(places, tensors, strict=True):
            values[place] = tensor
        return values

    source = Source(lambda seed: tuple(give(seed)[n] for n in places), device, SEEDS[0])
    tensors = source.draw(SEEDS[0])

    def truth(*given: Any) -> Any:
        return reference(*filled(given))

    right = as_outputs("the reference", truth(*in_dtype(tensors, None)))
    problem = Adhoc(
        dtype=peak_dtype([*tensors, *right]) or "float16", bounded=False, source=source, truth=truth, whose="reference",
        exact=exact_dtype(truth, tensors, right), outputs=like(right),
        terms=max(max(t.shape, default=1) for t in tensors), aside=contextlib.nullcontext,
    )  # fmt: skip
    for seed in SEEDS:
        yield partial(judged, problem, lambda *given: call(*filled(given)), device, seed)


# --- GPU MODE ---------------------------------------------------------------------------------------------------------


def of_gpu_mode(found: Found, device: str) -> Iterator[Trial]:
    """The problem's own inputs, and its own check of the outputs, on each of its tests."""
    folder = Path(found.problem)
    task = yaml.safe_load(next(p for p in (folder / "task.yml", folder / "task.yaml") if p.is_file()).read_text())
    for entry in task.get("files") or []:
        source = folder / str(entry["source"])
        if source.is_file() and str(source.parent.resolve()) not in sys.path:
            sys.path.insert(0, str(source.parent.resolve()))
    sys.path.insert(0, str(folder))
    reference = module_at(folder / "reference.py", "reference")
    kernel = module_at(Path(found.path), "submission").custom_kernel
    tests = task.get("tests") or task.get("benchmarks") or []
    if not tests:
        raise ValueError("its task.yml lists no tests")

    def one(test: dict[str, Any]) -> None:
        data = reference.generate_input(**test)
        out = kernel(copy.deepcopy(data))
        _say(reference.check_implementation(data, out))

    for test in tests:
        yield partial(one, test)


def _say(said: Any) -> None:
    """What a check_implementation says: (whether it is right, why not), why not alone, or whether it is right."""
    right, why = (
        said if isinstance(said, tuple) else (not said, said) if isinstance(said, str) else (said is not False, "")
    )
    if not right:
        raise Wrong(f"its own check says: {str(why or 'wrong').strip()[:300]}")


# --- flashinfer -------------------------------------------------------------------------------------------------------


def of_flashinfer(found: Found, device: str) -> Iterator[Trial]:
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
    yield from _beside_reference(call, right, shapes.draw, device)


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
        raise ValueError(f"an input of {said['dtype']} needs values from a workload, which are not read yet")

    def draw(self, seed: int) -> list[Any]:
        return [self._new(said) for said in self.definition["inputs"].values()]

    def returning(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A solution that writes into its last arguments, as one that returns new outputs."""

        def run(*given: Any) -> Any:
            made = [torch.empty_like(self._new(said)) for said in self.definition["outputs"].values()]
            call(*given, *made)
            return made[0] if len(made) == 1 else tuple(made)

        return run


# --- perf_report ------------------------------------------------------------------------------------------------------


def of_perf_report(found: Found, device: str) -> Iterator[Trial]:
    """Its providers beside each other at the smallest size: the one that a library names is right."""
    for compare in reported(found, module_at):
        yield partial(_agreed, compare)


def _agreed(compare: Callable[[], str]) -> None:
    if why := compare():
        raise Wrong(why)


LOADERS: dict[str, Callable[[Found, str], Iterator[Trial]]] = {
    DECORATED: of_operation,
    BARE: of_operation,
    CUDA_FILE: of_operation,
    KERNELBENCH: of_kernelbench,
    GPU_MODE: of_gpu_mode,
    FLASHINFER: of_flashinfer,
    PERF_REPORT: of_perf_report,
}

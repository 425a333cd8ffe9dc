"""Loads one kernel of a foreign format with its problem, and checks it. Runs in a process of its own (attempt.py).

A loader imports what the file needs and yields trials: functions that call the kernel once on fresh inputs. A trial
raises Wrong if the outputs are wrong; any other exception means that the kernel does not run.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kernels import catalog
from kernels.analysis.correctness import judge
from kernels.child import into, outputs
from kernels.child.poison import same
from kernels.child.reference import Reference, measure
from kernels.child.widening import why_not_repeatable
from kernels.config_files import configs
from kernels.formats.found import BARE, CUDA_FILE, DECORATED, FLASHINFER, GPU_MODE, KERNELBENCH, PERF_REPORT, Found
from kernels.inprocess.adhoc import CONSTANT, Adhoc, Source, Unfit, as_outputs, copies, exact_way, like, peak_dtype
from kernels.inprocess.modules import module_at
from kernels.inprocess.pairs import Pair, pairs_of, task_of
from kernels.inprocess.reports import reported
from kernels.operations.base import Operation
from kernels.problems.gpu_mode import said
from kernels.problems.opening import ALIKE
from kernels.submission import Submission, reading

Trial = Callable[[], None]
SEEDS = (11, 12, 13)
MOST_PROBLEMS, MOST_BYTES = 3, 2**25


class Wrong(Exception):
    """The outputs are wrong. The message says how."""


def trials(found: Found, device: str) -> Iterator[Trial]:
    """The trials of a kernel. The first step of the iterator loads it."""
    return LOADERS[found.format](found, device)


def judged(problem: Operation, call: Callable[..., Any], device: str, seed: int) -> None:
    """One call on inputs of a seed. Raises Wrong."""
    inputs = problem.inputs(device, seed)
    out = call(*inputs.tensors, **inputs.options)
    values = problem.inputs(device, seed)
    verdict = judge([measure(out, Reference(problem, values, seed, thorough=True))], problem.dtype, {})
    if not verdict["correct"]:
        raise Wrong(verdict["why"])
    if not all(same(a, b) for a, b in zip(inputs.tensors, values.tensors, strict=True)):
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


# --- a kernel and what it replaces ------------------------------------------------------------------------------------


def of_pair(found: Found, device: str) -> Iterator[Trial]:
    """Against the exact answer of what it replaces, on each of its workloads. What is not a tensor among the inputs stays as it
    is."""
    pairs = pairs_of(found, device)
    for number, pair in enumerate(pairs):
        problem, call = _problem(pair, device), pair.of_tensors(pair.call)
        for seed in SEEDS[number :: len(pairs)]:
            yield partial(judged, problem, call, device, seed)


def _problem(pair: Pair, device: str) -> Adhoc:
    if not pair.places:
        raise ValueError("get_inputs gives no tensor")
    source, truth = Source(pair.tensors, device, SEEDS[0]), pair.of_tensors(pair.truth)
    if CONSTANT in source.notes:
        raise Unfit(ALIKE)
    tensors = source.draw(SEEDS[0])
    first = as_outputs("the reference", pair.of_tensors(pair.replaced)(*copies(tensors)))  # it may keep state
    right = as_outputs("the reference", truth(*copies(tensors)))
    if why := why_not_repeatable(first, right):
        raise Unfit(f"the reference cannot judge: {why}")
    return Adhoc(
        dtype=peak_dtype([*tensors, *right]) or "float16", bounded=False, source=source, truth=truth, whose="reference",
        exact=exact_way(truth, tensors, right), outputs=like(right),
        terms=max(max(t.shape, default=1) for t in tensors), aside=contextlib.nullcontext,
    )  # fmt: skip


# --- GPU MODE ---------------------------------------------------------------------------------------------------------


def of_gpu_mode(found: Found, device: str) -> Iterator[Trial]:
    """The problem's own inputs, and its own check of the outputs, on each of its tests."""
    task = task_of(found)

    def one(test: dict[str, Any]) -> None:
        data = task.reference.generate_input(**test)
        out = task.kernel(copy.deepcopy(data))
        if why := said(task.reference.check_implementation(data, out)):
            raise Wrong(f"its own check says: {why[:300]}")

    for test in task.tests:
        yield partial(one, test)


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
    KERNELBENCH: of_pair,
    GPU_MODE: of_gpu_mode,
    FLASHINFER: of_pair,
    PERF_REPORT: of_perf_report,
}

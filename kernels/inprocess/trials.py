"""Loads one kernel of a foreign format with its problem, and checks it. Runs in a process of its own (attempt.py).

A loader imports what the file needs and yields trials: functions that call the kernel on fresh inputs. A trial raises Wrong
if the outputs are wrong; any other exception means that the kernel does not run. It may return a remark.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kernels import catalog
from kernels.analysis.correctness import judge
from kernels.child import into, outputs, poison
from kernels.child.reference import Reference, measure, with_facts
from kernels.child.widening import why_not_repeatable
from kernels.dtypes import DTYPE_SHORT, DTYPES
from kernels.formats.found import BARE, CUDA_FILE, DECORATED, FLASHINFER, GPU_MODE, KERNELBENCH, PERF_REPORT, Found
from kernels.inprocess.adhoc import (
    CONSTANT,
    Adhoc,
    Source,
    Tensors,
    Unfit,
    a,
    copies,
    exact_way,
    like,
    of_reference,
    peak_dtype,
    unjudged,
    why_no_output,
)
from kernels.inprocess.chosen import Chosen, said_sizes
from kernels.inprocess.modules import module_at
from kernels.inprocess.pairs import Pair, Task, pairs_of, task_of
from kernels.inprocess.reports import reported
from kernels.operations.base import Operation
from kernels.problems.gpu_mode import Unclear, why_refused
from kernels.problems.opening import ALIKE
from kernels.submission import Submission, reading

Trial = Callable[[], str | None]
DESCRIBED, SEEDS = 10, (11, 12, 13)
"""Of the inputs that describe a problem, and of those of its trials."""
OTHER = 1_000
"""Distance of the seed of a second call."""
MOST_SAID = 300
"""Characters of what a problem's own check says."""
NONE_FITS = "no small workload of its operation is within its dtypes and limits"


class Wrong(Exception):
    """The outputs are wrong. The message says how."""


def trials(found: Found, device: str) -> Iterator[Trial]:
    """The trials of a kernel. The first step of the iterator loads it."""
    return LOADERS[found.format](found, device)


def judged(
    problem: Operation, call: Callable[..., Any], device: str, seed: int, known: list[dict[str, Any]] | None = None
) -> None:
    """Two calls on inputs of two seeds, the first in poisoned memory: its output must be right, and stay as it is. Raises
    Wrong. known: readings of the same problem on other seeds; it adds to them, and all are judged together."""
    inputs, others = problem.inputs(device, seed), problem.inputs(device, seed + OTHER)
    with poison.in_new_memory(outputs.likes(problem, inputs), device):
        out = outputs.plain(call(*inputs.tensors, **inputs.options))
    early = outputs.clone(out)
    values = problem.inputs(device, seed)
    changed = not all(poison.same(a, b) for a, b in zip(inputs.tensors, values.tensors, strict=True))
    reading = measure(early, Reference(problem, values, seed, thorough=True))
    shared = False
    if not reading.get("wrong_kind"):
        reading = with_facts(reading, unwritten=[poison.count(one) for one in outputs.as_tuple(early)])
        again = outputs.plain(call(*others.tensors, **others.options))
        shared = any(outputs.changed(early, out)) or outputs.share_memory(out, again)
    known = [] if known is None else known
    known.append(reading)
    verdict = judge(known, problem.dtype, {"inputs_changed": changed, "shared": shared})
    if not verdict["correct"]:
        raise Wrong(of_reference(verdict["why"]) if isinstance(problem, Adhoc) else verdict["why"])


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
        chosen, whys = Chosen(info), [NONE_FITS]
        for seed, problem in enumerate(chosen, SEEDS[0]):
            yield partial(_if_supported, chosen, whys, problem, _returning(call, problem, device), device, seed)
        if not chosen.tried:
            raise catalog.Unsupported(whys[-1])


def _if_supported(
    chosen: Chosen, whys: list[str], problem: Operation, call: Callable[..., Any], device: str, seed: int
) -> str:
    """One problem, unless the kernel does not support it: the kernel says so in its call, or raises where a size that is usually
    left out is said. whys: gets what it says."""
    where = f"at {DTYPE_SHORT[problem.dtype]} {problem.label()}"
    try:
        judged(problem, call, device, seed)
    except Wrong as error:
        raise Wrong(f"{error}, {where}") from None
    except catalog.Unsupported as error:
        whys.append(str(error))
    except Exception as error:
        if not said_sizes(problem):
            raise
        whys.append(f"does not run {where}: {type(error).__name__}: {error}"[:300])
        chosen.refuse(problem)
        return whys[-1]
    else:
        return ""
    chosen.refuse(problem)
    return ""


def _plain(name: str) -> str:
    return "".join(sign if sign.isalnum() or sign in "._-" else "_" for sign in name).lstrip(".-") or "kernel.py"


def _returning(call: Callable[..., Any], problem: Operation, device: str) -> Callable[..., Any]:
    if not into.wants_out(call):
        return call
    likes = outputs.likes(problem, problem.inputs(device, 0))
    return into.returning(call, lambda *tensors: outputs.new(likes, tensors[0].device))


# --- a kernel and what it replaces ------------------------------------------------------------------------------------


def of_pair(found: Found, device: str) -> Iterator[Trial]:
    """Against the exact answer of what it replaces, on each of its workloads. What is not a tensor among the inputs stays as it
    is."""
    pairs = pairs_of(found, device)
    for number, pair in enumerate(pairs):
        problem, call = _problem(pair, device), pair.of_tensors(pair.call)
        known: list[dict[str, Any]] = []
        for seed in SEEDS[number :: len(pairs)]:
            yield partial(_noted, pair.note, problem, call, device, seed, known)


def _noted(note: str, *how: Any) -> None:
    """A trial of a pair; what explains a wrong output is said, too."""
    try:
        judged(*how)
    except Wrong as error:
        raise Wrong("; ".join(filter(None, [str(error), note]))) from None


def _problem(pair: Pair, device: str) -> Adhoc:
    """Raises Unfit if the pair's problem is at fault."""
    if not pair.places:
        kinds = ", ".join(f"input {number} is {a(type(one))}" for number, one in enumerate(pair.give(DESCRIBED), 1))
        raise Unfit(f"its inputs hold no tensor: {kinds or 'there are none'}")
    source, truth = Source(pair.tensors, device, DESCRIBED, pair.called), pair.of_tensors(pair.truth)
    if CONSTANT in source.notes:
        raise Unfit(ALIKE)
    tensors = source.draw(DESCRIBED)
    first = _outputs(truth, tensors, pair.dtypes)
    _outputs(pair.of_tensors(pair.replaced), source.draw(SEEDS[0]), pair.dtypes)  # it may keep state
    right = _outputs(truth, tensors, pair.dtypes)
    if why := why_not_repeatable(first, right):
        raise Unfit(f"the reference cannot judge: {why}")
    return Adhoc(
        dtype=peak_dtype([*tensors, *right]) or "float16", bounded=False, source=source, truth=truth, whose="reference",
        exact=exact_way(truth, tensors, right), outputs=like(right),
        terms=max(max(t.shape, default=1) for t in tensors), aside=contextlib.nullcontext,
    )  # fmt: skip


def _outputs(truth: Callable[..., Any], tensors: Tensors, said: Sequence[str]) -> Tensors:
    """What a reference returns. Raises Unfit. said: the dtypes that its problem says; empty: none."""
    try:
        found = truth(*copies(tensors))
    except (ImportError, catalog.Unsupported):
        raise
    except Exception as error:
        raise Unfit(f"the reference raises {type(error).__name__}: {error}") from None
    outs = outputs.as_tuple(found)
    for number, one in enumerate(outs, 1):
        if why := why_no_output(one):
            raise Unfit(f"output {number} of {len(outs)}: " * (len(outs) > 1) + f"the reference {why}")
    if odd := unjudged(outs):
        raise Unfit(f"the reference returns {odd}: outputs of {', '.join(DTYPES)} are judged")
    for says, one in zip(said, outs, strict=False):
        if says and says != (returned := str(one.dtype).removeprefix("torch.")):
            raise Unfit(f"the definition says {says}, its reference returns {returned}")
    return outs


# --- GPU MODE ---------------------------------------------------------------------------------------------------------


def of_gpu_mode(found: Found, device: str) -> Iterator[Trial]:
    """The problem's own inputs, and its own check of the outputs, on each of its tests."""
    task = task_of(found)

    def one(test: dict[str, Any]) -> None:
        data = task.reference.generate_input(**test)
        out = task.kernel(copy.deepcopy(data))
        try:
            why = why_refused(task.reference.check_implementation, data, out)
            own = why and _of_its_own_output(task, test)
        except Unclear as error:
            raise Unfit(str(error)) from None
        if own:
            raise Unfit(f"of the reference's own output its check says: {own[:MOST_SAID]}")
        if why:
            raise Wrong(f"its own check says: {why[:MOST_SAID]}")

    for test in task.tests:
        yield partial(one, test)


def _of_its_own_output(task: Task, test: dict[str, Any]) -> str:
    """What the check of a problem says against its own ref_kernel; empty if it says nothing, or there is none."""
    if not (reference := getattr(task.reference, "ref_kernel", None)):
        return ""
    try:
        out = reference(task.reference.generate_input(**test))
    except Exception as error:
        raise Unfit(f"the reference raises {type(error).__name__}: {error}") from None
    return why_refused(task.reference.check_implementation, task.reference.generate_input(**test), out)


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

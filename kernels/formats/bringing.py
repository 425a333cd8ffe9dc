"""Kernels that bring their problem: the files of a pair as two submissions, the problem and a kernel for it.

A declaration is added to the end of each file that has one, so that what is stored, hashed and shown is what runs.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from kernels.catalog import AT, LONGEST_NAME, PROBLEM, TESTS
from kernels.formats.definitions import VAR_AXIS, definition_in, names_for, solution_in
from kernels.formats.found import FLASHINFER, GPU_MODE, KERNELBENCH, Found
from kernels.formats.recognise import Folder
from kernels.formats.tasks import Task, task_in
from kernels.formats.traces import workloads_in
from kernels.submission import VERSION_DIGITS, Unreadable, kernel_of, version_of

FORMATS = (KERNELBENCH, GPU_MODE, FLASHINFER)
BACKENDS = (
    ("triton", re.compile(r"^\s*(?:import triton|from triton)", re.M)),
    ("cuda", re.compile(r"\b(?:load_inline|cpp_extension)\b")),
)
BY_NAME = re.compile(r"\breturn\s*(?:\{|dict\()")
"""A function that returns its outputs by name."""
LEADERBOARD = re.compile(r"^#!POPCORN leaderboard (\S+)", re.M)
HALVES = {
    "float16": re.compile(r"\btorch\.(?:float16|half)\b|\.half\(\)|'float16'"),
    "bfloat16": re.compile(r"\btorch\.bfloat16\b|\.bfloat16\(\)|'bfloat16'"),
}


@dataclass(frozen=True)
class Brought:
    """Files of a kernel and of the problem that came with it, with declarations. No files: none came."""

    problem: dict[str, str]
    kernel: dict[str, str]


def pair_in(files: dict[str, str]) -> Brought | None:
    """The problem and the kernel in these files; None if no file is a kernel of such a format. Raises Unreadable."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8", newline="")
        known = Folder(root)
        found = [one for one in known.kernels() if one.format in FORMATS]
        if not found:
            _refuse_alone(known.problems())
            return None
        return _pair(files, root, found)


def _refuse_alone(problems: list[Path]) -> None:
    if problems:
        kernel = "the file with ModelNew" if problems[0].suffix == ".py" else "the solution"
        raise Unreadable(f"{problems[0].name} is a problem without a kernel: add {kernel}")


def _pair(files: dict[str, str], root: Path, found: list[Found]) -> Brought:
    """The only pair of these files."""
    if len(found) > 1:
        names = " and ".join(str(Path(one.path).relative_to(root)) for one in found)
        raise Unreadable(f"{names} are kernels for problems: submit each with its own problem")
    one = found[0]
    if one.why_not:
        more = "" if one.problem else "; submit its problem with it"
        raise Unreadable(f"{Path(one.path).name} is a kernel of {one.format}: {one.why_not}{more}")
    kernel, problem = (str(Path(path).relative_to(root)) for path in (one.path, one.problem))
    made: dict[str, Callable[[dict[str, str], str, str], Brought]]
    made = {KERNELBENCH: _kernelbench, GPU_MODE: _gpu_mode, FLASHINFER: flashinfer_pair}
    return made[one.format](files, kernel, problem)


def dtype_of(files: dict[str, str]) -> str:
    """The dtype that a problem's files name: the only one of 16 bits, else float32."""
    text = "\n".join(files.values())
    named = [dtype for dtype, pattern in HALVES.items() if pattern.search(text)]
    return named[0] if len(named) == 1 else "float32"


def cases_of(files: dict[str, str]) -> list[str]:
    """The names of a problem's cases; of its only one, which is the problem: an empty name. Tests are none of them."""
    named = kernel_of(files).limits.get("case", ("",))
    return [str(case) for case in named if case != TESTS]


# --- KernelBench ------------------------------------------------------------------------------------------------------


def _kernelbench(files: dict[str, str], kernel: str, problem: str) -> Brought:
    """The problem is the file with Model alone, so that all kernels for it share one; the kernel has all other files."""
    name = _name(problem)
    at = PurePosixPath(problem).name
    says = "Model of KernelBench."
    reference = {
        at: files[problem] + _declaration("kernelbench.reference(globals(), seed, device)", says, name, "pytorch")
    }
    named = _named(name, reference)
    mine = _name(kernel) if kernel != problem else "ModelNew"
    call = f'kernelbench.solution(globals(), "{named}", seed, device)'
    says = f"ModelNew of KernelBench, in the place of the Model of {named}."
    declared = _declaration(call, says, mine, _backend(files[kernel]), replaces=named)
    others = {n: text for n, text in files.items() if n not in (kernel, problem)}
    if kernel != problem and _imports(files, PurePosixPath(problem).stem):
        others[at] = files[problem]
    top = PurePosixPath(kernel).name  # a declaration is read at the top only
    return Brought(reference, dict(sorted((others | {top: files[kernel] + declared}).items())))


# --- GPU MODE ---------------------------------------------------------------------------------------------------------


def _gpu_mode(files: dict[str, str], kernel: str, folder: str) -> Brought:
    """The problem is reference.py with the files that its task.yml names; the kernel has the same files without
    reference.py."""
    inside = "" if folder == "." else f"{folder}/"
    said = next(name for name in (f"{inside}task.yml", f"{inside}task.yaml") if name in files)
    task = task_in(files[said], PurePosixPath(said).name)
    at = f"{inside}reference.py"
    shared = {
        PurePosixPath(name).name: text
        for name, text in files.items()
        if name not in (kernel, at, said) and PurePosixPath(name).name in task.sources
    }
    names = {PurePosixPath(name).name for name in files}
    used = {kernel: files[kernel], at: files[at]} | shared
    if lost := sorted(n for n in task.sources - names if _imports(used, PurePosixPath(n).stem)):
        raise Unreadable(f"{PurePosixPath(said).name} lists {', '.join(lost)}, which is imported: add it")
    board = LEADERBOARD.search(files[kernel])
    name = _name(board[1] if board else folder if inside else "reference")
    reference = shared | {"reference.py": files[at] + _of_task(task, name)}
    named = _named(name, reference)
    says = f"custom_kernel of GPU MODE, in the place of the ref_kernel of {named}."
    declared = _declaration("custom_kernel", says, _name(kernel), _backend(files[kernel]), replaces=named)
    others = {n: text for n, text in files.items() if n not in (kernel, at, said)} | shared
    if _imports(others | {kernel: files[kernel]}, "reference"):
        others["reference.py"] = files[at]
    mine = others | {PurePosixPath(kernel).name: files[kernel] + declared}
    return Brought(dict(sorted(reference.items())), dict(sorted(mine.items())))


def _of_task(task: Task, name: str) -> str:
    """The declaration of a problem. One benchmark alone has no name: its workload is the problem."""
    benchmarks, tests = task.benchmarks, task.tests
    call, limits = f"gpu_mode.Reference(globals(), {task.size!r}, device", []
    says = "ref_kernel of GPU MODE, on the last benchmark of its task.yml."
    if len(benchmarks.chosen) > 1:
        call, limits = f"{call}, cases={benchmarks.chosen!r}", [*benchmarks.chosen]
        says = f"ref_kernel of GPU MODE, on {len(limits)} benchmarks of its task.yml."
    if benchmarks.missing:
        says += f" Left out: {benchmarks.missing}."
    if tests.chosen:
        call, limits = f"{call}, tests={tests.chosen!r}", [*(limits or [""]), TESTS]
    if tests.missing:
        says += f" Tests left out: {tests.missing}."
    return _declaration(f"{call})", says, name, "pytorch", cases=limits)


# --- flashinfer -------------------------------------------------------------------------------------------------------


def flashinfer_pair(files: dict[str, str], solution: str, definition: str, usual: int = VAR_AXIS) -> Brought:
    """The problem is the definition's reference; the kernel has the solution's sources. usual: length of an axis that nobody
    gives."""
    right, mine = definition_in(files[definition], definition), solution_in(files[solution], solution, files)
    workloads = workloads_in(files, right)
    name = _name(f"{right.name}.json")
    says, cases, values = "The reference of a flashinfer definition.", [], {}
    lengths = right.lengths(usual=usual)
    call = f"flashinfer.Reference(run, {right.arrays(right.inputs, lengths)!r}, device"
    taken: Any = len(right.inputs)
    if workloads:
        cases, values, missing = [*workloads.cases.chosen], workloads.values, workloads.cases.missing
        says = f"The reference of a flashinfer definition, on {len(cases)} workload{'s' * (len(cases) > 1)}."
        says += f" Left out: {missing}." if missing else ""
        call = f"flashinfer.Reference(run, [], device, cases={workloads.cases.chosen!r}, file=__file__"
        if workloads.lengths:
            call += f", custom={right.custom}, lengths={workloads.lengths!r}"
        lengths = right.lengths()
        taken = right.arrays(right.inputs, lengths)
    elif why := right.why_not_alone:
        raise Unreadable(f"{PurePosixPath(definition).name} cannot be measured: {why}")
    names = f", names={[*right.outputs]!r}"
    call += names * bool(BY_NAME.search(right.reference))
    call += _by_name(names_for(right.reference, "run", [*right.inputs], [], False))
    declared = _declaration(f"{call})", says, name, "pytorch", cases=cases)
    reference = {"definition.py": right.reference + declared} | values
    named = _named(name, reference)
    call = f"flashinfer.solution({mine.function}, {taken!r}, {right.arrays(right.outputs, lengths)!r}, device"
    if workloads and right.expressions:
        call += f", expressions={right.expressions!r}"
    call += names * any(BY_NAME.search(text) for text in mine.files.values())
    says = f"A flashinfer solution, in the place of the reference of {named}."
    text = mine.files[mine.entry]
    call += _by_name(names_for(text, mine.function, [*right.inputs], [*right.outputs], mine.into))
    declared = _declaration(f"{call})", says, _name(f"{mine.name}.json"), _backend(text), replaces=named)
    return Brought(dict(sorted(reference.items())), dict(sorted((mine.files | {mine.entry: text + declared}).items())))


def _by_name(names: list[str]) -> str:
    return f", by_name={names!r}" if names else ""


# --- what is added ----------------------------------------------------------------------------------------------------


def _declaration(call: str, says: str, name: str, backend: str, replaces: str = "", cases: Sequence[str] = ()) -> str:
    """What is added to a file: `call` makes what is measured. The file may have a `kernel` of its own. cases: of a problem
    with several."""
    limits = f', limits={{"problem": ("{replaces}",)}}' if replaces else ""
    limits = f', limits={{"case": {tuple(cases)!r}}}' if cases else limits
    module, dot, _ = call.partition(".")
    uses = f"\nfrom kernels.problems import {module} as benchsite_{module}  # noqa: E402" if dot else ""
    return f'''


# Added: how it is called.
from kernels.catalog import kernel as benchsite_kernel  # noqa: E402{uses}


@benchsite_kernel("{PROBLEM}", backend="{backend}", name="{name}"{limits})
def benchsite_{"solution" if replaces else "reference"}(seed, device):
    """{says}"""
    return {f"benchsite_{call}" if dot else call}
'''


def _named(name: str, files: dict[str, str]) -> str:
    """The kernel of a problem's submission."""
    return f"{name}{AT}{version_of(files)[:VERSION_DIGITS]}"


def _name(path: str) -> str:
    """The name of a file as that of a kernel."""
    stem = re.sub(r"[^A-Za-z0-9._+-]", "-", PurePosixPath(path).stem)
    return stem.lstrip("-.+")[:LONGEST_NAME] or "kernel"


def _backend(text: str) -> str:
    return next((name for name, pattern in BACKENDS if pattern.search(text)), "pytorch")


def _imports(files: dict[str, str], module: str) -> bool:
    """Whether a file imports this module."""
    pattern = re.compile(rf"^\s*(?:from|import)\s+\.?{re.escape(module)}\b", re.M)
    return any(pattern.search(text) for text in files.values())

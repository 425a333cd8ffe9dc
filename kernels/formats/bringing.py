"""Kernels that bring their problem: the files of a pair as two submissions, the problem and a kernel for it.

A declaration is added to the end of each file that has one, so that what is stored, hashed and shown is what runs.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kernels.catalog import AT, LONGEST_NAME, PROBLEM
from kernels.formats.found import FLASHINFER, GPU_MODE, KERNELBENCH, Found
from kernels.formats.recognise import Folder
from kernels.submission import VERSION_DIGITS, Unreadable, version_of

ELSEWHERE = (GPU_MODE, FLASHINFER)
"""Formats that are recognised, and that only `try` can run."""
BACKENDS = (
    ("triton", re.compile(r"^\s*(?:import triton|from triton)", re.M)),
    ("cuda", re.compile(r"\b(?:load_inline|cpp_extension)\b")),
)
HALVES = {
    "float16": re.compile(r"\btorch\.(?:float16|half)\b|\.half\(\)"),
    "bfloat16": re.compile(r"\btorch\.bfloat16\b|\.bfloat16\(\)"),
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
        found = [one for one in known.kernels() if one.format in (KERNELBENCH, *ELSEWHERE)]
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
        raise Unreadable(f"{Path(one.path).name} is a kernel of {one.format}: {one.why_not}; submit both files")
    if one.format in ELSEWHERE:
        raise Unreadable(
            f"{Path(one.path).name} is a kernel of {one.format}: the site cannot measure its problem yet; "
            "`python -m kernels try` checks it on your machine"
        )
    return _kernelbench(files, *(str(Path(path).relative_to(root)) for path in (one.path, one.problem)))


def dtype_of(files: dict[str, str]) -> str:
    """The dtype that a problem's files name: the only one of 16 bits, else float32."""
    text = "\n".join(files.values())
    named = [dtype for dtype, pattern in HALVES.items() if pattern.search(text)]
    return named[0] if len(named) == 1 else "float32"


# --- KernelBench ------------------------------------------------------------------------------------------------------


def _kernelbench(files: dict[str, str], kernel: str, problem: str) -> Brought:
    """The problem is the file with Model alone, so that all kernels for it share one; the kernel has all other files."""
    name = _name(problem)
    at = PurePosixPath(problem).name
    reference = {at: files[problem] + _declaration("Model", "reference", name, "pytorch")}
    named = f"{name}{AT}{version_of(reference)[:VERSION_DIGITS]}"
    mine = _name(kernel) if kernel != problem else "ModelNew"
    declared = _declaration("ModelNew", "solution", mine, _backend(files[kernel]), replaces=named)
    others = {n: text for n, text in files.items() if n not in (kernel, problem)}
    if kernel != problem and _imports(files, PurePosixPath(problem).stem):
        others[at] = files[problem]
    top = PurePosixPath(kernel).name  # a declaration is read at the top only
    return Brought(reference, dict(sorted((others | {top: files[kernel] + declared}).items())))


def _declaration(of: str, what: str, name: str, backend: str, replaces: str = "") -> str:
    """What is added to a file. `benchsite_kernel`: the file may have a `kernel` of its own."""
    limits = f', limits={{"problem": ("{replaces}",)}}' if replaces else ""
    more = f', "{replaces}"' if replaces else ""
    says = f"{of} of KernelBench, in the place of the Model of {replaces}." if replaces else f"{of} of KernelBench."
    return f'''


# Added: how {of} is called.
from kernels.catalog import kernel as benchsite_kernel  # noqa: E402
from kernels.problems import kernelbench as benchsite_kernelbench  # noqa: E402


@benchsite_kernel("{PROBLEM}", backend="{backend}", name="{name}"{limits})
def benchsite_{what}(seed, device):
    """{says}"""
    return benchsite_kernelbench.{what}(globals(){more}, seed, device)
'''


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

"""Which kernels lie in a folder, and in which format: read from syntax trees and JSON, never run."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernels.catalog import declared_in
from kernels.formats import bare
from kernels.formats.found import BARE, CUDA_FILE, DECORATED, FLASHINFER, GPU_MODE, KERNELBENCH, PERF_REPORT, Found
from kernels.kernel_files import parsed

LARGEST = 1_000_000
"""Larger files are no source."""
GENERATED = re.compile(r"level_(\d+)_problem_(\d+)_")
"""How KernelBench names what a model wrote: level_1_problem_36_sample_0_kernel.py."""
NEW = re.compile(r"_new|new_", re.I)
SKIPPED = {".git", ".venv", "node_modules", "__pycache__", "build", "dist", "site-packages"}
RUNNABLE = ("python", "triton", "pytorch", "cute_dsl", "cutile")
"""Languages of flashinfer solutions that need no compiler of the host."""


class Folder:
    """The kernels below a folder, and the problems that they are for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = list(_files(root))
        self.trees = {path: tree for path in self.files if path.suffix == ".py" and (tree := _parsed(path)) is not None}
        self.broken = {p: w for p in self.files if p.suffix == ".py" and p not in self.trees and (w := why_broken(p))}
        self.json = {path: said for path in self.files if path.suffix == ".json" and (said := _json(path)) is not None}
        self.models = {p for p, tree in self.trees.items() if {"Model", "get_inputs"} <= _names(tree)}
        self.definitions = {
            s["name"]: path for path, s in self.json.items() if {"name", "axes", "inputs", "reference"} <= s.keys()
        }
        self.used: set[Path] = set()
        """Problems that some kernel is for."""

    def kernels(self) -> Iterator[Found]:
        """All of them, in the order of their files."""
        for path in self.files:
            yield from self._of(path)

    def problems(self) -> list[Path]:
        """Problems of KernelBench and flashinfer without a kernel; known after `kernels`."""
        return sorted({*self.models, *self.definitions.values()} - self.used)

    def _of(self, path: Path) -> Iterator[Found]:
        if path in self.broken:
            if self.broken[path] and "kernel" in path.read_text(errors="replace"):
                yield Found(BARE, str(path), path.stem, why_not=self.broken[path])
        elif path.suffix == ".py" and path in self.trees:
            yield from self._python(path, self.trees[path])
        elif path.suffix == ".cu":
            yield from _cuda(path)
        elif path in self.json and {"sources", "spec", "definition"} <= self.json[path].keys():
            yield self._solution(path, self.json[path])

    def _python(self, path: Path, tree: ast.Module) -> Iterator[Found]:
        names = _names(tree)
        if "ModelNew" in names:
            yield self._kernelbench(path, names)
        elif "custom_kernel" in names:
            yield _gpu_mode(path, names)
        elif reports := _perf_reports(tree):
            yield Found(PERF_REPORT, str(path), ", ".join(reports), more={"functions": reports})
        elif "@kernel(" in (text := path.read_text(errors="replace")):
            yield from _declared(path)
        elif path not in self.models and "ref_kernel" not in names:
            yield from _bare(path, text)

    def _kernelbench(self, path: Path, names: set[str]) -> Found:
        """ModelNew with the Model that it replaces: in its file; in the one whose level and number KernelBench wrote into its
        name; in the one whose name its own begins or ends with, or has with "new"; or in the only one of its folder."""
        if "Model" in names and "get_inputs" in names:
            self.used.add(path)
            return Found(KERNELBENCH, str(path), "ModelNew", problem=str(path))
        beside = sorted(p for p in self.models if p.parent == path.parent and p != path)
        named = [p for p in beside if path.stem.startswith(p.stem) or path.stem.endswith(p.stem)]
        old = NEW.sub("", path.stem)
        renamed = sorted((p for p in beside if f"{old}_".startswith(f"{p.stem}_")), key=lambda p: len(p.stem))[-1:]
        numbered = [p for p in self.models if (made := GENERATED.match(path.stem)) and _is_numbered(p, *made.groups())]
        everywhere = [p for p in sorted(self.models) if p != path and (p.stem in path.stem or p.stem == path.stem)]
        for found in (numbered, named, renamed, beside, everywhere):
            if len(found) == 1:
                self.used.add(found[0])
                return Found(KERNELBENCH, str(path), "ModelNew", problem=str(found[0]))
        why = "there is no file with Model and get_inputs that it replaces" if not beside else (
            f"it may replace the Model of {', '.join(p.name for p in beside[:4])}: begin its name with that of one"
        )  # fmt: skip
        return Found(KERNELBENCH, str(path), "ModelNew", why_not=why)

    def _solution(self, path: Path, said: dict[str, Any]) -> Found:
        definition = self.definitions.get(str(said["definition"]))
        spec = said["spec"] if isinstance(said["spec"], dict) else {}
        why = ""
        if definition is None:
            why = f"the definition {said['definition']} is not among these files"
        elif other := [language for language in _languages(spec) if language.lower() not in RUNNABLE]:
            why = f"it is in {', '.join(other)}: that needs a compiler with PyTorch's headers on this host"
        elif not _languages(spec):
            why = "its spec names no language"
        elif "::" not in str(spec.get("entry_point", "")):
            why = "its entry_point is not file.py::function"
        if definition:
            self.used.add(definition)
        name = str(said.get("name") or path.stem)
        more = {"workloads": self._workloads(definition, str(said["definition"]))} if definition else {}
        return Found(FLASHINFER, str(path), name, problem=str(definition or ""), more=more, why_not=why)

    def _workloads(self, definition: Path, name: str) -> list[str]:
        """The .jsonl files of a definition: of its name, or beside it if no other definition is there."""
        alone = [path.parent for path in self.definitions.values()].count(definition.parent) == 1
        return [
            str(path) for path in self.files
            if path.suffix == ".jsonl" and (path.stem == name or (alone and path.parent == definition.parent))
        ]  # fmt: skip


def _is_numbered(problem: Path, level: str, number: str) -> bool:
    """Whether a problem is this one of KernelBench: level1/36_RMSNorm_.py."""
    return problem.parent.name == f"level{level}" and problem.name.startswith(f"{number}_")


def _languages(spec: dict[str, Any]) -> list[str]:
    """Of a solution: `language` in flashinfer-bench, `languages` in SOL-ExecBench."""
    said = spec.get("languages", spec.get("language", ""))
    return [str(one) for one in (said if isinstance(said, list) else [said]) if one]


def _files(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
        if not SKIPPED & {*path.relative_to(root).parts} and path.is_file() and path.stat().st_size <= LARGEST:
            yield path


def _parsed(path: Path) -> ast.Module | None:
    try:
        return parsed(path.read_bytes(), str(path))
    except (SyntaxError, ValueError):
        return None


def why_broken(path: Path) -> str:
    """Why a file is no Python, as a sentence; empty if it is."""
    try:
        parsed(path.read_bytes(), str(path))
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except ValueError as error:
        return str(error)
    return ""


def _json(path: Path) -> dict[str, Any] | None:
    try:
        said = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) and isinstance(said.get("name", ""), str) else None


def _names(tree: ast.Module) -> set[str]:
    """Functions, classes and names that a file makes at its top."""
    found = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def _perf_reports(tree: ast.Module) -> list[str]:
    """Functions under triton.testing.perf_report(...)."""

    def is_report(node: ast.expr) -> bool:
        called = node.func if isinstance(node, ast.Call) else node
        return (isinstance(called, ast.Attribute) and called.attr == "perf_report") or (
            isinstance(called, ast.Name) and called.id == "perf_report"
        )

    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [node.name for node in functions if any(is_report(decorator) for decorator in node.decorator_list)]


def _gpu_mode(path: Path, names: set[str]) -> Found:
    """custom_kernel with the problem in its folder, or in one above."""
    for folder in list(path.parents)[:4]:
        if (folder / "reference.py").is_file():
            task = next((folder / name for name in ("task.yml", "task.yaml") if (folder / name).is_file()), None)
            why = "" if task else f"there is no task.yml beside {folder.name}/reference.py"
            return Found(GPU_MODE, str(path), "custom_kernel", problem=str(folder), why_not=why)
    return Found(GPU_MODE, str(path), "custom_kernel", why_not="there is no reference.py in its folder or above")


def _declared(path: Path) -> Iterator[Found]:
    try:
        for info in declared_in(path, path.read_bytes()):
            yield Found(DECORATED, str(path), info.name, info.operation)
    except Exception as error:  # whatever the reader raises of a text
        yield Found(DECORATED, str(path), path.stem, why_not=str(error))


def _bare(path: Path, text: str) -> Iterator[Found]:
    try:
        if one := bare.adapted_python(text, f"{path.stem} {path.parent.name}"):
            yield Found(BARE, str(path), one.name, one.operation, more={"text": one.text})
    except bare.NotAdapted as error:
        yield Found(BARE, str(path), path.stem, why_not=str(error))


def _cuda(path: Path) -> Iterator[Found]:
    text = path.read_text(errors="replace")
    if "@kernel" in text:
        yield from _declared(path)
        return
    try:
        if one := bare.adapted_cuda(text, f"{path.stem} {path.parent.name}"):
            info = next(iter(declared_in(path, one.text.encode())))
            yield Found(CUDA_FILE, str(path), info.name, one.operation, more={"text": one.text})
    except ValueError as error:
        yield Found(CUDA_FILE, str(path), path.stem, why_not=str(error))

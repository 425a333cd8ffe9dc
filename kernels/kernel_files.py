"""Readers by file type: what a file declares (parsed, not run), and how to load a kernel from it.

Readers do not know the catalogue; it calls them. Only the measuring child loads.
"""

from __future__ import annotations

import ast
import hashlib
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Function = Callable[..., Any]
DECORATORS = ("kernel", "benchsite_kernel")
"""Names of the decorator in a file. The second one is for files that may have a `kernel` of their own."""


@dataclass(frozen=True)
class Declared:
    """One kernel as declared in its file: the arguments of @kernel, not yet checked."""

    function: str
    """The function's name in the file."""
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    doc: str
    """The first line of its docstring."""
    takes: tuple[str, ...] | None = None
    """Names of what it takes; None: anything."""


class Reader(Protocol):
    """Interface of a file type."""

    def declared(self, source: bytes, path: Path) -> Iterator[Declared]:
        """The kernels of a file, in file order. Raises any exception, with the reason, if the file cannot be read."""

    def load(self, source: bytes, path: Path, full_name: str) -> Function | None:
        """The kernel of this name ("attention/mine"), callable; None if the file does not declare it."""

    def why_not(self) -> str:
        """Why no kernel of this type can run on this host, whatever its device; empty if it can."""


class PythonFiles:
    """Python files: kernels are functions under @kernel, whose arguments are literals."""

    def __init__(self, calls: Mapping[str, Function]) -> None:
        """calls: name -> function that arguments may call with literals, such as cuda(8.0)."""
        self.calls = calls

    def declared(self, source: bytes, path: Path) -> Iterator[Declared]:
        for node in parsed(source, str(path)).body:
            if isinstance(node, ast.FunctionDef):
                for decorator in node.decorator_list:
                    if isinstance(decorator, ast.Name) and decorator.id in DECORATORS:
                        raise ValueError(f"@kernel of {node.name} needs its arguments: the operation and a backend")
                    if isinstance(decorator, ast.Call) and _called(decorator) in DECORATORS:
                        arguments = tuple(literal("the operation", a, self.calls) for a in decorator.args)
                        options = {k.arg: literal(k.arg, k.value, self.calls) for k in decorator.keywords if k.arg}
                        doc = (ast.get_docstring(node) or "").split("\n")[0]
                        yield Declared(node.name, arguments, options, doc, _taken(node.args))

    def why_not(self) -> str:
        return ""

    def load(self, source: bytes, path: Path, full_name: str) -> Function | None:
        """Runs the file."""
        module = types.ModuleType(f"benchsite_kernel_{path.stem}_{hashlib.sha256(source).hexdigest()[:12]}")
        module.__file__ = str(path)
        sys.modules[module.__name__] = module  # dataclasses, pickling and torch.compile look modules up by name
        _being_loaded.clear()
        exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
        return chosen(_being_loaded, full_name)


def parsed(source: str | bytes, name: str = "<unknown>") -> ast.Module:
    """Python, parsed. Raises SyntaxError, and ValueError for NUL and for what is nested too deeply to be parsed."""
    try:
        return ast.parse(source, name)
    except (MemoryError, RecursionError):
        raise ValueError("expressions are nested too deeply") from None


def literal(name: str, node: ast.expr, calls: Mapping[str, Function]) -> Any:
    """A literal, or one of `calls` with literal arguments."""
    try:
        if isinstance(node, ast.Call) and (called := calls.get(_called(node))):
            options = {k.arg: ast.literal_eval(k.value) for k in node.keywords if k.arg}
            return called(*map(ast.literal_eval, node.args), **options)
        return ast.literal_eval(node)
    except ValueError:
        raise ValueError(f"line {node.lineno}: {name} must be a literal: the file is read, not run") from None


def _taken(arguments: ast.arguments) -> tuple[str, ...] | None:
    """Names of a function's parameters; None if it takes any (`**options`)."""
    named = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return None if arguments.kwarg else tuple(one.arg for one in named)


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


_being_loaded: dict[str, Function] = {}


def register(full_name: str, function: Function) -> None:
    """For @kernel: registers a function of the Python file that is being run."""
    _being_loaded[full_name] = function


def take_registered() -> dict[str, Function]:
    """What the file that has just been run has registered; empty where none was run."""
    found = dict(_being_loaded)
    _being_loaded.clear()
    return found


def chosen(registered: Mapping[str, Function], full_name: str) -> Function | None:
    """The kernel of this name among the functions of a file; None if it is not there."""
    return registered.get(full_name) or _wrapped(registered)


def _wrapped(registered: Mapping[str, Function]) -> Function | None:
    """The file's only kernel if it is not a plain function: torch.library.custom_op and torch.jit.script give objects
    with another name than in the source, or none."""
    only = next(iter(registered.values())) if len(registered) == 1 else None
    return None if isinstance(only, types.FunctionType) else only

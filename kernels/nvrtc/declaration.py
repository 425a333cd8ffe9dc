"""The declaration of a kernel, in comment lines of its .cu file:

    // One block for each row; sums in float32.
    // @kernel("layer_norm")
    // @launch(grid=rows, block=256)
    // @call("layer_norm<T>", x, weight, bias, out, cols, eps)

It is parsed, never run. Each @kernel begins a new one; a statement may go on over several comment lines. The first line of the
comment right before @kernel describes it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from kernels.nvrtc import tensor_maps
from kernels.nvrtc.expressions import BadExpression, Expression
from kernels.nvrtc.tensor_maps import TensorMap

COMMENT = re.compile(r"\s*//[/!]?\s?(.*)")
STATEMENT = re.compile(r"@(kernel|launch|call)\b\s*(.*)", re.DOTALL)
ENTRY = re.compile(r"(?P<name>[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)\s*(?:<(?P<template>.*)>)?")
ELSEWHERE = re.compile(r"""\s*#\s*include\s*[<"](?:/|[^>"]*\.\.)""")
"""An #include by a path."""
T = "T"
"""Stands for the C++ type of the workload's dtype, in an entry point and as the value of a define."""
OUT = re.compile(r"out(\d*)")
"""The output; out0, out1, ... where there are several."""
SCRATCH = "scratch"
"""The argument that is memory for this launch alone, of as many bytes as @launch says. What is in it is not known."""
BUILT_IN = frozenset({"sms", "itemsize"})
"""Names beside those of an operation: the device's multiprocessors, and the bytes of an element of the dtype."""
OPTIONS = (
    "extra_device_vectorization", "fma", "ftz", "lineinfo", "max_register_count", "prec_div", "prec_sqrt", "restrict",
    "std", "use_fast_math",
)  # fmt: skip
"""Options of the compiler that a declaration may give: fields of cuda.core.ProgramOptions."""
NONE = Expression(ast.Constant(0))


class BadDeclaration(ValueError):
    """A declaration that cannot be read. The message names the line."""


@dataclass(frozen=True)
class Launch:
    """How a kernel is launched. The expressions are over tensors, sizes and options of its operation."""

    line: int
    """Of @call, in the file."""
    launch_line: int
    """Of @launch."""
    entry: str
    """Name of the `__global__` function."""
    template: tuple[Expression | None, ...]
    """Its template arguments; None: the type of the dtype."""
    arguments: tuple[Expression | TensorMap, ...]
    grid: Expression
    block: Expression
    shared: Expression = NONE
    """Bytes of dynamic shared memory of a block."""
    scratch: Expression | None = None
    """Bytes of the argument `scratch`; None: there is none."""
    defines: dict[str, Expression | None] = field(default_factory=dict)
    """Macros, in order. None: the type of the dtype. Expressions may name those before them, and all others any of them."""
    options: tuple[tuple[str, Any], ...] = ()
    """Of the compiler: some of OPTIONS."""


@dataclass(frozen=True)
class CudaKernelText:
    """One declared kernel of a .cu file."""

    line: int
    """Of @kernel."""
    arguments: list[ast.expr]
    keywords: list[ast.keyword]
    doc: str
    launch: Launch
    uses: tuple[tuple[str, int], ...]
    """(name, line) of the tensors, sizes and options that its expressions name."""


@dataclass
class _Statement:
    line: int
    kind: str
    call: ast.Call
    doc: str


def declared(source: str) -> Iterator[CudaKernelText]:
    """The kernels that a file declares, in its order. Raises BadDeclaration."""
    for number, line in enumerate(source.splitlines(), 1):
        if ELSEWHERE.match(line):
            raise BadDeclaration(f"line {number}: only CUDA's headers can be included: a kernel is one file")
    groups: list[list[_Statement]] = []
    for statement in _statements(source):
        if statement.kind == "kernel":
            groups.append([])
        elif not groups:
            raise BadDeclaration(f"line {statement.line}: @{statement.kind} comes before any @kernel")
        groups[-1].append(statement)
    if not groups:
        raise BadDeclaration(
            'it declares no kernel: write `// @kernel("...")`, `// @launch(...)` and `// @call(...)` at its top'
        )
    for group in groups:
        yield _kernel(group)


def _statements(source: str) -> Iterator[_Statement]:
    """The statements in a file's comments."""
    text, begin, doc = "", 0, ""
    for number, line in enumerate(source.splitlines(), 1):
        comment = COMMENT.fullmatch(line)
        said = comment[1].rstrip() if comment else None
        if text:
            if said is None:
                raise BadDeclaration(f"line {begin}: `{text.splitlines()[0]}` is not closed")
            text += "\n" + said
        elif said is None:
            doc = ""
            continue
        elif STATEMENT.match(said):
            text, begin = said, number
        else:
            doc = (doc or said) if said.strip("/-= ") else ""
            continue
        if (call := _parsed(text, begin)) is not None:
            found = STATEMENT.match(text)
            assert found is not None
            yield _Statement(begin, found[1], call, doc)
            text = doc = ""
    if text:
        raise BadDeclaration(f"line {begin}: `{text.splitlines()[0]}` is not closed")


def _parsed(text: str, line: int) -> ast.Call | None:
    """The call that a statement is; None while it is not closed."""
    if text.count("(") > text.count(")"):
        return None
    try:
        tree = ast.parse(text.lstrip("@ "), mode="eval").body
    except SyntaxError as error:
        raise BadDeclaration(f"line {line}: `{text}` is not valid: {error.msg}") from None
    if not isinstance(tree, ast.Call):
        raise BadDeclaration(f"line {line}: `{text}` needs its arguments in parentheses")
    return tree


def _kernel(group: list[_Statement]) -> CudaKernelText:
    by_kind: dict[str, _Statement] = {}
    for one in group:
        if one.kind in by_kind:
            raise BadDeclaration(f"line {one.line}: a second @{one.kind} of one kernel")
        by_kind[one.kind] = one
    kernel = by_kind["kernel"]
    for kind, example in (("launch", "grid=rows, block=256"), ("call", '"my_kernel<T>", x, out, cols')):
        if kind not in by_kind:
            raise BadDeclaration(f"line {kernel.line}: @kernel needs `// @{kind}({example})` below it")
    launch, call = by_kind["launch"], by_kind["call"]
    found, uses = _launch(launch, call)
    return CudaKernelText(kernel.line, kernel.call.args, kernel.call.keywords, kernel.doc, found, uses)


def _launch(launch: _Statement, call: _Statement) -> tuple[Launch, tuple[tuple[str, int], ...]]:
    given = {one.arg: one.value for one in launch.call.keywords if one.arg}
    known = ("grid", "block", "shared", SCRATCH, "defines", "options")
    if launch.call.args or not {"grid", "block"} <= given.keys() <= set(known):
        raise BadDeclaration(
            f"line {launch.line}: @launch takes grid= and block=, and if needed shared=, scratch=, defines= and options="
        )
    said: list[tuple[Expression | TensorMap, int]] = []

    def expression(node: ast.expr, line: int) -> Expression:
        with _at(line):
            said.append((found := Expression(node), line))
        return found

    def argument(node: ast.expr) -> Expression | TensorMap:
        if not _is_map(node):
            return expression(node, call.line)
        with _at(call.line):
            said.append((found := TensorMap.parsed(node), call.line))
        return found

    arguments = call.call.args
    if not arguments or call.call.keywords or not _is_text(arguments[0]):
        raise BadDeclaration(
            f'line {call.line}: @call takes the name of the kernel and its arguments: @call("my_kernel<T>", x, out, cols)'
        )
    entry, template = _entry(_text(arguments[0]), call.line)
    found = Launch(
        line=call.line,
        launch_line=launch.line,
        entry=entry,
        template=tuple(None if one is None else expression(one, call.line) for one in template),
        arguments=tuple(argument(one) for one in arguments[1:]),
        grid=expression(given["grid"], launch.line),
        block=expression(given["block"], launch.line),
        shared=expression(given["shared"], launch.line) if "shared" in given else NONE,
        scratch=expression(given[SCRATCH], launch.line) if SCRATCH in given else None,
        defines={
            name: None if _is_t(node) else expression(node, launch.line)
            for name, node in _defines(given.get("defines"), launch.line).items()
        },
        options=_options(given.get("options"), launch.line),
    )
    passed = [one for one in found.arguments if found.scratch and one.text == SCRATCH]
    if found.scratch and not passed:
        raise BadDeclaration(f"line {call.line}: @launch asks for scratch memory; pass it: @call(..., {SCRATCH})")
    unknown = [(one, line) for one, line in said if one not in passed]
    return found, tuple((name, line) for one, line in unknown for name in sorted(one.names - found.defines.keys()))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _text(node: ast.expr) -> str:
    return str(ast.literal_eval(node))


def _is_t(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == T


@contextmanager
def _at(line: int) -> Iterator[None]:
    """Errors of expressions name this line."""
    try:
        yield
    except BadExpression as error:
        raise BadDeclaration(f"line {line}: {error}") from None


def _is_map(node: ast.expr) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == tensor_maps.NAME


def _entry(text: str, line: int) -> tuple[str, list[ast.expr | None]]:
    """ "f<T, head_dim>" -> ("f", [None, head_dim])."""
    if not (found := ENTRY.fullmatch(text.strip())):
        raise BadDeclaration(
            f"line {line}: `{text}` is not the name of a kernel, with template arguments in <> or without"
        )
    if found["template"] is None:
        return found["name"], []
    try:
        parsed = ast.parse(f"({found['template']},)", mode="eval").body
    except SyntaxError:
        raise BadDeclaration(f"line {line}: the template arguments of `{text}` are not expressions") from None
    assert isinstance(parsed, ast.Tuple)
    return found["name"], [None if _is_t(one) else one for one in parsed.elts]


def _defines(node: ast.expr | None, line: int) -> dict[str, ast.expr]:
    if node is None:
        return {}
    if not isinstance(node, ast.Dict) or not all(key is not None and _is_text(key) for key in node.keys):
        raise BadDeclaration(f'line {line}: defines is a dict of macros, such as {{"HEAD_DIM": head_dim}}')
    return {_text(key): value for key, value in zip(node.keys, node.values, strict=True) if key is not None}


def _options(node: ast.expr | None, line: int) -> tuple[tuple[str, Any], ...]:
    try:
        found: Any = {} if node is None else ast.literal_eval(node)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found.keys() <= set(OPTIONS):
        raise BadDeclaration(f"line {line}: options is a dict of the compiler's options, some of {', '.join(OPTIONS)}")
    return tuple(sorted(found.items()))

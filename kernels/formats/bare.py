"""Functions without a declaration, whose arguments have the names of an operation: the declaration that they need.

The declaration is added to the text, so that what is stored, hashed and shown is what runs.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from kernels.catalog import get_operation, operations
from kernels.kernel_files import parsed

EXPORTED = re.compile(r"(?:template\s*<\s*typename\s+(?P<T>\w+)\s*>\s*)?(?:extern\s+\"C\"\s*)?__global__\s+void\s+"
                      r"(?:__launch_bounds__\s*\([^)]*\)\s*)?(?P<name>\w+)\s*\((?P<parameters>[^)]*)\)", re.S)  # fmt: skip
LAUNCH = re.compile(r"//[^\n]*?\b(?P<name>\w+)(?:<[^<>]*>)?\s*<<<(?P<grid>[^;\n]*?)>>>", re.S)
PARAMETER = re.compile(r"(?P<type>.*?)(?P<name>\w+)\s*(?:\[\s*\])?$", re.S)
HOST_LAUNCH = re.compile(r"^(?!\s*//).*<<<", re.M)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
TYPES = {"float": "float32", "__half": "float16", "half": "float16", "__nv_bfloat16": "bfloat16"}


@dataclass(frozen=True)
class Adapted:
    """A file with the declaration that was added."""

    name: str
    operation: str
    text: str


class NotAdapted(ValueError):
    """It is nearly one. The message says what is missing."""


def adapted_python(text: str, hints: str) -> Adapted | None:
    """A Python file with the declaration of its only such function; None if it has none. Raises NotAdapted.

    hints: names of file and folder, which tell operations with the same arguments apart.
    """
    functions = [node for node in parsed(text).body if isinstance(node, ast.FunctionDef) and not node.decorator_list]
    matches = [(f, of) for f in functions if not f.name.startswith("_") and (of := _operations_of(f))]
    if not matches:
        return None
    if len(matches) > 1:
        matches = [
            (f, of) for f, of in matches if _told_by(f.name, of) or f.name in ("kernel", "solution", "run")
        ] or matches
    if len(matches) > 1:
        raise NotAdapted(f"{' and '.join(f.name for f, _ in matches)} may each be the kernel: put @kernel above one")
    function, candidates = matches[0]
    operation = _told_apart(function.name, candidates, hints)
    declared, taken = get_operation(operation), {*_arguments(function)}
    passed = [option for option in declared.options if option not in declared.on_request]
    missing = [] if function.args.kwarg else [option for option in passed if option not in taken]
    if missing:
        lacks = f"the function {function.name} has no argument {', '.join(missing)}"
        raise NotAdapted(f"{lacks}, which the operation {operation} passes by name")
    backend = "triton" if re.search(r"^\s*(import triton|from triton)", text, re.M) else "pytorch"
    lines = text.splitlines(keepends=True)
    added = f"from kernels.catalog import kernel  # added: {function.name} has the arguments of {operation}\n\n\n"
    added += f'@kernel("{operation}", backend="{backend}")\n'
    lines.insert(function.lineno - 1, added)
    return Adapted(function.name.replace("_", "-"), operation, "".join(lines))


def _arguments(function: ast.FunctionDef) -> list[str]:
    a = function.args
    return [one.arg for one in (*a.posonlyargs, *a.args, *a.kwonlyargs)]


def _operations_of(function: ast.FunctionDef) -> list[str]:
    """Operations whose tensors are the first arguments, in their order, and whose options are all others."""
    names = _arguments(function)
    required = names[: len(names) - len(function.args.defaults) - sum(d is not None for d in function.args.kw_defaults)]
    found = []
    for name, of in operations().items():
        tensors = list(of.tensors)
        if tensors and names[: len(tensors)] == tensors and set(required[len(tensors) :]) <= {*of.options, "out"}:
            found.append(name)
    return found


def _told_by(text: str, names: list[str]) -> list[str]:
    flat = text.lower().replace("_", "").replace("-", "")
    return [name for name in names if name.replace("_", "") in flat]


def _told_apart(function: str, names: list[str], hints: str) -> str:
    """The operation: the only one, or the one that function, file or folder name. Raises NotAdapted."""
    if len(names) == 1:
        return names[0]
    for text in (function, hints):
        if len(told := _told_by(text, names)) == 1:
            return told[0]
    raise NotAdapted(
        f"{function} has the arguments of {', '.join(names)}: name the function or its file after the one that it is for"
    )


def adapted_cuda(text: str, hints: str) -> Adapted | None:
    """A .cu file with the declaration of its only __global__ function; None if it has none. Raises NotAdapted."""
    bare = COMMENT.sub(" ", text)
    exported = list(EXPORTED.finditer(bare))
    if not exported:
        return None
    if HOST_LAUNCH.search(bare):
        raise NotAdapted("it has host code: NVRTC compiles device code only; keep the launch as a comment")
    launches = {launch["name"]: launch for launch in LAUNCH.finditer(text)}
    chosen = [one for one in exported if one["name"] in launches]
    if len(chosen) != 1:
        names = ", ".join(one["name"] for one in exported)
        raise NotAdapted(
            f"no comment says how {names} is launched: write // {exported[0]['name']}<<<grid, block>>>(...)"
        )
    (one,) = chosen
    parameters = [_parameter(part) for part in one["parameters"].split(",") if part.strip()]
    operation = _operation_of_names([name for _, name in parameters], f"{one['name']} {hints}")
    types = {TYPES[kind] for kind, _ in parameters if kind in TYPES}
    dtypes = (
        "" if one["T"] or not types else f", dtypes=({', '.join(repr(t) for t in sorted(types))},)".replace("'", '"')
    )
    grid, block = _grid_and_block(launches[one["name"]]["grid"])
    entry = f"{one['name']}<T>" if one["T"] else one["name"]
    called = ", ".join(_typed(kind, name) for kind, name in parameters)
    head = f'// Added: {one["name"]} has the arguments of {operation}.\n// @kernel("{operation}"{dtypes})\n'
    head += f'// @launch(grid={grid}, block={block})\n// @call("{entry}", {called})\n\n'
    return Adapted("", operation, head + text)


def _parameter(text: str) -> tuple[str, str]:
    """(type without const, pointer and restrict; name)"""
    found = PARAMETER.match(text.strip())
    if not found:
        raise NotAdapted(f"the parameter {text.strip()!r} cannot be read")
    return re.sub(r"\b(const|__restrict__|unsigned)\b|\*|&", " ", found["type"]).strip(), found["name"]


def _typed(kind: str, name: str) -> str:
    return f"long({name})" if kind in ("long", "size_t", "long long", "int64_t") else name


def _operation_of_names(names: list[str], hints: str) -> str:
    """The operation whose tensors, sizes and options these are. Raises NotAdapted."""
    found = []
    for name, of in operations().items():
        sizes = {size for shape in of.tensors.values() for size in shape}
        if of.tensors and {*of.tensors} <= {*names} <= {*of.tensors, *sizes, *of.options, "out"} and "out" in names:
            found.append(name)
    if not found:
        raise NotAdapted(f"no operation here has the arguments {', '.join(names)}; the output is called out")
    return _told_apart("the function", found, hints)


def _grid_and_block(text: str) -> tuple[str, str]:
    """The first two arguments of a launch, as expressions of a declaration."""
    parts, depth, last = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and depth == 0:
            parts.append(text[last:at])
            last = at + 1
    parts.append(text[last:])
    if len(parts) < 2:
        raise NotAdapted(f"the launch <<<{text}>>> does not say grid and block")
    return _expression(parts[0]), _expression(parts[1])


def _expression(text: str) -> str:
    """C++ as an expression: dim3(a, b) is a tuple, and / divides whole numbers."""
    return re.sub(r"\bdim3\s*", "", text).replace("/", "//").strip()

"""The catalogue of operations and kernels: decorators that declare them, and readers that find them.

Operations are imported (their files need no torch). Kernels are *read*, not imported: a kernel's name, backend and
needs are literals in its decorator. So the catalogue is always current, cheap, and runs no foreign code. Only the
measuring child loads a kernel; it hashes the bytes that it executes. Readers (kernels/kernel_files.py) know the file
types.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels import kernel_files
from kernels.dtypes import DTYPES
from kernels.kernel_files import Declared, PythonFiles, Reader, chosen, take_registered
from kernels.needs import BOUND, Needs, as_text, cuda
from kernels.nvrtc.reader import CudaFiles
from kernels.settings import ARGUMENT, VARIANT, Decides, read_table, settings_in, why_no_space, with_table
from kernels.variables import why_refused

if TYPE_CHECKING:
    from kernels.operations.base import Operation

OPERATIONS_DIR = Path(__file__).parent / "operations"
LONGEST_NAME = 80
NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._+-]{{0,{LONGEST_NAME - 1}}}")
"""Valid names of kernels: they appear in comma-separated lists, addresses and file names."""
KERNEL_PATH_VARIABLE = "KERNEL_PATH"
"""More kernel folders, separated by ':'; each has one folder per operation, like kernels/operations/."""
SUBMITTED_VARIABLE = "SUBMITTED_KERNELS"
"""The folder of the submissions of a run (kernels/submission.py): VERSION/operation/files. Their kernels are called
name@VERSION."""
PROBLEM = "problem"
"""The operation of problems that came with their kernels: kernels/operations/problem.py. No list of operations has it."""
TESTS = "tests"
"""The case of a problem that is its own tests, which are checked and not timed."""
AT = "@"
"""Stands between name and version of a submitted kernel; no file can declare a name with it."""


class Unsupported(Exception):
    """Raised by a kernel that does not support a workload on this device. The message says why, for users."""


class UnknownName(LookupError):
    """An operation or a kernel does not exist. The message lists those that do."""


@dataclass(frozen=True)
class KernelInfo:
    """One kernel as declared in its file; the file is not run."""

    operation: str
    name: str
    backend: str
    dtypes: tuple[str, ...]
    needs: Needs
    limits: dict[str, tuple[Any, ...]]
    """Allowed values of sizes, such as {"head_dim": (64, 128)}; other sizes are free."""
    doc: str
    path: str
    sha256: str
    """Of the whole file."""
    other_work: str = ""
    """What it does instead of the operation's work, as a clause; empty: it does that work."""
    environment: dict[str, str] = field(default_factory=dict)
    """Environment variables that its process needs."""
    takes: tuple[str, ...] | None = None
    """Names of what it takes; None: anything."""
    space: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """The settings that it can be tuned over, with their values: kernels/settings.py."""
    error: str = ""
    """Why the file could not be read; else empty."""

    @property
    def full_name(self) -> str:
        return f"{self.operation}/{self.name}"

    @property
    def declared_name(self) -> str:
        """Operation and name as its file says them: without settings, and without the version of a submission."""
        return self.full_name.partition(VARIANT)[0].partition(AT)[0]

    @property
    def folder(self) -> str:
        """Its folder of KERNEL_PATH; empty for a built-in kernel."""
        root = Path(self.path).parent.parent
        return "" if root == OPERATIONS_DIR else str(root)

    def why_not_on(self, kind: str, capability: float | None) -> str:
        """Why this kernel cannot run on a device; empty if it can."""
        if self.error:
            return self.error
        return self.needs.why_not_on(kind, capability) or READERS[Path(self.path).suffix].why_not()

    def why_not_for(self, dtype: str, sizes: dict[str, Any]) -> str:
        """Why this kernel does not support a workload; empty if it does."""
        if dtype not in (self.dtypes or DTYPES):
            return f"does not support {dtype}"
        for size, allowed in self.limits.items():
            if sizes.get(size) not in allowed:
                return f"does not support {size}={sizes.get(size)}, only {as_text(allowed)}"
        for option, usual in get_operation(self.operation).on_request.items():
            if sizes.get(option, usual) != usual and self.takes is not None and option not in self.takes:
                return f"does not support {option}={sizes[option]}: it has no argument of this name"
        return ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"full_name": self.full_name}


# --- operations -------------------------------------------------------------------------------------------------------

_operations: dict[str, type[Operation]] = {}
_apart: dict[str, type[Operation]] = {}


def operation(name: str, *, baseline: str, title: str) -> Callable[[type[Operation]], type[Operation]]:
    """Class decorator: registers an operation as `name`. `baseline`: the kernel that others are compared with."""

    def register(cls: type[Operation]) -> type[Operation]:
        cls.name, cls.baseline, cls.title = name, baseline, title
        (_apart if name == PROBLEM else _operations)[name] = cls
        return cls

    return register


@cache
def operations() -> dict[str, type[Operation]]:
    """All operations by name. Importing them does not import torch."""
    for module in pkgutil.iter_modules([str(OPERATIONS_DIR)]):
        if module.ispkg:
            importlib.import_module(f"kernels.operations.{module.name}")
    return dict(sorted(_operations.items()))


def get_operation(name: str) -> type[Operation]:
    """An operation; also that of problems that came with their kernels, which no list has."""
    if name == PROBLEM:
        importlib.import_module("kernels.operations.problem")
        return _apart[name]
    try:
        return operations()[name]
    except KeyError:
        raise UnknownName(f"there is no operation '{name}'; there are: {', '.join(operations())}") from None


# --- kernels, read without being run ----------------------------------------------------------------------------------

READERS: dict[str, Reader] = {
    ".py": PythonFiles(calls={"cuda": cuda}),
    ".cu": CudaFiles(calls={"cuda": cuda}, operation=get_operation, unsupported=Unsupported),
}
"""File extension -> reader. For another type of kernel file, add a row."""


def kernel_folders(operation: str) -> list[Path]:
    """The kernel folders of an operation: built-in, then those of KERNEL_PATH, then those of submissions."""
    extra = [Path(p) for p in os.environ.get(KERNEL_PATH_VARIABLE, "").split(":") if p]
    submitted = os.environ.get(SUBMITTED_VARIABLE)
    versions = sorted(Path(submitted).iterdir()) if submitted else []
    return [folder for folder in (root / operation for root in (OPERATIONS_DIR, *extra, *versions)) if folder.is_dir()]


def kernels(operation: str | None = None) -> list[KernelInfo]:
    """All kernels, read from the files now, baseline first. Later folders replace kernels of the same name."""
    infos: dict[str, KernelInfo] = {}
    for op in [operation] if operation else list(operations()):
        for folder in kernel_folders(op):
            for path in sorted(folder.glob("*")):
                if path.suffix in READERS and path.name != "__init__.py":
                    infos.update({info.full_name: info for info in read_kernels(op, path)})
    return sorted(infos.values(), key=lambda k: (k.operation, k.name != get_operation(k.operation).baseline, k.name))


def declared(kind: str, capability: float | None) -> list[dict[str, Any]]:
    """The kernels of this host for the site, for a device of this kind: their declarations, and why some cannot run."""
    shown = (
        "operation", "name", "backend", "dtypes", "limits", "doc", "sha256", "folder", "other_work", "environment",
        "space",
    )  # fmt: skip
    return [{name: getattr(k, name) for name in shown} | {"why_not": k.why_not_on(kind, capability)} for k in kernels()]


def get_kernel(operation: str, name: str) -> KernelInfo:
    """A kernel by its name, or a variant of it: kernels/settings.py."""
    plain, _, settings = name.partition(VARIANT)
    for info in (known := kernels(operation)):
        if info.name == plain:
            return _variant(info, settings) if settings else info
    there_are = f"there are: {', '.join(k.name for k in known)}"
    roots = [root for root in os.environ.get(KERNEL_PATH_VARIABLE, "").split(":") if root]
    if lacking := [root for root in roots if not (Path(root) / operation).is_dir()]:
        there_are += f". {KERNEL_PATH_VARIABLE} names {lacking[0]}, which has no folder {operation}"
    raise UnknownName(f"there is no kernel '{operation}/{name}'; {there_are}")


def _variant(info: KernelInfo, settings: str) -> KernelInfo:
    """The kernel with these settings, as its name says them. Raises UnknownName."""
    try:
        settings_in(settings, info.space)
    except ValueError as error:
        raise UnknownName(f"there is no {info.full_name}{VARIANT}{settings}: {error}") from None
    return replace(info, name=f"{info.name}{VARIANT}{settings}")


def read_kernels(operation: str, path: Path) -> Iterator[KernelInfo]:
    """The kernels that a file declares for an operation. An unreadable file is one kernel with an error."""
    digest = ""
    try:
        source = path.read_bytes()
        digest = hashlib.sha256(source).hexdigest()
        for info in declared_in(path, source):
            if info.operation != operation:
                raise ValueError(f"{info.name} is for {info.operation}, in the folder of {operation}")
            yield info
    except Exception as error:  # any error: one bad file must not disable the device
        reason = f"{path.name} cannot be read: {error}"
        name = _dashed(path.stem) + _version_of(path)
        yield KernelInfo(operation, name, "unknown", (), Needs(), {}, "", str(path), digest, error=reason)


def declared_in(path: Path, source: bytes) -> Iterator[KernelInfo]:
    """The kernels that a file with this content declares, for any operation; nothing need lie at the path. Raises any
    exception, with the reason, if it cannot be read."""
    version = _version_of(path)
    for said in _declared(path, source):
        checked = declaration(*said.arguments, function_name=said.function, **said.options)
        if checked["space"] and said.takes is not None and ARGUMENT not in said.takes:
            raise ValueError(f"{checked['name']} has a space, so it must take the argument {ARGUMENT}")
        table = read_table(path, checked["name"], checked["space"])
        digest = hashlib.sha256(with_table(source, table)).hexdigest()
        checked["name"] += version
        yield KernelInfo(**checked, doc=said.doc, path=str(path), sha256=digest, takes=said.takes)


@lru_cache(maxsize=1024)
def _declared(path: Path, source: bytes) -> tuple[Declared, ...]:
    """What a file declares, parsed once for each content: every agent reads all kernels every few seconds."""
    return tuple(READERS[path.suffix].declared(source, path))


def _version_of(path: Path) -> str:
    """What the name of a kernel of a submission ends with, "@" and its version; empty for other files."""
    root, submitted = path.parent.parent, os.environ.get(SUBMITTED_VARIABLE)
    return f"{AT}{root.name}" if submitted and root.parent == Path(submitted) else ""


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def declaration(
    operation: str,
    *,
    backend: str,
    function_name: str,
    name: str | None = None,
    dtypes: tuple[str, ...] = (),
    needs: Needs | None = None,
    limits: dict[str, tuple[Any, ...]] | None = None,
    other_work: str = "",
    environment: dict[str, str] | None = None,
    space: dict[str, tuple[Any, ...]] | None = None,
) -> dict[str, Any]:
    """The arguments of @kernel with their defaults. Reader and decorator share it, so they cannot differ."""
    known = get_operation(operation).dtypes
    if isinstance(dtypes, str) or not all(dtype in known for dtype in dtypes):
        raise ValueError(f"dtypes is {dtypes!r}; it must be a tuple of {', '.join(known)}")
    if not isinstance(needs, Needs | None):
        raise ValueError(f"needs is {needs!r}; it must be cuda(...)")
    if needs and (isinstance(needs.triton, str) or not all(BOUND.fullmatch(str(bound)) for bound in needs.triton)):
        raise ValueError(f'triton is {needs.triton!r}; it must be bounds, such as (">=3.6", "<3.7")')
    called = name or _dashed(function_name)
    if not (isinstance(called, str) and NAME.fullmatch(called)):
        raise ValueError(f"the name {called!r} is not valid: use letters, digits and ._+-, at most {LONGEST_NAME}")
    sizes = set(get_operation(operation).model_fields) - {"dtype"}
    if not isinstance(limits, dict | None) or not set(limits or ()) <= sizes:
        raise ValueError(f"limits is {limits!r}; give values for some of {', '.join(sorted(sizes))}")
    if not isinstance(other_work, str) or "\n" in other_work or "\0" in other_work:
        raise ValueError(f"other_work is {other_work!r}; it must say in a clause what the kernel does instead")
    if other_work and called == get_operation(operation).baseline:
        raise ValueError(f"{called} is the baseline of {operation}: it cannot do other work")
    if environment and called == get_operation(operation).baseline:
        raise ValueError(
            f"{called} is the baseline of {operation}: it runs in every process, without variables of its own"
        )
    if why := why_refused(environment) or (why_no_space(space) if space is not None else ""):
        raise ValueError(why)
    return {
        "operation": operation,
        "name": called,
        "backend": backend,
        "dtypes": tuple(dtypes),
        "needs": needs or Needs(),
        "limits": {k: tuple(v) for k, v in (limits or {}).items()},
        "other_work": other_work,
        "environment": dict(sorted((environment or {}).items())),
        "space": {name: tuple(values) for name, values in (space or {}).items()},
    }


# --- kernels, loaded (in the measuring child only) --------------------------------------------------------------------


@dataclass
class LoadedKernel:
    """A loaded kernel, and the exact source it came from."""

    call: Callable[..., Any]
    source: str
    sha256: str
    options: dict[str, Any] = field(default_factory=dict)
    decides: Decides = field(default_factory=Decides)
    path: str = ""
    executed: bytes = b""
    """The bytes that were run."""
    registered: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """All kernels of the file that was run, by their declared names."""


UNNAMED = "unnamed"


def kernel(operation: str, *, backend: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Function decorator: declares a kernel. Arguments must be literals (or `cuda(...)`), because they are also read.

    operation: its name, such as "attention".
    backend: "pytorch", "triton", "cuda", "tilelang", "cutedsl", ...
    name: default: the function's name with dashes. dtypes: the supported ones; empty: float16, bfloat16 and float32.
    needs: `cuda(min_capability=8.0)` if it does not run everywhere. limits: allowed values of sizes.
    other_work: what it does instead, if that is not the operation's work: its ratio then counts nowhere.
    environment: variables of its process, {"NAME": "1"}: it is measured in a process of its own, beside the baseline.
    space: settings that it can be tuned over, {"warps": (4, 8)}; it then takes an argument `settings`, None or one of them.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        own = getattr(function, "__name__", None) or UNNAMED
        declared = declaration(operation, backend=backend, function_name=own, **options)
        kernel_files.register(f"{operation}/{declared['name']}", function)
        return function

    return register


def load(info: KernelInfo, beside: Iterable[LoadedKernel] = ()) -> LoadedKernel:
    """Loads a kernel by running its file. The hash is that of the executed bytes. beside: what this process has loaded: a file of
    several kernels is run once, as an import does, because PyTorch takes the declaration of an operator only once."""
    path = Path(info.path)
    source = path.read_bytes()
    decides = decides_of(info)
    if _version_of(path):  # its files may import each other
        sys.path.insert(0, str(path.parent))
    registered = next((one.registered for one in beside if (one.path, one.executed) == (info.path, source)), {})
    loaded = chosen(registered, info.declared_name)
    if not registered:
        take_registered()  # what a file left behind that failed
        loaded = READERS[path.suffix].load(source, path, info.declared_name)
        registered = take_registered()
    if path.read_bytes() != source:
        raise RuntimeError(f"{path.name} was changed while it was being loaded; run it again")
    if loaded is None:
        raise UnknownName(f"{path.name} no longer declares {info.full_name}")
    shown = with_table(source, decides.whole_table)
    sha256 = hashlib.sha256(shown).hexdigest()
    return LoadedKernel(loaded, shown.decode("utf-8", "replace"), sha256, {}, decides, info.path, source, registered)


def decides_of(info: KernelInfo) -> Decides:
    """What decides a kernel's settings: its name, else its table."""
    plain, _, said = info.name.partition(VARIANT)
    return Decides(said, info.space, read_table(Path(info.path), plain.partition(AT)[0], info.space))

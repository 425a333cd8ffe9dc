"""NVRTC through cuda-core: CUDA C++ to machine code for one architecture. Needs no GPU. What it compiled stays on disk.

A file of the cache is named after everything that the result depends on: source, headers, options, architecture and the
version of NVRTC. It begins with a hash of the rest; a damaged one is compiled again.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import io
import json
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kernels.nvrtc import toolchain

CACHE_VARIABLE = "BENCHSITE_NVRTC_CACHE"
"""Folder of the cache. A run gives its measuring process one of its own, so that its compile times are real."""
STANDARD = "c++17"
INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
FIRST_ERROR = re.compile(r"^.*\berror\b.*$", re.MULTILINE)
TRAILING = re.compile(r"^\d+ (?:catastrophic )?errors? detected in the compilation.*$", re.MULTILINE)
OF_ENTRY = re.compile(r"Compiling entry function '(\S+)'(.*?)(?=Compiling entry function|\Z)", re.DOTALL)
FIGURES = {
    "registers": re.compile(r"Used (\d+) registers"),
    "local_bytes": re.compile(r"(\d+) bytes stack frame"),
    "static_shared_bytes": re.compile(r"(\d+) bytes smem"),
}
"""What ptxas says of a kernel with the option -v."""
COMPILATION, LOG_FOLLOWS = "NVRTC_ERROR_COMPILATION", "compilation log:"
"""In what cuda-core raises when the compiler refuses a source."""
NOWHERE = "/proc/none"
"""The compiler looks for headers beside a source. There are none: a kernel is one file, so that its hash says all of it."""
LIBRARY = Path(__file__).parent / "include"
USUAL = "usual.h"
"""Included before every source."""
NOT_SHOWN = ("ptxas info    : 0 bytes gmem", "ptxas info    : Compile time", "Remark: ")
"""Lines of the compiler that say nothing about a kernel."""
FORMAT = 1
"""Of a cache file: raised when its content means something else."""


class CompileError(Exception):
    """The compiler refused the source. The message is its first error, `log` all that it said."""

    def __init__(self, log: str) -> None:
        self.log = log
        errors = FIRST_ERROR.findall(TRAILING.sub("", log))
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        super().__init__((errors[0].strip() if errors else log.strip() or "the compiler gave no reason") + more)


@dataclass(frozen=True)
class Source:
    """What is compiled."""

    text: str
    name: str
    """In the compiler's messages."""
    entry: str
    """The kernel as a C++ expression: "layer_norm<__half>"."""
    defines: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    """More options: fields of cuda.core.ProgramOptions."""


@dataclass(frozen=True)
class Compiled:
    """Machine code of one kernel."""

    cubin: bytes
    symbol: str
    """The kernel's name in it."""
    log: str
    """What the compiler said: warnings, registers and memory of each kernel."""
    registers: int
    """Of a thread."""
    local_bytes: int
    """Local memory of a thread: spilled registers, and arrays that do not fit into registers."""
    static_shared_bytes: int
    """Of a block."""


def architecture(major: int, minor: int) -> str:
    """The name of a device's architecture. From 9.0 on with its specific instructions: "sm_90a"."""
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


def compiled(source: Source, arch: str) -> Compiled:
    """Compiles a kernel, or takes it from the cache. Raises CompileError."""
    folder = cache_folder()
    path = folder / f"{_key(source, arch)}.cubin"
    if (known := _read(path)) is not None:
        return known
    found = _compile(source, arch)
    _write(path, found)
    return found


def cache_folder() -> Path:
    if given := os.environ.get(CACHE_VARIABLE):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "benchsite" / "nvrtc"


# --- the compiler -----------------------------------------------------------------------------------------------------


def _compile(source: Source, arch: str) -> Compiled:
    from cuda.core import Program, ProgramOptions  # takes 0.3 s, and is needed only where something is compiled

    fields: dict[str, Any] = {"std": STANDARD} | dict(source.options)
    options = ProgramOptions(
        name=f"{NOWHERE}/{source.name}",
        arch=arch,
        include_path=list(map(str, _include_path())),
        pre_include=[USUAL],
        device_as_default_execution_space=True,  # constexpr functions and lambdas without __device__
        define_macro=list(source.defines) or None,
        ptxas_options=["-v"],
        **fields,
    )
    log = io.StringIO()
    try:
        code = Program(f'#line 1 "{source.name}"\n{source.text}', "c++", options).compile(
            "cubin", name_expressions=(source.entry,), logs=log
        )
    except Exception as error:
        if COMPILATION not in str(error):
            raise
        raise CompileError(_readable(str(error).partition(LOG_FOLLOWS)[2])) from None
    symbol = code.symbol_mapping[source.entry]
    name = symbol.decode() if isinstance(symbol, bytes) else str(symbol)
    said = _readable(log.getvalue())
    return Compiled(bytes(code.code), name, said, **_figures(said, name))


def _readable(log: str) -> str:
    lines = [line.rstrip() for line in log.replace("\x00", "").splitlines()]
    return "\n".join(line for line in lines if line and not line.startswith(NOT_SHOWN))


def _figures(log: str, symbol: str) -> dict[str, int]:
    """What ptxas says of this kernel. A figure that it leaves out is 0: it names shared memory only where there is some."""
    said = next((rest for name, rest in OF_ENTRY.findall(log) if name == symbol), "")
    return {name: int(found[1]) if (found := figure.search(said)) else 0 for name, figure in FIGURES.items()}


@cache
def nvrtc_version() -> tuple[int, int]:
    """Of the library that compiles. Loads it from where `toolchain` found it: cuda-bindings then takes this one."""
    if (found := toolchain.library(toolchain.cuda_major())) is not None:
        for builtins in found.parent.glob(f"{found.name.partition('.')[0]}-builtins.so.*"):
            ctypes.CDLL(str(builtins), ctypes.RTLD_GLOBAL)  # NVRTC looks for it late, and not in its own folder
        ctypes.CDLL(str(found), ctypes.RTLD_GLOBAL)
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    return int(major), int(minor)


def _include_path() -> list[Path]:
    """Folders of headers. The last one has what stands for the C and C++ libraries."""
    return [*toolchain.include_folders(toolchain.cuda_major()), LIBRARY]


# --- the cache --------------------------------------------------------------------------------------------------------


def _key(source: Source, arch: str) -> str:
    digest = hashlib.sha256()
    folders = _include_path()
    library = toolchain.library(toolchain.cuda_major())
    said = [
        FORMAT,
        arch,
        nvrtc_version(),
        library and library.stat().st_size,  # versions 13.0.48 and 13.0.88 both say 13.0
        source.name,
        source.entry,
        source.defines,
        source.options,
        list(map(str, folders)),
    ]
    digest.update(json.dumps(said).encode())
    digest.update(source.text.encode())
    for path in sorted(_headers(f'#include "{USUAL}"\n{source.text}'.encode(), folders)):
        digest.update(f"{path}\0".encode() + _sha256(path).encode())
    return digest.hexdigest()


def _headers(text: bytes, folders: Sequence[Path]) -> set[Path]:
    """Every header that a source may include, and what those include, in whatever condition."""
    found: set[Path] = set()
    waiting: list[tuple[list[Path], bytes]] = [([], name) for name in INCLUDE.findall(text)]
    while waiting:
        beside, name = waiting.pop()
        for one in (*beside, *folders):
            path = one / os.fsdecode(name)
            if path.is_file():
                if path not in found:
                    found.add(path)
                    waiting += [([path.parent], inner) for inner in INCLUDE.findall(path.read_bytes())]
                break
    return found


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read(path: Path) -> Compiled | None:
    """A file of the cache; None if it is missing or damaged."""
    try:
        digest, _, rest = path.read_bytes().partition(b"\n")
        facts, _, cubin = rest.partition(b"\n")
    except OSError:
        return None
    if hashlib.sha256(rest).hexdigest().encode() != digest:
        return None
    return Compiled(cubin=cubin, **json.loads(facts))


def _write(path: Path, found: Compiled) -> None:
    """Writes a file of the cache at once: others see all of it or nothing. A cache that cannot be written is none."""
    facts = asdict(found)
    rest = b"\n".join((json.dumps({k: v for k, v in facts.items() if k != "cubin"}).encode(), found.cubin))
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, unfinished = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)
            os.replace(unfinished, path)
        except OSError:
            os.unlink(unfinished)

"""Global state that kernels must not change: PyTorch settings, shared functions, background work.

Used in the measuring child, between commands, never in a timed region. A kernel may do anything during its own call;
what it leaves behind would be measured as another kernel's time.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import json
import os
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from kernels.child import clock
from kernels.host import processes

PROTECTED = (
    "kernels.analysis.",
    "kernels.catalog",
    "kernels.child.",
    "kernels.contract.",
    "kernels.host.",
    "kernels.kernel_files",
    "kernels.parent.",
)
"""The instrument's modules: a kernel that replaces one of their functions could write its own result."""
BUSY_SHARE = 0.25
"""CPU share above which an idle-phase thread or process is busy; runnable but starved counts, too."""
WINDOW_S = 0.02
PATIENCE_S = {"thread": 10.0, "process": 30.0}
"""Time for pool threads, compiler threads and compiler helpers to become idle. torch.compile starts worker processes
after the first call."""

Load = tuple[int, bool]
Setting = tuple[str, Callable[[], Any], Callable[[Any], Any]]


def _difference(now: Any, before: Any) -> str:
    if isinstance(before, frozenset):
        return ", ".join(sorted(now ^ before))
    return f"{now} instead of {before}"


def _attribute(name: str, owner: Any, attribute: str) -> Setting:
    return name, lambda: getattr(owner, attribute), lambda value: setattr(owner, attribute, value)


def _settings(kind: str) -> Iterator[Setting]:
    """(name, read, write) of the settings that all kernels of the process share."""
    yield "default dtype", torch.get_default_dtype, torch.set_default_dtype
    yield "default device", torch.get_default_device, torch.set_default_device
    yield "number of threads", torch.get_num_threads, torch.set_num_threads
    yield "deterministic mode", torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms
    yield "float32 matmul precision", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
    backends, matmul = torch.backends, torch.backends.cuda.matmul
    yield _attribute("cuda.matmul.allow_tf32", matmul, "allow_tf32")
    for dtype in ("fp16", "bf16"):
        name = f"allow_{dtype}_reduced_precision_reduction"
        yield _attribute(f"cuda.matmul.{name}", matmul, name)
    for name in ("allow_tf32", "enabled", "benchmark", "deterministic"):
        yield _attribute(f"cudnn.{name}", backends.cudnn, name)
    for name in ("flash", "mem_efficient", "math", "cudnn"):
        read, write = getattr(backends.cuda, f"{name}_sdp_enabled"), getattr(backends.cuda, f"enable_{name}_sdp")
        yield f"{name} attention", read, write
    for device in ("cpu", "cuda"):
        yield (
            f"autocast on {device}",
            partial(torch.is_autocast_enabled, device),
            partial(torch.set_autocast_enabled, device),
        )
    yield _attribute("mkldnn.enabled", backends.mkldnn, "enabled")
    yield "CPU affinity", lambda: os.sched_getaffinity(0), lambda cpus: os.sched_setaffinity(0, cpus)
    yield "switch interval", sys.getswitchinterval, sys.setswitchinterval
    yield "implementations of aten operators", _overridden, _leave
    if kind == "cuda":
        yield _attribute("cuda.matmul.allow_fp16_accumulation", matmul, "allow_fp16_accumulation")
        yield "current stream", torch.cuda.current_stream, torch.cuda.set_stream


def _overridden() -> frozenset[str]:
    """ATen operators overridden from Python on a device where kernels run."""
    known: Any = getattr(torch.library, "_impls", ())
    return frozenset(name for name in known if name.startswith("aten/") and name.endswith(("/CPU", "/CUDA")))


def _leave(before: Any) -> None:
    """The write function of what cannot be restored."""


def _restored_silently() -> Iterator[Setting]:
    """Settings restored silently: a kernel may set them at import; other kernels must not notice."""
    yield "gradient mode", torch.is_grad_enabled, torch.set_grad_enabled
    yield "warnings as errors", _errors, _forgive


def _errors() -> list[Any]:
    return [entry for entry in warnings.filters if entry[0] == "error"]


def _forgive(before: list[Any]) -> None:
    filters: Any = warnings.filters
    filters[:] = [entry for entry in filters if entry[0] != "error" or entry in before]


def _namespaces() -> Iterator[tuple[str, Any]]:
    """Modules and classes with the functions that the instrument and other kernels call."""
    yield "time", time
    yield "torch", torch
    yield "torch.nn.functional", torch.nn.functional
    yield "torch.Tensor", torch.Tensor
    yield "torch.cuda", torch.cuda
    yield "torch.cuda.Event", torch.cuda.Event
    yield "torch.cuda.Stream", torch.cuda.Stream
    yield "torch.cuda.CUDAGraph", torch.cuda.CUDAGraph
    yield "json", json
    for module in protected_modules():
        yield module.__name__, module
        for cls in vars(module).values():
            if isinstance(cls, type) and cls.__module__ == module.__name__:
                yield cls.__name__, cls


def protected_modules() -> list[types.ModuleType]:
    """The loaded modules of PROTECTED, without packages: importing a module adds its name to its package."""
    found = [module for name, module in sys.modules.items() if name.startswith(PROTECTED)]
    return [module for module in found if not hasattr(module, "__path__")]


def _read(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except RuntimeError as error:  # a mix of PyTorch's old and new interface
        return str(error).splitlines()[0]


def _inherited(owner: Any) -> set[str]:
    """Inherited names: setting one on the object itself replaces the function."""
    if isinstance(owner, types.ModuleType):
        return set(vars(builtins)) if owner.__name__.startswith("kernels.") else set()
    bases = owner.__mro__[1:] if isinstance(owner, type) else type(owner).__mro__
    return {name for base in bases for name in vars(base)}


class Guard:
    """The state of the process before any kernel's file was loaded."""

    def __init__(self, kind: str, the_clock: clock.Clock) -> None:
        self.settings = [(name, _read(read), read, write) for name, read, write in _settings(kind)]
        self.restored_silently = [(_read(read), read, write) for _, read, write in _restored_silently()]
        self.must_replace = False
        """State changed that cannot be restored: replace this process."""
        the_runtime = getattr(the_clock, "runtime", the_clock)
        self.functions = [
            (label, owner, [(n, f) for n, f in vars(owner).items() if _is_function(f)], len(vars(owner)))
            for label, owner in [*_namespaces(), ("the clock", the_clock), ("the runtime", the_runtime)]
        ]
        self.codes = [
            (f"{label}.{name}", function, function.__code__)
            for label, owner, functions, _ in self.functions
            for name, function in functions
            if getattr(function, "__module__", "").startswith("kernels.") and hasattr(function, "__code__")
        ]
        self.owners = dict.fromkeys(self._others(), "")

    def changes(self) -> list[str]:
        """Differences, as "number of threads: 1 instead of 2". Restores them."""
        found = []
        for name, before, read, write in self.settings:
            if (now := _read(read)) != before:
                found.append(f"{name}: {_difference(now, before)}")
                with contextlib.suppress(RuntimeError):
                    write(before)
                self.must_replace |= _read(read) != before
        for before, read, write in self.restored_silently:
            if _read(read) != before:
                write(before)
        for label, owner, functions, size in self.functions:
            now = vars(owner)
            for name, before in [(n, f) for n, f in functions if now.get(n) is not f]:
                if _is_wrapped_by_torch(now.get(name), before):
                    functions[[n for n, _ in functions].index(name)] = (name, now[name])
                    continue
                found.append(f"{label}.{name}: replaced")
                setattr(owner, name, before)
            if len(now) > size:
                known = {n for n, _ in functions}
                for name in [n for n in _inherited(owner) & now.keys() - known if _is_function(now[n])]:
                    found.append(f"{label}.{name}: replaced")
                    delattr(owner, name)
        for name, function, code in self.codes:
            if function.__code__ is not code:
                found.append(f"{name}: rewritten")
                function.__code__ = code
        return found

    # --- a quiet process ------------------------------------------------------------------------------------------

    def claim(self, arm: str) -> None:
        """Attributes threads that are new since the last claim to this arm."""
        for task in os.listdir("/proc/self/task"):
            self.owners.setdefault(("thread", int(task)), arm)

    def claim_processes(self, arm: str) -> None:
        """The same for processes; it takes a few milliseconds."""
        for key in self._others():
            self.owners.setdefault(key, arm)

    def busy(self, arm: str) -> list[tuple[str, str]]:
        """[(arm that started it, what)] of threads and processes that work while no kernel is called."""
        begin = time.monotonic()
        while True:
            before = self._others()
            time.sleep(WINDOW_S)
            after = {key: now for key, now in self._others().items() if key in before}
            found = [key for key, now in after.items() if _is_busy(before[key], now)]
            waited = time.monotonic() - begin
            if not found or waited > max(PATIENCE_S[what] for what, _ in found):
                break
            time.sleep(WINDOW_S)
        return [(self.owners.setdefault(key, arm), f"a {key[0]}") for key in found]

    def _others(self) -> dict[tuple[str, int], Load]:
        """CPU time in ns, and whether it is runnable, of the other threads of this process and of the processes below
        it, which stay there when the process that started them ends."""
        me, found = os.getpid(), {}
        for entry in os.listdir("/proc/self/task"):
            if int(entry) != me:
                found["thread", int(entry)] = _cpu_ns(int(entry), thread=True), _is_runnable(f"/proc/self/task/{entry}")
        for pid in processes.descendants(me):
            with contextlib.suppress(OSError):
                tasks = [f"/proc/{pid}/task/{task}" for task in os.listdir(f"/proc/{pid}/task")]
                found["process", pid] = _cpu_ns(pid, thread=False), any(map(_is_runnable, tasks))
        return found


def _is_busy(before: Load, after: Load) -> bool:
    (cpu_ns, wanted), (cpu_ns_after, wants) = before, after
    return cpu_ns_after - cpu_ns > BUSY_SHARE * WINDOW_S * 1e9 or (wanted and wants)


def _is_runnable(task: str) -> bool:
    """Whether a thread (by its folder in /proc) runs or waits for a core; False if it has ended."""
    try:
        with open(f"{task}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "R"
    except OSError:
        return False


def _is_function(value: Any) -> bool:
    return callable(value) or isinstance(value, types.MemberDescriptorType | property | classmethod | staticmethod)


def _is_wrapped_by_torch(now: Any, before: Any) -> bool:
    """On its first use torch.compile wraps a few PyTorch functions."""
    file = getattr(getattr(now, "__code__", None), "co_filename", "")
    return getattr(now, "__wrapped__", None) is before and file.startswith(os.path.dirname(torch.__file__))


def _cpu_ns(number: int, thread: bool) -> int:
    """CPU time of a thread or process, from the operating system; 0 if unknown."""
    try:
        return time.clock_gettime_ns((~number << 3) | (6 if thread else 2))
    except OSError:
        return 0


class _Mallinfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


def memory_in_use(kind: str) -> int | None:
    """Exact bytes allocated and not freed; None if the C library does not report it."""
    if kind == "cuda":
        return torch.cuda.memory_allocated()
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return None
    mallinfo.restype = _Mallinfo
    info = mallinfo()
    return info.uordblks + info.hblkhd

"""Settings that all kernels of a process share: how to read each, and how to put it back."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
import tempfile
import threading
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch

from kernels.catalog import KERNEL_PATH_VARIABLE, SUBMITTED_VARIABLE, operations
from kernels.child import process_state
from kernels.child.process_state import Setting, leave
from kernels.child.thread_places import Threads

SIGNALS = tuple(number for number in signal.Signals if number not in (signal.SIGKILL, signal.SIGSTOP))
ALLOCATIONS = 3
OPERATORS = (
    "_fused_sdp_choice", "_scaled_dot_product_attention_math", "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu", "_softmax", "_to_copy", "add", "addmm", "baddbmm", "bmm", "clone",
    "contiguous", "copy_", "div", "einsum", "empty", "exp", "fill_", "linear", "layer_norm", "masked_fill", "matmul",
    "mean", "mm", "mul", "native_layer_norm", "rms_norm", "rsqrt", "scaled_dot_product_attention", "softmax", "sub",
    "sum", "to", "transpose", "view", "where",
)  # fmt: skip
"""ATen operators that baselines and the instrument call: their registrations are compared at every key. An operation
names others (`Operation.operators`)."""
GRAIN = 32_768
"""Elements that PyTorch gives a thread at least."""
TERMS = ((1.0, 2.0**-40), (1.0, -(2.0**-40)), (2.0**-128, 2.0**-128))
"""Sums in float32: 1 if it is rounded to the nearest number, twice; and a denormal number."""
OF_PLACES = ("working directory", "folder of temporary files", "paths of imports")
OF_THREADS = "affinity, priority and scheduler of threads"
MKL = (
    "MKL_Get_Max_Threads",
    "mkl_serv_set_num_threads",
    "MKL_Set_Num_Threads_Local",
    "mkl_serv_domain_get_max_threads",
)
MKL_DOMAINS = (1, 2, 3, 4)
"""BLAS, FFT, vector mathematics, PARDISO."""
OPENMP = ("omp_get_max_active_levels", "omp_get_dynamic", "omp_set_max_active_levels", "omp_set_dynamic")
LENT_KEYS = ("/Meta", "/FuncTorch")
"""Dispatch keys at which PyTorch registers late by itself: shape inference and vmap."""


def _attribute(name: str, owner: Any, attribute: str) -> Setting:
    return name, lambda: getattr(owner, attribute), lambda value: setattr(owner, attribute, value)


def settings(kind: str) -> Iterator[Setting]:
    """Settings of PyTorch and of the process."""
    yield from process_state.settings()
    inner = torch._C  # modes first: every other reading passes through them
    yield "torch function modes", inner._len_torch_function_stack, partial(_pop_modes, inner._pop_torch_function_stack)
    yield "torch dispatch modes", inner._len_torch_dispatch_stack, partial(_pop_modes, inner._pop_torch_dispatch_stack)
    yield "default dtype", torch.get_default_dtype, torch.set_default_dtype
    yield "default device", torch.get_default_device, torch.set_default_device
    yield "number of threads", torch.get_num_threads, torch.set_num_threads
    yield from _libraries()
    yield "deterministic mode", torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms
    yield "float32 matmul precision", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
    backends, matmul = torch.backends, torch.backends.cuda.matmul
    yield _attribute("cuda.matmul.allow_tf32", matmul, "allow_tf32")
    for dtype in ("fp16", "bf16"):
        name = f"allow_{dtype}_reduced_precision_reduction"
        yield _attribute(f"cuda.matmul.{name}", matmul, name)
    for name in ("allow_tf32", "enabled", "benchmark", "benchmark_limit", "deterministic"):
        yield _attribute(f"cudnn.{name}", backends.cudnn, name)
    for name in ("flash", "mem_efficient", "math", "cudnn"):
        read, write = getattr(backends.cuda, f"{name}_sdp_enabled"), getattr(backends.cuda, f"enable_{name}_sdp")
        yield f"{name} attention", read, write
    for name, getter, setter in (
        ("order of attention's backends", "_get_sdp_priority_order", "_set_sdp_priority_order"),
        ("preferred BLAS", "_get_blas_preferred_backend", "_set_blas_preferred_backend"),
        ("preferred linear algebra", "_get_linalg_preferred_backend", "_set_linalg_preferred_backend"),
        (
            "reduction of math attention",
            "_get_math_sdp_allow_fp16_bf16_reduction",
            "_set_math_sdp_allow_fp16_bf16_reduction",
        ),
    ):
        if hasattr(inner, getter) and hasattr(inner, setter):
            yield name, getattr(inner, getter), getattr(inner, setter)
    for device in ("cpu", "cuda"):
        yield (
            f"autocast on {device}",
            partial(torch.is_autocast_enabled, device),
            partial(torch.set_autocast_enabled, device),
        )
        yield (
            f"autocast's dtype on {device}",
            partial(torch.get_autocast_dtype, device),
            partial(torch.set_autocast_dtype, device),
        )
    yield _attribute("mkldnn.enabled", backends.mkldnn, "enabled")
    yield "inference mode", torch.is_inference_mode_enabled, leave
    yield "anomaly mode", torch.is_anomaly_enabled, torch.set_anomaly_enabled
    yield "dispatch keys", _dispatch_keys, leave
    yield "PyTorch's profiler", torch.autograd._profiler_enabled, leave
    yield "CPU affinity", lambda: os.sched_getaffinity(0), lambda cpus: os.sched_setaffinity(0, cpus)
    yield "priority", lambda: os.getpriority(os.PRIO_PROCESS, 0), leave
    yield "scheduler", lambda: os.sched_getscheduler(0), leave
    yield "rounding of numbers", _rounding, _round_as_usual
    if kind == "cpu":
        yield "rounding of numbers in PyTorch's threads", _rounding_of_threads, leave
        yield OF_THREADS, (threads := Threads()).read, threads.put_back
    for variable in (KERNEL_PATH_VARIABLE, SUBMITTED_VARIABLE):
        yield f"variable {variable}", partial(os.environ.get, variable), partial(_set_variable, variable)
    directory, temporary, imports = OF_PLACES
    yield directory, _working_directory, _return_to
    yield temporary, _temporary, _set_temporary
    yield imports, partial(_still, tuple(sys.path)), _import_again
    yield "switch interval", sys.getswitchinterval, sys.setswitchinterval
    yield "profile function", sys.getprofile, sys.setprofile
    yield "trace function", sys.gettrace, sys.settrace
    yield "tracing of memory", tracemalloc.is_tracing, lambda before: None if before else tracemalloc.stop()
    yield "threads' profile function", lambda: getattr(threading, "_profile_hook", None), threading.setprofile
    yield "garbage collector", lambda: (gc.isenabled(), gc.get_threshold()), _collect
    yield "timers", _timers, _stop_timers
    for number in SIGNALS:
        yield f"handler of {signal.Signals(number).name}", partial(signal.getsignal, number), partial(_handle, number)
    yield "implementations of aten operators", overridden, leave
    yield "compiler's settings", _compilers, leave
    if kind == "cuda":
        yield _attribute("cuda.matmul.allow_fp16_accumulation", matmul, "allow_fp16_accumulation")
        yield "current stream", torch.cuda.current_stream, torch.cuda.set_stream
        yield "caching allocator", _allocates_from_cache, leave
        yield "share of the device's memory", torch.cuda.get_per_process_memory_fraction, leave


def _libraries() -> Iterator[Setting]:
    """Threads of MKL and of OpenMP, which count for themselves. Nothing of a library that PyTorch is built without."""
    library = _pytorch_library()
    if all(hasattr(library, name) for name in MKL):
        count, set_all, set_local, of_domain = (getattr(library, name) for name in MKL)

        def write(before: tuple[int, ...]) -> None:
            set_local(0)
            set_all(before[0])

        yield "threads of MKL", lambda: (count(), *(of_domain(number) for number in MKL_DOMAINS)), write
    if all(hasattr(library, name) for name in OPENMP):
        levels, dynamic, set_levels, set_dynamic = (getattr(library, name) for name in OPENMP)
        yield "nested levels of OpenMP", levels, set_levels
        yield "OpenMP's choice of threads", dynamic, set_dynamic


@lru_cache
def _pytorch_library() -> ctypes.CDLL:
    """PyTorch's library for CPUs, with the symbols of the libraries that it needs."""
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    return ctypes.CDLL(str(path) if path.exists() else None)


def settle(kind: str) -> None:
    """Lets PyTorch make the choices that it makes once a process, before they are read.

    The first choice of an attention backend on a GPU puts cuDNN first in the order of backends where the GPU and cuDNN
    suit. The order from before that, if it were put back, would give `sdpa` another kernel for the rest of the process.
    """
    if kind == "cuda":
        one = torch.empty(1, 1, 8, 64, dtype=torch.float16, device="cuda")
        torch._fused_sdp_choice(one, one, one)


def _working_directory() -> str:
    with contextlib.suppress(OSError):
        return os.getcwd()
    return "none, it was removed,"


def _return_to(folder: str) -> None:
    with contextlib.suppress(OSError):
        os.chdir(folder)


def _temporary() -> tuple[str | None, str]:
    """(TMPDIR, the folder that Python's files get); empty: there is none."""
    with contextlib.suppress(OSError):
        return os.environ.get("TMPDIR"), tempfile.gettempdir()
    return os.environ.get("TMPDIR"), ""


def _set_temporary(before: tuple[str | None, str]) -> None:
    _set_variable("TMPDIR", before[0])
    tempfile.tempdir = before[1] or None


def _still(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Those of these paths by which imports are still found: a kernel may add others."""
    return tuple(path for path in paths if path in sys.path)


def _import_again(paths: tuple[str, ...]) -> None:
    sys.path[:] = [*paths, *(path for path in sys.path if path not in paths)]


def _pop_modes(pop: Callable[[], Any], count: int) -> None:
    length = {"_pop_torch_function_stack": "_len_torch_function_stack"}.get(pop.__name__, "_len_torch_dispatch_stack")
    while getattr(torch._C, length)() > count:
        pop()


def _dispatch_keys() -> str:
    return f"{torch._C._dispatch_tls_local_include_set()}, {torch._C._dispatch_tls_local_exclude_set()}"


def _timers() -> tuple[bool, ...]:
    """Whether each of the process's interval timers runs."""
    each = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
    return tuple(signal.getitimer(timer)[0] > 0 for timer in each)


def _stop_timers(before: tuple[bool, ...]) -> None:
    for timer, ran in zip((signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF), before, strict=True):
        if not ran:
            signal.setitimer(timer, 0)


def _rounding(smallest: float = sys.float_info.min, little: float = 2.0**-60) -> str:
    """Whether this thread keeps numbers below the smallest normal one, and rounds to the nearest; in words."""
    keeps = smallest / 2 > 0 and (smallest / 2) * 2 > 0
    nearest = (1 + little, 1 - little, -1 - little) == (1, 1, -1)
    found = ["" if keeps else "denormal numbers are flushed to 0, as in libraries built with -ffast-math"]
    found += ["" if nearest else "not to the nearest number"]
    return ", ".join(filter(None, found)) or "as usual"


def _rounding_of_threads() -> str:
    """The same of the threads in which PyTorch computes large tensors, in words. One addition: they may have to wait for each
    other."""
    if (threads := torch.get_num_threads()) == 1:
        return "as usual"
    some, others, out = _for_each_thread(threads)
    up, down, small = torch.add(some, others, out=out).view(-1, len(TERMS))[:: GRAIN // 64].T.numpy()
    flushed, nearest = not small.all(), (up == 1).all() and (down == 1).all()
    found = ["denormal numbers are flushed to 0" if flushed else "", "" if nearest else "not to the nearest number"]
    return ", ".join(filter(None, found)) or "as usual"


@lru_cache(maxsize=1)
def _for_each_thread(threads: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two tensors to add, and one for the sums: so large that each thread gets some of all TERMS."""
    count = GRAIN * threads // len(TERMS) + 1
    some, others = (torch.tensor(column, dtype=torch.float32).repeat(count) for column in zip(*TERMS, strict=True))
    return some, others, torch.empty_like(some)


def _round_as_usual(before: Any) -> None:
    torch.set_flush_denormal(False)
    if reset := getattr(ctypes.CDLL(None), "fesetround", None):
        reset(0)


def _set_variable(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _handle(number: int, before: Any) -> None:
    if before is not None:
        signal.signal(number, before)


def _collect(before: tuple[bool, tuple[int, int, int]]) -> None:
    gc.set_threshold(*before[1])
    (gc.enable if before[0] else gc.disable)()


def _allocates_from_cache() -> bool:
    """Looks again where it seems not to: a thread may free memory meanwhile."""
    return any(_allocated_one() for _ in range(ALLOCATIONS))


def _allocated_one() -> bool:
    before = torch.cuda.memory_allocated()
    one = torch.empty(1, device="cuda")
    return torch.cuda.memory_allocated() > before and one.numel() == 1


def _compilers() -> frozenset[str]:
    """Settings of the compiler that differ from their defaults."""
    found = set()
    for name in ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config"):
        entries = getattr(sys.modules.get(name), "_config", {})
        found |= {f"{name}.{key}" for key, entry in entries.items() if _is_set(entry)}
    return frozenset(found)


def _is_set(entry: Any) -> bool:
    value = getattr(entry, "user_override", None)
    value = value.get(None) if isinstance(value, ContextVar) else value
    return value is not None and type(value) is not object and value != entry.default


def overridden() -> frozenset[str]:
    """ATen operators overridden from Python, at any key but those that PyTorch itself adds late."""
    return _of_aten(frozenset(getattr(torch.library, "_impls", ())))


@lru_cache(maxsize=4)
def _of_aten(names: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name in names if name.startswith("aten/") and not any(key in name for key in LENT_KEYS))


def registrations() -> dict[str, str]:
    """Operator -> all of its registrations in the dispatcher. Takes milliseconds."""
    names = set(OPERATORS).union(*(operation.operators for operation in operations().values()))
    every = [n for n in torch._C._dispatch_get_all_op_names() if n.partition("::")[2].partition(".")[0] in names]
    return {name: _not_lent(torch._C._dispatch_dump(name)) for name in every if name.startswith("aten::")}


def _not_lent(dump: str) -> str:
    """Registrations without those that PyTorch adds late by itself: each line begins with its dispatch key."""
    lent = tuple(key.strip("/") for key in LENT_KEYS)
    return "\n".join(line for line in dump.splitlines() if not line.startswith(lent))


def restored_silently() -> Iterator[Setting]:
    """Settings put back silently: a kernel may set them at import; other kernels must not notice."""
    yield "gradient mode", torch.is_grad_enabled, torch.set_grad_enabled
    yield "warnings as errors", _errors, _forgive
    yield "collector's callbacks", lambda: list(gc.callbacks), _call_back


def _call_back(before: list[Any]) -> None:
    gc.callbacks[:] = before


def _errors() -> list[Any]:
    return [entry for entry in warnings.filters if entry[0] == "error"]


def _forgive(before: list[Any]) -> None:
    filters: Any = warnings.filters
    filters[:] = [entry for entry in filters if entry[0] != "error" or entry in before]


def difference(now: Any, before: Any) -> str:
    if isinstance(before, frozenset):
        return ", ".join(sorted(now ^ before))
    return f"{now} instead of {before}"


def read_one(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except RuntimeError as error:  # a mix of PyTorch's old and new interface
        return str(error).partition("\n")[0]

"""Environment variables that a kernel may declare."""

from __future__ import annotations

import re
from typing import Any

VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,79}")
RESERVED = ("LD_", "PYTHON", "CUDA_", "NVIDIA_", "MALLOC_", "GLIBC_", "KINETO_", "BENCHSITE_")
"""Beginnings of the names of variables by which the loader, Python, the driver and the C library start, and the
instrument's own: no kernel sets them."""
OF_BASELINES = ("ATEN_", "OMP_", "GOMP_", "KMP_", "MKL_", "DNNL_", "ONEDNN_")
"""The same of the libraries by which PyTorch computes on a CPU: they change the baseline more than a kernel. A kernel that
wants fewer threads, or other instructions, says so in its call. Threads that spin disturb all kernels beside them, too."""
RESERVED_NAMES = (
    "PATH", "HOME", "TMPDIR", "USER", "LANG", "LC_ALL", "VIRTUAL_ENV", "CC", "CXX", "KERNEL_PATH",
    "SUBMITTED_KERNELS",
    "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS",
    "TILELANG_CACHE_DIR", "CUTE_DSL_CACHE_DIR", "QUACK_CACHE_DIR",
)  # fmt: skip


def why_refused(environment: Any) -> str:
    """Why a kernel's environment variables are refused, as a sentence; empty if they are not."""
    if not isinstance(environment, dict | None):
        return f'environment is {environment!r}; it must be a dict, such as {{"NAME": "1"}}'
    for name, value in (environment or {}).items():
        if not (isinstance(name, str) and VARIABLE.fullmatch(name)):
            return f"the environment variable {name!r} is not valid: use A-Z, 0-9 and _, at most 80"
        if name.startswith(OF_BASELINES):
            return f"the environment variable {name} is not a kernel's: it changes the libraries of the baseline"
        if name in RESERVED_NAMES or name.startswith(RESERVED):
            why = "the instrument sets it, or the process starts by it"
            return f"the environment variable {name} is not a kernel's: {why}"
        if not isinstance(value, str) or len(value) > 200 or not value.isprintable():
            return f"{name} is {value!r}; it must be a text of one line, at most 200 characters"
    return ""

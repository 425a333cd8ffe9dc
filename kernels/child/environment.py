"""The environment as PyTorch sees it: everything that can change a number."""

from __future__ import annotations

import os
import platform
from typing import Any

import torch

from kernels import HARNESS_VERSION
from kernels.host.cpu_cache import told_mib
from kernels.host.environment import cpu_name


def environment(kind: str) -> dict[str, Any]:
    """The keys of the fingerprint (kernels/contract/environment.py), and further stored facts."""
    try:
        import triton

        triton_version = triton.__version__
    except ImportError:
        triton_version = ""
    found: dict[str, Any] = {
        "harness": HARNESS_VERSION,
        "torch": torch.__version__,
        "triton": triton_version,
        "cuda": torch.version.cuda or "",
        "cudnn": "",
        "driver": "",
        "device": cpu_name(),
        "python": platform.python_version(),
        "os": platform.platform(),
        "host": platform.node(),
        "cpu": cpu_name(),
        "cpu_count": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
    if kind == "cpu" and (told := told_mib()):
        found["cpu_cache_mib"] = told
    if kind == "cuda":
        properties = torch.cuda.get_device_properties(0)
        found |= {
            "device": properties.name,
            "cudnn": str(torch.backends.cudnn.version()),
            "capability": f"{properties.major}.{properties.minor}",
            "sm_count": properties.multi_processor_count,
            "l2_bytes": properties.L2_cache_size,
            "memory_bytes": properties.total_memory,
        }
    return found


def card(kind: str) -> tuple[str, float | None]:
    """(name, compute capability) of the device: what tables of tuned settings go by."""
    if kind != "cuda":
        return cpu_name(), None
    properties = torch.cuda.get_device_properties(0)
    return properties.name, float(f"{properties.major}.{properties.minor}")

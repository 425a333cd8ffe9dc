"""What was measured on: everything that may move a number, and the fingerprint over what surely does."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from kernels import HARNESS_VERSION

KEYED = ("device", "driver", "cuda", "cudnn", "torch", "triton", "harness")
"""Two results are comparable only if these agree."""


def environment(kind: str) -> dict[str, Any]:
    """Read in the child, where torch is. Keys of KEYED, and more that is stored but not part of the fingerprint."""
    import torch

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


def cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def fingerprint(found: dict[str, Any]) -> str:
    """12 hex digits over the KEYED part of an environment."""
    keyed = {key: str(found.get(key, "")) for key in KEYED}
    return hashlib.sha256(json.dumps(keyed, sort_keys=True).encode()).hexdigest()[:12]


def commit() -> str:
    """The commit of this checkout, with "+" when files differ from it; empty where nothing says.

    BENCHSITE_COMMIT says it where there is no git, as in an image.
    """
    if told := os.environ.get("BENCHSITE_COMMIT"):
        return told
    root = Path(__file__).parent.parent.parent
    try:
        head = _git(root, "rev-parse", "HEAD")
        return head + ("+" if _git(root, "status", "--porcelain") else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, timeout=5, check=True)
    return done.stdout.strip()

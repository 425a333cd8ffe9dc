"""The host without torch: its processor, and the commit of this checkout."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def commit() -> str:
    """Commit of this checkout, "+" if dirty; empty if unknown. BENCHSITE_COMMIT overrides it (images without git)."""
    if told := os.environ.get("BENCHSITE_COMMIT"):
        return told
    try:
        head = _git(ROOT, "rev-parse", "HEAD")
        return head + ("+" if _git(ROOT, "status", "--porcelain") else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, timeout=5, check=True)
    return done.stdout.strip()

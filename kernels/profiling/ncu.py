"""Nsight Compute: where ncu is, how it is called, and what its refusals mean."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from glob import glob
from pathlib import Path

from kernels.contract.profile import MOST_LAUNCHES, Counters
from kernels.profiling.ask import MOST_SAID, Ask, answer_of
from kernels.profiling.metrics import SECTIONS, asked
from kernels.profiling.page import launches
from kernels.profiling.process import Ended, Launcher

PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu", "/usr/local/NVIDIA-Nsight-Compute*/ncu")
"""Where it is if it is not on PATH."""
NO_NCU = (
    "Nsight Compute (ncu) is not installed on this host: its owner installs the package nsight-compute, or puts ncu on "
    "the PATH of the agent."
)
NO_GPU = "Hardware counters are read of NVIDIA GPUs only."
REFUSALS = (
    (
        "ERR_NVGPUCTRPERM",
        "The driver lets only administrators read the GPU's counters: the host's owner loads the module nvidia with "
        "NVreg_RestrictProfilingToAdminUsers=0, or gives the agent CAP_SYS_ADMIN (a container: --cap-add=SYS_ADMIN).",
    ),
    (
        "LibraryNotLoaded",
        "ncu cannot reach the driver's counters: the host's owner runs the agent where the driver's libraries and "
        "devices are complete (a gVisor container has no counters).",
    ),
    (
        "Driver resource was unavailable",
        "Another tool holds the GPU's counters: the host's owner pauses it while kernels are profiled, for DCGM with "
        "`dcgmi profile --pause`.",
    ),
    (
        "is not supported",
        "This version of ncu does not support the GPU or its driver: the host's owner installs a newer Nsight Compute.",
    ),
    (
        "InterprocessLockFailed",
        "Another ncu runs on this host, and holds its lock: the host's owner ends it, or removes its lock file.",
    ),
    ("No kernels were profiled", "The call launched no GPU kernel."),
)
"""What ncu says, and what it means: who could change it, and how."""
PARAMETERS = Path("/proc/driver/nvidia/params")
"""The driver's settings."""
STATUS = Path("/proc/self/status")
ADMIN = 1 << 21 | 1 << 38
"""CAP_SYS_ADMIN, CAP_PERFMON."""
ERROR = re.compile(r"^==ERROR== *(.+)$", re.MULTILINE)
UNKNOWN_METRIC = re.compile(r"metric|section", re.IGNORECASE)
VERSION_LIMIT_S = 20.0


def find() -> str | None:
    """The path of ncu: on PATH, or where its installers put it, the newest."""
    if found := shutil.which("ncu"):
        return os.path.abspath(found)
    found_all = (path for place in PLACES for path in sorted(glob(place), reverse=True))
    return next((path for path in found_all if os.access(path, os.X_OK)), None)


def why_none(kind: str, isolated: bool = False) -> str:
    """Why this host gives no counters of a device of this kind, as far as can be said without trying; else empty.

    isolated: of a kernel behind the airlock, which has no rights.
    """
    if kind != "cuda":
        return NO_GPU
    if find() is None:
        return NO_NCU
    return REFUSALS[0][1] if _of_admins_only() and (isolated or not _is_admin()) else ""


def _of_admins_only() -> bool:
    try:
        return "RmProfilingAdminOnly: 1" in PARAMETERS.read_text()
    except OSError:
        return False


def _is_admin() -> bool:
    """Whether this process may do what the driver asks for: CAP_SYS_ADMIN or CAP_PERFMON."""
    match = re.search(r"^CapEff:\s*([0-9a-f]+)", STATUS.read_text(), re.MULTILINE)
    return match is not None and bool(int(match[1], 16) & ADMIN)


def version(path: str) -> str:
    """Such as 2025.3.1.0; empty if it does not say."""
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=VERSION_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
    match = re.search(r"Version ([\d.]+)", said.stdout)
    return match[1] if match else ""


def command(path: str, ask: Ask, with_metrics: bool = True) -> list[str]:
    """One call of a kernel under ncu. The GPU's clocks stay as they are."""
    sections = [part for name in SECTIONS for part in ("--section", name)]
    metrics = ["--metrics", ",".join(asked())] if with_metrics else []
    return [
        path, "--clock-control", "none", "--profile-from-start", "off", "--target-processes", "all",
        "--launch-count", str(MOST_LAUNCHES), *sections, *metrics, "--csv", "--page", "raw", "--print-units", "base",
        sys.executable, "-m", "kernels.profiling.target", ask.model_dump_json(),
    ]  # fmt: skip


def counters(launcher: Launcher, ask: Ask, environment: dict[str, str]) -> tuple[Counters | None, str]:
    """(the counters of one call; why there are none, as a sentence)."""
    if launcher.device.kind != "cuda":
        return None, NO_GPU
    if (path := find()) is None:
        return None, NO_NCU
    for with_metrics in (True, False):  # an older ncu refuses a name that it does not know
        ended = launcher.run(command(path, ask, with_metrics), environment)
        if found := launches(ended.output):
            return Counters(tool=version(path), launches=found), ""
        why = why_not(ended)
        if not with_metrics or not _names_a_metric(ended):
            break
    return None, why


def _names_a_metric(ended: Ended) -> bool:
    return any(UNKNOWN_METRIC.search(error) for error in ERROR.findall(ended.output + ended.log)) and not _refusal(
        ended
    )


def _refusal(ended: Ended) -> str:
    said = ended.output + ended.log
    return next((meaning for sign, meaning in REFUSALS if sign in said), "")


def why_not(ended: Ended) -> str:
    """Why a run of ncu gave no counters."""
    if ended.why:
        return f"There are no counters: {ended.why}."
    if failed := failure(ended):
        return f"The kernel failed under ncu: {failed}"
    if meaning := _refusal(ended):
        return meaning
    if errors := ERROR.findall(ended.output) or ERROR.findall(ended.log):
        return f"ncu failed: {errors[0].strip()[:MOST_SAID]}"
    return f"ncu wrote no counters; it ended with status {ended.status}."


def failure(ended: Ended) -> str:
    """What the profiled process says went wrong; empty if it says nothing."""
    answer = answer_of(ended.output)
    return (answer.failed or "")[:MOST_SAID] if answer else ""

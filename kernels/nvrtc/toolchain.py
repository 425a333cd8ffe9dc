"""Where NVRTC and the headers of CUDA are on this host: wheels of CUDA 12 and 13, or a toolkit. Imports no CUDA."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

WHEELS_OF = {
    "cuda_fp16.h": ("nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime"),
    "mma.h": ("nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime"),
    "crt/mma.h": ("nvidia-cuda-nvcc-cu12", "nvidia-cuda-crt"),
    "nv/target": ("nvidia-cuda-cccl-cu12", "nvidia-cuda-cccl"),
}
"""Headers that must be found -> their wheels of CUDA 12 and 13."""
TOOLKITS = ("CUDA_HOME", "CUDA_PATH")
DEFAULT_TOOLKIT = "/usr/local/cuda"
PARTS_12 = ("cuda_runtime", "cuda_nvcc", "cuda_cccl")
"""Folders of the wheels of CUDA 12, each with its headers; those of CUDA 13 share one folder."""
CUDA_VERSION = re.compile(rb"#define\s+CUDA_VERSION\s+(\d+)")


def why_not() -> str:
    """Why CUDA C++ cannot be compiled on this host, with the command that mends it; empty if it can."""
    return _why_not(tuple(sys.path), tuple(os.environ.get(name, "") for name in TOOLKITS))


@lru_cache(maxsize=8)
def _why_not(path: tuple[str, ...], toolkits: tuple[str, ...]) -> str:
    """The answer for one search path: an agent asks every few seconds."""
    for package in ("cuda-core", "cuda-bindings"):
        if _version(package) is None:
            return f"package {package} is not installed on this device: pip install {_wanted(package)}"
    major = cuda_major()
    if library(major) is None:
        return (
            f"NVRTC of CUDA {major} is not installed on this device: pip install {_wheel('nvidia-cuda-nvrtc', major)}"
        )
    folders = include_folders(major)
    if missing := [name for name in WHEELS_OF if not _find(name, folders)]:
        wheels = dict.fromkeys(_pinned(WHEELS_OF[name][major >= 13], major) for name in missing)
        return (
            f"headers of CUDA {major} are missing on this device ({', '.join(missing)}): pip install {' '.join(wheels)}"
        )
    return ""


def _wheel(name: str, major: int) -> str:
    return name if major >= 13 else f"{name}-cu{major}"


def _pinned(wheel: str, major: int) -> str:
    """A wheel of the version that the headers of this host have, where wheels of that version exist."""
    version = _version(_wheel("nvidia-cuda-runtime", major))
    return f"'{wheel}=={'.'.join(version.split('.')[:2])}.*'" if version and "cccl" not in wheel else wheel


def _wanted(package: str) -> str:
    """What pip is told: bindings of the major version that the CUDA wheels of this host (torch's) have."""
    if package == "cuda-core":
        return "cuda-core"
    of_12 = _version("nvidia-cuda-runtime-cu12") is not None and _version("nvidia-cuda-runtime") is None
    return f"'cuda-bindings=={12 if of_12 else 13}.*'"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def cuda_major() -> int:
    """The major version of the installed cuda-bindings: the one of NVRTC that they load."""
    return int((_version("cuda-bindings") or "0").split(".")[0])


def library(major: int) -> Path | None:
    """NVRTC itself: of a wheel, which torch brings, or of a toolkit."""
    name = f"libnvrtc.so.{major}"
    return next((folder / name for folder in _library_folders(major) if (folder / name).exists()), None)


def _library_folders(major: int) -> Iterator[Path]:
    for root in _nvidia():
        yield from (root / f"cu{major}" / "lib", root / "cuda_nvrtc" / "lib")
    yield from (Path(one) for one in os.environ.get("LD_LIBRARY_PATH", "").split(":") if one)
    for root in _toolkits():
        yield from (root / "lib64", root / "targets/x86_64-linux/lib")


def include_folders(major: int) -> list[Path]:
    """Folders with the headers of this version of CUDA: first those that were installed with NVRTC."""
    found = [folder for root in _nvidia() for folder in (root / f"cu{major}", *(root / part for part in PARTS_12))]
    found += [folder for root in _toolkits() for folder in (root, root / "targets/x86_64-linux")]
    headers = [folder / "include" for folder in found if (folder / "include").is_dir()]
    own = library(major)
    together = own.parents[2] if own else None
    headers.sort(key=lambda folder: together not in folder.parents)
    headers = [folder for folder in headers if _is_of(folder, major)]
    return [one for folder in headers for one in (folder, folder / "cccl") if one.is_dir()]


def _is_of(folder: Path, major: int) -> bool:
    """Whether headers are not of another version of CUDA."""
    try:
        found = CUDA_VERSION.search((folder / "cuda.h").read_bytes())
    except OSError:
        return True
    return found is None or int(found[1]) // 1000 == major


def _nvidia() -> Iterator[Path]:
    """The folders `nvidia` of the search path: all CUDA wheels install there."""
    for entry in dict.fromkeys(sys.path):
        if (folder := Path(entry or ".") / "nvidia").is_dir():
            yield folder


def _toolkits() -> Iterator[Path]:
    for folder in (*(os.environ.get(name, "") for name in TOOLKITS), DEFAULT_TOOLKIT):
        if folder and Path(folder).is_dir():
            yield Path(folder)


def _find(header: str, folders: list[Path]) -> Path | None:
    return next((folder / header for folder in folders if (folder / header).is_file()), None)

"""What a kernel needs of a device and its host: a kind of device, a compute capability, packages."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from typing import Any


@dataclass(frozen=True)
class Needs:
    """Device requirements of a kernel."""

    device: str = "any"
    """"any" or "cuda"."""
    min_capability: float = 0.0
    """CUDA compute capability, such as 8.0 or 9.0."""
    packages: tuple[str, ...] = ()
    """Python packages that the agent needs."""
    architecture: float = 0.0
    """The only compute capability that it runs on, if later devices lack a feature that it uses (9.0: wgmma)."""
    triton: tuple[str, ...] = ()
    """Versions of Triton, such as (">=3.6", "<3.7"), for kernels in a Triton language that still changes."""

    def why_not_on(self, kind: str, capability: float | None) -> str:
        """Why a device lacks it; empty if it has all."""
        if self.device == "cuda" and kind != "cuda":
            return "needs a CUDA device"
        if self.min_capability and (capability or 0) < self.min_capability:
            return f"needs compute capability {self.min_capability:g}, this device has {capability or 0:g}"
        if self.architecture and capability != self.architecture:
            return f"needs compute capability {self.architecture:.1f} exactly, this device has {capability or 0:.1f}"
        for package in self.packages:
            if not _is_installed(package):
                name = package if package in WHEELS else package.partition(".")[0]
                wheel = WHEELS.get(name, name.replace("_", "-"))
                shown = wheel if "." in name else name
                return f"package {shown} is not installed on this device: pip install {wheel}"
        return self._why_not_with_triton(_version("triton")) if self.triton else ""

    def _why_not_with_triton(self, version: str | None) -> str:
        if version is None:
            return "package triton is not installed on this device: pip install triton"
        if not _within(version, self.triton):
            return f"needs Triton {' and '.join(self.triton)}, this host has {version}"
        return ""


FEWEST_IN_A_RANGE = 4


def as_text(allowed: Sequence[Any]) -> str:
    """The values that a size may take: "64, 128", or "1 to 16" for integers without a gap."""
    integers = len(allowed) >= FEWEST_IN_A_RANGE and all(type(one) is int for one in allowed)
    if integers and [*allowed] == [*range(allowed[0], allowed[-1] + 1)]:
        return f"{allowed[0]} to {allowed[-1]}"
    return ", ".join(map(str, allowed))


def cuda(
    min_capability: float = 0.0,
    packages: tuple[str, ...] = (),
    *,
    architecture: float = 0.0,
    triton: tuple[str, ...] = (),
) -> Needs:
    """Requires a CUDA device of at least, or of exactly, this compute capability."""
    return Needs("cuda", float(min_capability), tuple(packages), float(architecture), triton)


BOUND = re.compile(r"(>=|<)(\d+(?:\.\d+)*)")
"""A bound of a version."""


WHEELS = {
    "cuda": "cuda-core cuda-bindings",
    "cuda.core": "cuda-core",
    "cuda.tile": "cuda-tile",
    "cutlass": "nvidia-cutlass-dsl",
    "cv2": "opencv-python",
    "fla": "flash-linear-attention",
    "flash_attn": "flash-attn",
    "flash_attn.cute": "flash-attn-4",
    "flash_attn.flash_attn_interface": "flash-attn",
    "flashinfer": "flashinfer-python",
    "liger_kernel": "liger-kernel",
    "quack": "quack-kernels",
    "tilelang": "tilelang",
    "triton": "triton",
    "triton_kernels": "triton-kernels",
    "xformers": "xformers",
}
"""Package -> what pip calls it, of those that kernels import. A part of a package that several wheels share stands for the
wheel that has it. Other names are not guessed: anybody may have taken them."""


def how_to_install(module: str) -> str:
    """ "pip install nvidia-cutlass-dsl" for a module that an import did not find; empty if it is of no known package, or of one
    that is there."""
    parts = module.split(".")
    names = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    known = next((name for name in names if name in WHEELS), "")
    return f"pip install {WHEELS[known]}" if known and not _is_installed(known) else ""


def _is_installed(package: str) -> bool:
    """Whether a package, or a part of one ("flash_attn.cute"), is there. Nothing of it is imported."""
    first, *parts = package.split(".")
    try:
        spec = importlib.util.find_spec(first)
        for part in parts:
            spec = spec and PathFinder.find_spec(part, spec.submodule_search_locations or [])
    except (ImportError, ValueError):
        return False
    return spec is not None


def _version(package: str) -> str | None:
    """Of an installed package, without importing it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _within(version: str, bounds: tuple[str, ...]) -> bool:
    """Whether a version is within bounds such as ">=3.6". Ignores suffixes (rc1, +cu130)."""
    compare = {">=": operator.ge, "<": operator.lt}
    return all(compare[sign](_numbers(version), _numbers(bound)) for b in bounds for sign, bound in BOUND.findall(b))


def _numbers(version: str) -> list[int]:
    leading = re.match(r"\d+(?:\.\d+)*", version)
    return [int(number) for number in leading[0].split(".")] if leading else []

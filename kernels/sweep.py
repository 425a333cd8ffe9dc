"""Sizes that somebody names instead of a config's: `rows=1024,4096`, of which every combination is a workload."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kernels.config_files import ConfigError
from kernels.workload import Workload


def swept(sweeps: Sequence[str]) -> dict[str, list[Any]]:
    """["seq_len=512,1024"] -> {"seq_len": [512, 1024]}. Raises ConfigError."""
    found: dict[str, list[Any]] = {}
    for text in sweeps:
        name, _, values = text.partition("=")
        if not values:
            raise ConfigError(f"a sweep is SIZE=A,B, such as seq_len=512,1024, not '{text}'")
        found[name.strip()] = [
            int(v) if v.isdecimal() else {"true": True, "false": False}.get(v, v) for v in split(values)
        ]
    return found


def split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def with_sizes(config: str, workloads: Iterable[Workload], sweeps: Sequence[str]) -> dict[str, Any]:
    """{"workloads", "title"} of a config with these sizes in the place of its own; nothing without sizes. Raises ConfigError."""
    if not sweeps:
        return {}
    sizes = swept(sweeps)
    changed = [w.brief_sizes | {"operation": w.operation, "dtype": w.dtype} | sizes for w in workloads]
    return {"workloads": changed, "title": f"{config}, {', '.join(sweeps)}"[:200]}  # its own title names other sizes


def example(workload: Workload) -> str:
    """Sizes that somebody could name for its operation: "rows=128,256 cols=256 dtype=float32", the first one doubled."""
    (first, value), *others = workload.brief_sizes.items()
    words = [f"{first}={value},{2 * value}", *(f"{name}={str(size).lower()}" for name, size in others)]
    return " ".join([*words, f"dtype={workload.dtype}"])

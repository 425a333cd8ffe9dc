"""ncu's metrics: which figure each is, under all the names that its versions give it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kernels.contract.profile import Stall

PERCENT_OF = ".avg.pct_of_peak_sustained_"
SECTIONS = ("SpeedOfLight", "LaunchStats", "Occupancy", "WarpStateStats", "MemoryWorkloadAnalysis")
"""Every version of ncu knows these sections, and each holds the names that its device has."""


@dataclass(frozen=True)
class Metric:
    """A figure, and ncu's names of it: the first with a value counts."""

    figure: str
    kind: Literal["share", "sum", "integer"]
    names: tuple[str, ...]


METRICS = (
    Metric("duration_ns", "sum", ("gpu__time_duration.sum", "gpu__time_duration.avg", "gpu__time_active.sum")),
    Metric(
        "sm_busy",
        "share",
        (f"smsp__cycles_active{PERCENT_OF}elapsed", f"sm__cycles_active{PERCENT_OF}elapsed"),
    ),
    Metric("compute", "share", (f"sm__throughput{PERCENT_OF}elapsed",)),
    Metric(
        "tensor",
        "share",
        (
            f"sm__pipe_tensor_cycles_active{PERCENT_OF}active",
            f"sm__inst_executed_pipe_tensor{PERCENT_OF}active",
            f"sm__pipe_tensor_op_hmma_cycles_active{PERCENT_OF}active",
        ),
    ),
    Metric("issue", "share", (f"smsp__issue_active{PERCENT_OF}active", f"sm__inst_issued{PERCENT_OF}active")),
    Metric("dram", "share", (f"dram__throughput{PERCENT_OF}elapsed", f"gpu__dram_throughput{PERCENT_OF}elapsed")),
    Metric("l2", "share", (f"lts__throughput{PERCENT_OF}elapsed", f"lts__t_sectors{PERCENT_OF}elapsed")),
    Metric("l1", "share", (f"l1tex__throughput{PERCENT_OF}active", f"l1tex__throughput{PERCENT_OF}elapsed")),
    Metric("l1_hits", "share", ("l1tex__t_sector_hit_rate.pct",)),
    Metric("l2_hits", "share", ("lts__t_sector_hit_rate.pct", "lts__average_t_sector_hit_rate.pct")),
    Metric("occupancy", "share", (f"sm__warps_active{PERCENT_OF}active",)),
    Metric("occupancy_limit", "share", ("sm__maximum_warps_per_active_cycle_pct",)),
    Metric("registers", "integer", ("launch__registers_per_thread",)),
    Metric("static_shared_bytes", "integer", ("launch__shared_mem_per_block_static",)),
    Metric("dynamic_shared_bytes", "integer", ("launch__shared_mem_per_block_dynamic",)),
    Metric("waves", "sum", ("launch__waves_per_multiprocessor",)),
    Metric("active_threads", "sum", ("smsp__thread_inst_executed_per_inst_executed.ratio",)),
    Metric("uniform_branches", "share", ("smsp__sass_average_branch_targets_threads_uniform.pct",)),
    Metric("load_sectors", "sum", ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",)),
    Metric("load_requests", "sum", ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",)),
    Metric("store_sectors", "sum", ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",)),
    Metric("store_requests", "sum", ("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",)),
    Metric(
        "shared_wavefronts",
        "sum",
        ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "smsp__l1tex_data_pipe_lsu_wavefronts_mem_shared.sum"),
    ),
    Metric("bank_conflicts", "sum", ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",)),
)
L1_LOCAL = "l1tex__t_sectors_pipe_lsu_mem_local_op_"
SUMS = {
    "local_sectors": (f"{L1_LOCAL}ld.sum", f"{L1_LOCAL}st.sum"),
    "dram_bytes": ("dram__bytes_read.sum", "dram__bytes_write.sum"),
}
"""Figures that are sums of metrics."""
SECTOR_USE = "smsp__sass_average_data_bytes_per_sector_mem_global_op_"
QUOTIENTS = {
    "sm_busy": (
        ("smsp__cycles_active.avg", "smsp__cycles_elapsed.avg"),
        ("sm__cycles_active.avg", "sm__cycles_elapsed.avg"),
    ),
    "used_of_loads": ((f"{SECTOR_USE}ld.ratio", f"{SECTOR_USE}ld.max_rate"),),
    "used_of_stores": ((f"{SECTOR_USE}st.ratio", f"{SECTOR_USE}st.max_rate"),),
}
"""Figures that are a metric over another; the first pair that both have values counts."""
OF_NOTHING = {"used_of_loads": "load_requests", "used_of_stores": "store_requests"}
"""Figures that mean nothing where the other one is 0."""
STALL = re.compile(
    r"smsp__average_warps?_(?:latency_)?issue_stalled_([a-z_]+?)(_not_issued)?(?:_per_warp_active|_per_issue_active)?"
    r"\.(?:ratio|pct)"
)
NOT_WAITING = ("selected", "not_selected")
"""A warp that issues, or could: it waits for nothing."""
LIMITS = {
    "launch__occupancy_limit_registers": "registers",
    "launch__occupancy_limit_shared_mem": "shared memory",
    "launch__occupancy_limit_warps": "warps",
    "launch__occupancy_limit_blocks": "blocks",
    "launch__occupancy_limit_barriers": "barriers",
}
"""Blocks that each allows on an SM."""


def asked() -> list[str]:
    """The metrics that ncu is asked for beside its sections."""
    first = [name for metric in METRICS for name in metric.names[:1] if "." in name]
    parts = [name for names in SUMS.values() for name in names]
    return [
        *first,
        *parts,
        *(name for pairs in QUOTIENTS.values() for name in pairs[0] if not name.endswith("max_rate")),
    ]


def figures(values: Mapping[str, float]) -> dict[str, Any]:
    """The fields of Figures that these metrics give. values: in base units, percentages as they are."""
    found: dict[str, Any] = {}
    for metric in METRICS:
        value = next((values[name] for name in metric.names if name in values), None)
        if value is not None and value >= 0:
            found[metric.figure] = _as(metric.kind, value)
    for figure, names in SUMS.items():
        if known := [values[name] for name in names if values.get(name, -1) >= 0]:
            found[figure] = sum(known)
    for figure, pairs in QUOTIENTS.items():
        if figure not in found and (quotient := _quotient(values, pairs)) is not None:
            found[figure] = quotient
    for figure, other in OF_NOTHING.items():
        if not found.get(other):
            found.pop(figure, None)
    if limits := {what: values[name] for name, what in LIMITS.items() if name in values}:
        found["limited_by"] = min(limits, key=lambda what: limits[what])
    return found | {"stalls": stalls(values)}


def _quotient(values: Mapping[str, float], pairs: tuple[tuple[str, str], ...]) -> float | None:
    for over, under in pairs:
        if values.get(over, -1) >= 0 and values.get(under, 0) > 0:
            return values[over] / values[under]
    return None


def _as(kind: str, value: float) -> float | int:
    return value / 100 if kind == "share" else int(value) if kind == "integer" else value


def stalls(values: Mapping[str, float]) -> list[Stall]:
    """Why warps waited, the largest share first. Shares are of all that a warp does between two instructions."""
    found: dict[str, float] = {}
    for name, value in values.items():
        match = STALL.fullmatch(name)
        if match and not match[2] and value > 0:
            found.setdefault(match[1], value)
    whole = sum(found.values())
    waits = [Stall(reason, value / whole) for reason, value in found.items() if reason not in NOT_WAITING]
    return sorted(waits, key=lambda stall: -stall.share)

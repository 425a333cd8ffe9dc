"""Why a kernel is slow: what profilers saw of one call of it. None and 0 differ: None was not read.

Its times are no result: a profiler launches each GPU kernel many times, with empty caches.
"""

from __future__ import annotations

from typing import NamedTuple

from pydantic import Field

from kernels.contract.arm_result import Model, Text

MOST_LAUNCHES = 64
"""GPU kernels of one call whose counters are read."""
MOST_TRACE_BYTES = 8 * 2**20
"""Of a compressed trace. An event holds it, written as text (kernels/contract/fitting.py)."""
MOST_TABLE = 100_000
"""Characters of a profiler's table."""
SECTOR_BYTES = 32


class Stall(NamedTuple):
    """Why warps waited."""

    reason: str
    """As ncu names it: long_scoreboard, barrier, ..."""
    share: float
    """Of the time of a warp between two of its instructions, 0 to 1."""


class Figures(Model):
    """Hardware counters of one GPU kernel, or of one call. Shares are of a peak, 0 to 1, unless said otherwise."""

    duration_ns: float | None = None
    sm_busy: float | None = None
    """Share of the time in which an SM has a warp."""
    compute: float | None = None
    """Of the busiest pipe of an SM."""
    tensor: float | None = None
    """Share of the cycles in which the tensor pipe works."""
    issue: float | None = None
    """Share of the cycles in which a scheduler issues an instruction."""
    dram: float | None = None
    dram_bytes: float | None = None
    l2: float | None = None
    l1: float | None = None
    l1_hits: float | None = None
    """Share of the sectors that L1 has."""
    l2_hits: float | None = None
    occupancy: float | None = None
    """Achieved: active warps over those that an SM can hold."""
    occupancy_limit: float | None = None
    """Theoretical: what registers, shared memory and block size allow."""
    limited_by: str = ""
    """What allows the fewest blocks of an SM: registers, shared memory, warps or blocks."""
    registers: int | None = None
    static_shared_bytes: int | None = None
    dynamic_shared_bytes: int | None = None
    waves: float | None = None
    """Blocks over those that the device holds at once."""
    active_threads: float | None = None
    """Threads of a warp that execute an instruction, on average: at most 32."""
    uniform_branches: float | None = None
    """Share of the branches at which all threads of a warp go the same way."""
    load_sectors: float | None = None
    """Sectors (32 bytes) that loads from global memory ask of L1."""
    load_requests: float | None = None
    store_sectors: float | None = None
    store_requests: float | None = None
    used_of_loads: float | None = None
    """Share of the bytes of those sectors that loads use."""
    used_of_stores: float | None = None
    local_sectors: float | None = None
    """The same of local memory: spilled registers, and arrays that do not fit into registers."""
    shared_wavefronts: float | None = None
    """Passes of shared memory."""
    bank_conflicts: float | None = None
    """Those of them that a bank conflict adds."""
    stalls: list[Stall] = []
    """The largest first."""

    @property
    def sectors_per_load(self) -> float | None:
        return ratio(self.load_sectors, self.load_requests)

    @property
    def sectors_per_store(self) -> float | None:
        return ratio(self.store_sectors, self.store_requests)

    @property
    def conflict_share(self) -> float | None:
        """Share of the passes of shared memory that bank conflicts add."""
        return ratio(self.bank_conflicts, self.shared_wavefronts)

    @property
    def local_share(self) -> float | None:
        """Share of local memory in the sectors that L1 serves."""
        known = [one for one in (self.load_sectors, self.store_sectors, self.local_sectors) if one is not None]
        return ratio(self.local_sectors, sum(known)) if known else None


def ratio(part: float | None, whole: float | None) -> float | None:
    """None if one is not known, or nothing was counted."""
    return part / whole if part is not None and whole else None


class Launch(Figures):
    """One GPU kernel that a call launches."""

    name: Text
    grid: Text = ""
    block: Text = ""


class Counters(Model):
    """Hardware counters of one call, by ncu."""

    tool: Text = ""
    """ncu's version."""
    launches: list[Launch] = Field(max_length=MOST_LAUNCHES)


class Timeline(Model):
    """What PyTorch's profiler saw of one call, and its time on the host's clock with the inputs in the cache."""

    call_ns: float
    """Back to back, until the device has finished; without the profiler."""
    enqueue_ns: float
    """The host's part of it."""
    busy_ns: float | None = None
    """The device's part: its kernels and copies. None on a CPU."""
    kernels: int | None = None
    """GPU kernels that a call launches. None on a CPU."""
    table: Text = Field("", max_length=MOST_TABLE)
    """The profiler's table: operators and kernels, with their times."""
    trace: str = Field("", max_length=MOST_TRACE_BYTES * 4 // 3 + 4)
    """A Chrome trace: gzip, in base64."""
    trace_missing: Text = ""
    """Why there is no trace."""


class Profile(Model):
    """One kernel on one workload."""

    key: str
    """Of the workload."""
    kernel: str
    sha256: str = ""
    """Of the kernel's file as it was profiled."""
    unsupported: bool = False
    """The kernel does not support this workload on this device. Not a failure."""
    counters: Counters | None = None
    counters_missing: Text = ""
    """Why there are no counters, and who could change that: a sentence."""
    timeline: Timeline | None = None
    timeline_missing: Text = ""

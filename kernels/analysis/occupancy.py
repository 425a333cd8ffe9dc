"""Theoretical occupancy: the share of a multiprocessor's warps that blocks of a kernel can fill at the same time.

Limits and allocation units by compute capability: CUDA C++ Programming Guide, "Technical Specifications per Compute
Capability", and cuda_occupancy.h of the CUDA toolkit.
"""

from __future__ import annotations

from typing import NamedTuple

WARP = 32
REGISTERS = 65_536
"""Registers of a multiprocessor, and the most that a block may have."""
REGISTERS_UNIT = 256
"""Registers are allocated to a warp in this unit."""
PARTITIONS = 4
"""Parts of a multiprocessor. Each has a quarter of the registers, and whole warps."""
SHARED_UNIT = 128
"""Bytes. Shared memory is allocated to a block in this unit."""
RESERVED = 1024
"""Bytes of shared memory that the driver takes for each block."""
KIB = 1024


class Multiprocessor(NamedTuple):
    """What one multiprocessor holds at most."""

    threads: int
    blocks: int
    shared_bytes: int


LIMITS = {
    "8.0": Multiprocessor(2048, 32, 164 * KIB),
    "8.6": Multiprocessor(1536, 16, 100 * KIB),
    "8.7": Multiprocessor(1536, 16, 164 * KIB),
    "8.9": Multiprocessor(1536, 24, 100 * KIB),
    "9.0": Multiprocessor(2048, 32, 228 * KIB),
    "10.0": Multiprocessor(2048, 32, 228 * KIB),
    "10.3": Multiprocessor(2048, 32, 228 * KIB),
    "12.0": Multiprocessor(1536, 24, 100 * KIB),
}
"""Compute capability -> its multiprocessor."""


def occupancy(capability: str, threads: int, registers: int, shared_bytes: int) -> float | None:
    """Resident warps over the most that fit, 0 to 1. 0: a block does not fit. None: this capability is not known here.

    capability: "9.0". threads: of a block. registers: of a thread. shared_bytes: of a block, static and dynamic.
    """
    if (limits := LIMITS.get(capability)) is None or threads < 1:
        return None
    warps = -(-threads // WARP)
    blocks = min(
        limits.blocks,
        limits.threads // (warps * WARP),
        _by_registers(warps, registers),
        limits.shared_bytes // _rounded(shared_bytes + RESERVED, SHARED_UNIT),
    )
    return blocks * warps / (limits.threads // WARP)


def _by_registers(warps: int, registers: int) -> int:
    """Blocks that the registers allow."""
    of_warp = _rounded(max(1, registers) * WARP, REGISTERS_UNIT)
    if of_warp * _rounded(warps, PARTITIONS) > REGISTERS:
        return 0
    return REGISTERS // PARTITIONS // of_warp * PARTITIONS // warps


def _rounded(value: int, unit: int) -> int:
    return -(-value // unit) * unit

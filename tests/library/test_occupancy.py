"""Theoretical occupancy, against cases counted by hand from the limits of each compute capability."""

import pytest

from kernels.analysis.occupancy import occupancy

# 64 warps of a multiprocessor on 8.0 and 9.0, 48 on 8.9. Registers of a warp: 128 x 32 = 4,096, so 4 warps in a quarter.
CASES = {
    "registers: 16 warps, two blocks of 8": ("8.0", 256, 128, 0, 16 / 64),
    "registers of a warp in units of 256: 33 x 32 = 1,056 takes 1,280, so 12 warps in a quarter": (
        "8.0",
        128,
        33,
        0,
        48 / 64,
    ),
    "the most blocks, 32 of one warp": ("8.0", 32, 16, 0, 32 / 64),
    "the most threads, two blocks of 1,024": ("8.0", 1024, 32, 0, 1.0),
    "shared memory: 164 KiB hold two of 75,776 and 1,024 bytes": ("8.0", 256, 32, 75_776, 16 / 64),
    "8.9 has 48 warps": ("8.9", 256, 128, 0, 16 / 48),
    "8.9, the most blocks, 24": ("8.9", 32, 16, 0, 24 / 48),
    "8.9, one block of 1,024 threads in 1,536": ("8.9", 1024, 32, 0, 32 / 48),
    "8.9, 100 KiB hold one of 56,832 and 1,024 bytes": ("8.9", 256, 64, 56_832, 8 / 48),
    "9.0, 228 KiB hold four of 56,832 and 1,024 bytes, the registers two": ("9.0", 256, 128, 56_832, 16 / 64),
    "9.0, 228 KiB hold four": ("9.0", 256, 32, 56_832, 32 / 64),
    "9.0, the most shared memory of a block": ("9.0", 128, 32, 232_448, 4 / 64),
    "9.0, 40 registers: 12 warps in a quarter, 48 together, one block of 32": ("9.0", 1024, 40, 0, 32 / 64),
    "a part of a warp counts whole: 33 threads are two": ("9.0", 33, 32, 0, 64 / 64),
    "too many registers for one block": ("9.0", 1024, 65, 0, 0.0),
    "too much shared memory for one block": ("9.0", 128, 32, 232_449, 0.0),
}


@pytest.mark.parametrize("capability, threads, registers, shared, wanted", CASES.values(), ids=CASES)
def test_the_share_of_warps_that_fit(capability, threads, registers, shared, wanted):
    assert occupancy(capability, threads, registers, shared) == pytest.approx(wanted)


def test_a_capability_without_known_limits_has_no_occupancy():
    assert occupancy("7.0", 256, 32, 0) is None

"""The last-level cache of the processor, as far as this machine has it."""

from __future__ import annotations

import os

CPU_CACHE_VARIABLE = "BENCHSITE_CPU_CACHE_MIB"
"""Its size, in MiB, where the system says another: a virtual machine may be told the cache of its whole host."""
UNKNOWN_BYTES = 32 * 2**20


def told_mib() -> str:
    """What CPU_CACHE_VARIABLE says; empty if it is not set. Raises ValueError if it is not a number of MiB, at least 1."""
    told = os.environ.get(CPU_CACHE_VARIABLE, "")
    if told and not (told.isascii() and told.isdigit() and int(told)):
        raise ValueError(f"{CPU_CACHE_VARIABLE} is “{told}”; it must be a number of MiB, at least 1")
    return told


def cpu_cache_bytes() -> int:
    """What CPU_CACHE_VARIABLE says; else what the system says; else 32 MiB."""
    if told := told_mib():
        return int(told) * 2**20
    sizes = [0]
    for index in range(5):
        try:
            with open(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size") as file:
                sizes.append(int(file.read().strip().rstrip("K")) * 1024)
        except (OSError, ValueError):
            continue
    return max(sizes) or UNKNOWN_BYTES

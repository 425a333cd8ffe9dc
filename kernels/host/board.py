"""What NVML knows of a board and its host that does not change while it runs: candidates for why two devices of one
model differ. Stored with every run; not part of the fingerprint."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def board_facts(lib: Any, uuid: str) -> dict[str, Any]:
    """Facts by name; what this driver does not tell is left out. lib: NVML. Clocks in MHz, power in W."""
    handle = lib.nvmlDeviceGetHandleByUUID(uuid)
    readers: dict[str, Callable[[], Any]] = {
        "gpus_of_host": lib.nvmlDeviceGetCount,
        "part_number": lambda: lib.nvmlDeviceGetBoardPartNumber(handle),
        "vbios": lambda: lib.nvmlDeviceGetVbiosVersion(handle),
        "gsp_firmware": lambda: lib.nvmlDeviceGetGspFirmwareVersion(handle),
        "ecc": lambda: bool(lib.nvmlDeviceGetEccMode(handle)[0]),
        "mig": lambda: bool(lib.nvmlDeviceGetMigMode(handle)[0]),
        "persistence": lambda: bool(lib.nvmlDeviceGetPersistenceMode(handle)),
        "compute_mode": lambda: int(lib.nvmlDeviceGetComputeMode(handle)),
        "virtualization": lambda: int(lib.nvmlDeviceGetVirtualizationMode(handle)),
        "confidential": lambda: bool(lib.nvmlSystemGetConfComputeState().ccFeature),
        "max_memory_mhz": lambda: lib.nvmlDeviceGetMaxClockInfo(handle, lib.NVML_CLOCK_MEM),
        "power_limit_w": lambda: lib.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
        "default_power_limit_w": lambda: lib.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1000,
        "pcie_generation": lambda: lib.nvmlDeviceGetMaxPcieLinkGeneration(handle),
        "pcie_lanes": lambda: lib.nvmlDeviceGetMaxPcieLinkWidth(handle),
        "nvlinks": lambda: _active_links(lib, handle),
        "retired_rows": lambda: sum(lib.nvmlDeviceGetRemappedRows(handle)[:2]),
        "cpu_governor": lambda: GOVERNOR.read_text().strip(),
    }
    facts = {}
    for name, read in readers.items():
        with contextlib.suppress(Exception):
            facts[name] = read()
    return facts


def _active_links(lib: Any, handle: Any) -> int:
    count = 0
    for link in range(lib.NVML_NVLINK_MAX_LINKS):
        with contextlib.suppress(lib.NVMLError):
            count += bool(lib.nvmlDeviceGetNvLinkState(handle, link))
    return count

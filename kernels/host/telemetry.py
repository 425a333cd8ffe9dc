"""NVML telemetry: clock, power, temperature, throttling, other processes. Read-only. Empty without NVML."""

from __future__ import annotations

import contextlib
import os
import statistics
import threading
from collections.abc import Iterator
from typing import Any

from kernels.host.board import board_facts
from kernels.host.cpu_load import CpuLoad
from kernels.host.device import Device, nvml

EVERY_S = 0.02
KEEP = 10_000
HARMFUL = ("SwThermalSlowdown", "HwThermalSlowdown", "HwSlowdown", "HwPowerBrakeSlowdown", "SwPowerCap")
THERMAL = ("SwThermalSlowdown", "HwThermalSlowdown")


class Telemetry:
    """Samples every 20 ms while a run lasts."""

    def __init__(self, lib: Any, device: Device) -> None:
        self.lib, self.device = lib, device
        self.handle = lib.nvmlDeviceGetHandleByUUID(device.uuid) if lib and device.kind == "cuda" else None
        self.samples: list[dict[str, Any]] = []
        self.hot = False
        self.load = CpuLoad()
        self._stop = threading.Event()

    def _sample(self) -> dict[str, Any]:
        lib, handle = self.lib, self.handle
        readers = {
            "sm_mhz": lambda: lib.nvmlDeviceGetClockInfo(handle, lib.NVML_CLOCK_SM),
            "power_w": lambda: lib.nvmlDeviceGetPowerUsage(handle) / 1000,
            "temperature_c": lambda: lib.nvmlDeviceGetTemperature(handle, lib.NVML_TEMPERATURE_GPU),
            "throttle": lambda: lib.nvmlDeviceGetCurrentClocksEventReasons(handle),
        }
        sample = {}
        for name, read in readers.items():
            with contextlib.suppress(Exception):
                sample[name] = read()
        return sample

    def loop(self) -> None:
        while not self._stop.wait(EVERY_S):
            sample = self._sample()
            self.samples.append(sample)
            self.hot = self.hot or self._is_hot(sample)
            del self.samples[:-KEEP]

    def stop(self) -> None:
        self._stop.set()

    def now(self) -> dict[str, Any]:
        """Current sm_mhz, power_w, temperature_c, throttle; empty without NVML."""
        return self._sample() if self.handle else {}

    def sm_mhz(self) -> float | None:
        return self.now().get("sm_mhz")

    def slowed(self) -> bool:
        """Whether heat slowed the device down since the last call."""
        hot, self.hot = self.hot, False
        return hot

    def _is_hot(self, sample: dict[str, Any]) -> bool:
        return bool(set(self._reasons(sample.get("throttle", 0))) & set(THERMAL))

    def energy_j(self) -> float | None:
        """Energy of the whole board in joules since its driver was loaded; None if NVML does not count it."""
        if not self.handle:
            return None
        with contextlib.suppress(Exception):
            return self.lib.nvmlDeviceGetTotalEnergyConsumption(self.handle) / 1e3
        return None

    def others(self) -> list[int]:
        """Ids of foreign processes on this GPU: not this one, nor its descendants."""
        if not self.handle:
            return []
        with contextlib.suppress(Exception):
            running = self.lib.nvmlDeviceGetComputeRunningProcesses(self.handle)
            return [p.pid for p in running if not _descends_from_us(p.pid)]
        return []

    def board(self) -> dict[str, Any]:
        """Facts about the board that do not change: kernels/host/board.py. Empty without NVML."""
        return board_facts(self.lib, self.device.uuid) if self.handle else {}

    def summary(self) -> dict[str, Any]:
        """Medians and extremes since the last summary."""
        samples, self.samples = self.samples, []
        summary: dict[str, Any] = {"samples": len(samples)}
        for name in ("sm_mhz", "power_w", "temperature_c"):
            values = [s[name] for s in samples if name in s]
            if values:
                summary[name] = {"median": statistics.median(values), "min": min(values), "max": max(values)}
        reasons = {name for s in samples for name in self._reasons(s.get("throttle", 0))}
        return summary | ({"throttled": sorted(reasons)} if reasons else {})

    def _reasons(self, bits: int) -> list[str]:
        if not bits:
            return []
        named = ((name, getattr(self.lib, f"nvmlClocksEventReason{name}", None)) for name in HARMFUL)
        named2 = ((n, b or getattr(self.lib, f"nvmlClocksThrottleReason{n}", 0)) for n, b in named)
        return [name for name, bit in named2 if bit and bits & bit]


def foreign_processes(device: Device) -> int | None:
    """How many foreign processes are on a GPU now; None for a CPU, and without NVML. Ask while nothing is measured: in a
    container NVML may not know that a process is ours."""
    with nvml() as lib:
        telemetry = Telemetry(lib, device)
        return len(telemetry.others()) if telemetry.handle else None


def _descends_from_us(pid: int) -> bool:
    """Whether a process is this one or a descendant; processes of other containers count as foreign."""
    for _ in range(32):
        if pid == os.getpid():
            return True
        try:
            with open(f"/proc/{pid}/stat") as file:
                pid = int(file.read().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return False


@contextlib.contextmanager
def watching(device: Device) -> Iterator[Telemetry]:
    with nvml() as lib:
        telemetry = Telemetry(lib, device)
        thread = threading.Thread(target=telemetry.loop, daemon=True)
        if telemetry.handle:
            thread.start()
        try:
            yield telemetry
        finally:
            telemetry.stop()
            if telemetry.handle:
                thread.join(1)

"""Estimated time of a run: from similar measurements on the same device, else from its work."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from kernels.parent.duration import OFF_BY, START_S, guess, processes_of, span
from kernels.protocol import Protocol
from kernels.workload import Config as ConfigSpec
from runs.models import Gpu
from runs.queries.measurements import seconds_per_result


@dataclass
class Estimate:
    results: int
    """Expected results: workloads times kernels that can run here."""
    unsupported: int
    """Number of kernels that this device cannot run."""
    seconds: float
    known: int
    """Number of workloads with a time from earlier measurements here."""
    workloads: int
    guessed_s: float = 0.0
    """Estimated part of the seconds."""
    stopped: int = 0
    """Workloads on which a first call or a check seems to need longer than its limit: nothing is timed there."""

    @property
    def is_guess(self) -> bool:
        return self.known < self.workloads

    @property
    def span(self) -> str:
        """(low, high) time of an estimate, without seconds."""
        rest = self.seconds - self.guessed_s
        return span(rest + self.guessed_s / OFF_BY, rest + self.guessed_s * OFF_BY)

    @property
    def source(self) -> str:
        if not self.known:
            return "an estimate: no similar measurement on this device yet"
        if self.known == self.workloads:
            return "from earlier measurements on this device"
        return f"{self.known} of {self.workloads} workloads were measured here before"


def able_on(gpu: Gpu | None, config: ConfigSpec, operation: str) -> list[str]:
    """The kernels of an operation that a device can run."""
    why_not = {k["name"]: k["why_not"] for k in gpu.kernels(operation)} if gpu else {}
    return [name for name in config.kernels_of(operation) if not why_not.get(name)]


def estimate(config: ConfigSpec, gpu: Gpu | None) -> Estimate:
    able = {name: able_on(gpu, config, name) for name in config.operations}
    kind = gpu.kind if gpu else "cpu"
    sustained = config.protocol.mode == "sustained" and kind == "cuda"
    pace = {} if sustained else _pace(gpu, [w.key for w in config.workloads], config.protocol)
    calibration = gpu.calibration if gpu and len(pace) < len(config.workloads) else None
    ceilings = calibration.ceilings if calibration else {}
    known_s, guessed_s, stopped, processes = 0.0, 0.0, 0, processes_of(config.protocol)
    for workload in config.workloads:
        if workload.key in pace:
            known_s += pace[workload.key] * len(able[workload.operation]) * processes
        else:
            timed, seconds = guess(workload, able[workload.operation], config.protocol, kind, ceilings)
            guessed_s += seconds * processes
            stopped += not timed
    count = len(config.workloads)
    seconds = START_S[kind] * (1 + count * (processes - 1)) + known_s + guessed_s
    results = sum(len(able[workload.operation]) for workload in config.workloads)
    unable = len(config.kernels) - sum(map(len, able.values()))
    return Estimate(results, unable, seconds, len(pace), count, guessed_s, stopped)


def _pace(gpu: Gpu | None, keys: list[str], plan: Protocol) -> dict[str, float]:
    """Seconds per timed result on this device, by workload."""
    paces = seconds_per_result(gpu, keys, plan) if gpu else {}
    return {key: median(values) for key, values in paces.items()}

"""How long a run will take, about: from what similar measurements took on the same device."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from django.db.models import Count, Q

from kernels.workload import Config as ConfigSpec
from runs.models import Gpu, Measurement

START_S = 3.0
GUESS_S_PER_RESULT = {"cuda": 1.5, "cpu": 3.0}
SUSTAINED_S_PER_RESULT = 15.0
"""Six to twelve rounds of a second and a quarter, and the baseline twice."""


@dataclass
class Estimate:
    measurements: int
    """Results that the run will have: kernels that can run here times workloads."""
    unsupported: int
    """Kernels that this device cannot run."""
    seconds: float
    known: int
    """Workloads whose time comes from earlier measurements here."""
    workloads: int

    @property
    def source(self) -> str:
        if not self.known:
            return "a guess: nothing like it was measured on this device yet"
        if self.known == self.workloads:
            return "from earlier measurements on this device"
        return f"{self.known} of {self.workloads} workloads were measured here before"


def estimate(config: ConfigSpec, gpu: Gpu | None) -> Estimate:
    why_not = {k["name"]: k["why_not"] for k in gpu.kernels(config.operation)} if gpu else {}
    able = [name for name in config.kernels if not why_not.get(name)]
    seconds, known = START_S, 0
    kind = gpu.kind if gpu else "cpu"
    sustained = config.protocol.mode == "sustained" and kind == "cuda"
    pace = {} if sustained else _pace(gpu, [w.key for w in config.workloads])
    guess = SUSTAINED_S_PER_RESULT if sustained else GUESS_S_PER_RESULT[kind]
    for workload in config.workloads:
        known += workload.key in pace
        seconds += pace.get(workload.key, guess) * len(able)
    count = len(config.workloads)
    return Estimate(len(able) * count, len(config.kernels) - len(able), seconds, known, count)


def _pace(gpu: Gpu | None, keys: list[str]) -> dict[str, float]:
    """Seconds per result that was timed, by workload, on this device."""
    if gpu is None:
        return {}
    timed = Count("results", filter=Q(results__status="ok"))
    mine = Measurement.objects.filter(run__gpu=gpu, workload__key__in=keys, took_s__isnull=False)
    mine = mine.exclude(mode="sustained")
    paces: dict[str, list[float]] = {}
    for key, took_s, count in mine.annotate(timed=timed).values_list("workload__key", "took_s", "timed"):
        if count and took_s:
            paces.setdefault(key, []).append(took_s / count)
    return {key: median(values) for key, values in paces.items()}

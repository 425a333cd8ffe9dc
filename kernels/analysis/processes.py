"""The process as a part of the interval: a ratio differs between processes by more than its rounds show.

Memory placement, code placement and the state of the driver stay the same within a process. The rounds of one process
cannot show what they do. So the spread between processes is measured once for each device and mode
(scripts/evidence.py), and every interval includes it. A run of several processes also measures it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, variance

from kernels.analysis.statistics import CONFIDENCE, t_quantile
from kernels.contract.arm_result import ArmResult, Ratio
from kernels.contract.events import Measured
from kernels.contract.export import Export

Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
"""Half-width of a normal interval in standard deviations: 2.58."""


@dataclass(frozen=True)
class ProcessSpread:
    """How much a ratio differs between processes, beyond what its rounds explain."""

    sd: float
    """Standard deviation of log-ratios: the largest of the workloads that were measured."""
    freedom: int
    """Degrees of freedom of that figure: processes - 1."""
    source: str
    """What it was measured on, as a phrase."""


def spread_between(ratios: Sequence[Ratio]) -> float:
    """SD of the log-ratios of one workload between processes, without the part that their rounds explain; at least 0.
    Method of moments. ratios: one per process, with its interval from rounds."""
    return math.sqrt(max(0.0, variance(math.log(r.ratio) for r in ratios) - _variance_of_rounds(ratios)))


def _variance_of_rounds(ratios: Sequence[Ratio]) -> float:
    """Mean variance of the log-ratios, from their intervals."""
    return fmean((math.log(r.high / r.low) / 2 / Z) ** 2 for r in ratios)


MEASURED = {
    ("NVIDIA H200", "graph"): ProcessSpread(0.0015, 9, "an NVIDIA H200, mode graph: 5 workloads in 10 processes"),
    ("NVIDIA H200", "cold"): ProcessSpread(0.0007, 9, "an NVIDIA H200, mode cold: 7 workloads in 5 to 10 processes"),
    ("NVIDIA H100 80GB HBM3", "graph"): ProcessSpread(
        0.0019, 6, "an NVIDIA H100, mode graph: 5 workloads in 7 processes"
    ),
    ("NVIDIA H100 80GB HBM3", "cold"): ProcessSpread(
        0.0027, 6, "an NVIDIA H100, mode cold: 5 workloads in 7 processes"
    ),
    ("Intel(R) Xeon(R) Processor", "cpu"): ProcessSpread(
        0.0248, 10, "an Intel Xeon with two cores: 2 workloads in 11 processes"
    ),
}
"""By device and mode, rounded up to 0.01%: docs/measurements/evidence-h200-2026-11-21.json, harness 5,
evidence-h100-of-two-2026-11-25-third.json and evidence-cpu-xeon-2026-11-25.json, harness 6."""
GPUS = ("NVIDIA", "Tesla", "Quadro", "GeForce")
"""How names of CUDA devices begin."""


LEAST_FREEDOM = min(spread.freedom for spread in MEASURED.values())


def rounds_for_many(rounds: float, processes: int) -> float:
    """What stands for the rounds where an interval is made wider for many comparisons (statistics.for_many): the degrees of
    freedom plus 1. Of several processes these are the processes', however many rounds each has: see `pooled`."""
    return min(rounds, LEAST_FREEDOM + processes) if processes > 1 else rounds


def spread_of(device: str, mode: str) -> ProcessSpread:
    """The spread on a device. If it was not measured there: that of the mode, else the largest of its kind, on another device."""
    if known := MEASURED.get((device, mode)):
        return known
    is_cpu = mode == "batch" and not device.startswith(GPUS)
    alike = [spread for (_, its_mode), spread in MEASURED.items() if its_mode == mode]
    its_kind = [spread for (_, its_mode), spread in MEASURED.items() if (its_mode == "cpu") == is_cpu]
    other = max(alike or its_kind, key=lambda spread: spread.sd)
    return ProcessSpread(other.sd, other.freedom, f"not measured on this device and mode, so that of {other.source}")


@dataclass(frozen=True)
class Pooled:
    """A ratio whose interval includes the process."""

    ratio: Ratio
    rounds_half_width: float
    """Half-width of the interval from rounds alone, on the log scale."""
    process_half_width: float
    """The same from processes alone. Both in quadrature give the interval."""


def pooled(ratios: Sequence[Ratio], spread: ProcessSpread) -> Pooled:
    """One ratio from one per process.

    One process: the spread is added to both distances in quadrature. Several: the mean of the log-ratios with a moderated
    t interval (Smyth, Stat. Appl. Genet. Mol. Biol. 3, 2004): the variance that was seen between processes is shrunk
    toward the one expected, in proportion to the degrees of freedom of both.
    """
    if len(ratios) == 1:
        return _of_one(ratios[0], spread)
    logs, count = [math.log(r.ratio) for r in ratios], len(ratios)
    of_rounds = _variance_of_rounds(ratios)
    freedom = spread.freedom + count - 1
    shrunk = (spread.freedom * (spread.sd**2 + of_rounds) + (count - 1) * variance(logs)) / freedom
    quantile = t_quantile(0.5 + CONFIDENCE / 2, freedom)
    half, from_rounds = (quantile * math.sqrt(v / count) for v in (shrunk, min(shrunk, of_rounds)))
    middle = fmean(logs)
    whole = Ratio(math.exp(middle), math.exp(middle - half), math.exp(middle + half))
    return Pooled(whole, from_rounds, math.sqrt(half**2 - from_rounds**2))


def _of_one(ratio: Ratio, spread: ProcessSpread) -> Pooled:
    process = Z * spread.sd
    below, above = math.log(ratio.ratio / ratio.low), math.log(ratio.high / ratio.ratio)
    low, high = math.hypot(below, process), math.hypot(above, process)
    whole = Ratio(ratio.ratio, ratio.ratio * math.exp(-low), ratio.ratio * math.exp(high))
    return Pooled(whole, (below + above) / 2, process)


def with_process(measured: Measured, device: str) -> Measured:
    """A measurement whose intervals leave the process out, as those before harness 6 do, with the process in them. Any
    other measurement is returned unchanged. device: its name."""
    spread = spread_of(device, measured.mode)
    results = [_widened(arm, spread) for arm in measured.results]
    if all(new is old for new, old in zip(results, measured.results, strict=True)):
        return measured
    told = {"process_sd": spread.sd, "process_sd_source": spread.source}
    return measured.model_copy(update={"results": results, "protocol": measured.protocol.model_copy(update=told)})


def export_with_process(export: Export) -> Export:
    """The same for every measurement of a run."""
    device = str(export.environment.get("device", ""))
    return export.model_copy(update={"measurements": [with_process(m, device) for m in export.measurements]})


def _widened(arm: ArmResult, spread: ProcessSpread) -> ArmResult:
    if arm.ratio is None or not arm.paired or arm.process_half_width is not None:
        return arm
    whole = pooled([arm.ratio], spread)
    return arm.model_copy(
        update={
            "speedup_low": whole.ratio.low,
            "speedup_high": whole.ratio.high,
            "rounds_half_width": whole.rounds_half_width,
            "process_half_width": whole.process_half_width,
        }
    )

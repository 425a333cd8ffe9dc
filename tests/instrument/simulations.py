"""What tests on the simulated bench have in common."""

from simulator import SimulatedBench, SimulatedKernel

from kernels.analysis.statistics import MARGIN, paired_speedup, word

BASE = "base"
MS, US = 1e6, 1e3
STEADY = {"precision": 1.0}
"""A plan that is content at its first look."""
NEVER = {"precision": 1e-9}
"""A plan that is never content."""


def bench_of(seed=0, base_ns=200 * US, weather=None, **others):
    """A bench with a baseline and others of so many ns."""
    kernels = {name: k if isinstance(k, SimulatedKernel) else SimulatedKernel(k) for name, k in others.items()}
    return SimulatedBench({BASE: SimulatedKernel(base_ns)} | kernels, seed, **(weather or {}))


def word_of(reading, arm="other"):
    base, mine = reading.medians(BASE), reading.medians(arm)
    _, low, high = paired_speedup(base, mine)
    return word(low, high, MARGIN, len(mine))

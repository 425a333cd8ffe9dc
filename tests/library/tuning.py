"""A kernel that can be tuned on a CPU, a config that takes a second, and an instrument that knows its answers."""

from kernels.contract.arm_result import Ratio, Status
from kernels.contract.search import OnWorkload, Search
from kernels.tune_plan import TunePlan
from kernels.tuning.tuner import now
from kernels.workload import Config

BLOCKED = '''
import torch
from kernels.catalog import Unsupported, kernel


@kernel("softmax", backend="pytorch", space={"rows": (1, 8, 64, 256), "way": ("plain", "wrong", "broken")})
def blocked(x, *, settings=None):
    """Softmax of so many rows at a time."""
    settings = settings or {"rows": 1, "way": "plain"}
    if settings["way"] == "broken":
        raise RuntimeError("it does not compile")
    out = torch.empty_like(x)
    for first in range(0, x.shape[0], settings["rows"]):
        here = slice(first, first + settings["rows"])
        out[here] = x[here].softmax(-1) * (1.5 if settings["way"] == "wrong" else 1)
    return out
'''
TINY = """
title: Tiny
operation: softmax
kernels: [blocked]
protocol: {warmup_s: 0.02, min_rounds: 8, max_rounds: 8, budget_s: 1, verify_seeds: 1, block_ms: 0.2}
workloads: [{rows: [64, 128], cols: 1024, dtype: float32}]
"""
SPACE = {"rows": (1, 2, 4, 8, 16, 32), "warps": (1, 2, 4, 8, 16)}
CONFIG = Config(
    name="two",
    operation="softmax",
    kernels=["functional"],
    workloads=[{"rows": [128, 256], "cols": 64, "dtype": "float32"}],
)


def search(space=SPACE, **plan):
    return Search(
        operation="softmax",
        kernel="scripted",
        plan=TunePlan(**plan),
        protocol=CONFIG.protocol,
        space=space,
        keys=[one.key for one in CONFIG.workloads],
        workloads=CONFIG.workloads,
        began_at=now(),
    )


def timed(key, ratio, side=0.005, **more):
    found = Ratio(ratio, ratio * (1 - side), ratio * (1 + side))
    shown = {"status": Status.OK, "correct": True, "ratio": found, "p50_ms": 1 / ratio, "rounds": 40}
    return OnWorkload(**{"key": key, "own_p50_ms": 1.0} | shown | more)


class Scripted:
    """speedup(settings, confirming) -> the ratio on every workload; or a status with a reason."""

    def __init__(self, speedup):
        self.speedup, self.asked = speedup, []

    def measure(self, settings, plan, should_stop, live):
        confirming = plan.processes > 1
        self.asked.append(("confirm" if confirming else "screen", [dict(one) for one in settings], plan))
        return [[self._on(workload.key, one, confirming) for workload in CONFIG.workloads] for one in settings]

    def _on(self, key, settings, confirming):
        found = self.speedup(settings, confirming)
        if isinstance(found, tuple):
            return OnWorkload(key=key, status=found[0], why=found[1], correct=found[0] != Status.INCORRECT)
        return timed(key, found, processes=5 if confirming else 1)

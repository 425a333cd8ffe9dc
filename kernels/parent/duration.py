"""How long a run takes, before anything of it is measured: from its work and its protocol."""

from __future__ import annotations

import math
from typing import Any

from kernels.analysis.blocks import GRAPH_BELOW_NS, MIN_CALLS, least_calls
from kernels.analysis.statistics import MIN_ROUNDS
from kernels.parent.engine import VERIFY_LIMIT_S
from kernels.parent.rounds import KEEP_EVERY, LEAST_CAPTURES, PATIENCE
from kernels.protocol import Protocol
from kernels.workload import Workload

START_S = {"cuda": 8.0, "cpu": 3.0}
"""Start of a process, its libraries, the first compilation; and of another one for the cross-check."""
RESULT_S = {"cuda": 0.5, "cpu": 0.7}
"""Least time of a result, on any workload."""
COMPILE_S = {"cuda": 1.0, "cpu": 15.0}
"""torch.compile, anew for each workload."""
SLOWER = {"cuda": 1.5, "cpu": 2.0}
"""Typical slow-down of a kernel against the ceilings. Kernels far behind stop after eight rounds."""
EDGES_S = {"cuda": 0.35, "cpu": 0.2}
"""Checks on small odd sizes, which only a run without timing does: of one kernel on one workload. A guess."""
CHECK_CALLS, EMULATED_CALLS = {"cuda": 10, "cpu": 60}, {"cuda": 10, "cpu": 140}
"""A correctness check, in calls at the ceilings: float64, summed term by term; and of what a CPU emulates."""
EMULATED = ("float16", "float8_e4m3fn")
CHECK_MOVES = {"cuda": 30, "cpu": 300}
"""The same if memory is the limit: several float64 copies of all tensors, and new inputs."""
TYPICAL = 2
"""A GPU usually needs this many times the minimum rounds; a CPU usually needs the maximum."""
CAPTURE_S = 0.01
"""Capture of a graph, anew for each arm in each round."""
TFLOPS, GB_PER_S = {"cuda": 30.0, "cpu": 0.05}, {"cuda": 300.0, "cpu": 8.0}
"""Rates of a device without calibration: a small one."""
FIRST_CALLS = 14
"""Calls of an arm before its first round: compilation, memory, the estimate of its time."""
SUSTAINED_S_PER_RESULT = 15.0
"""Eight to twelve rounds of 1.25 s; the baseline twice."""
CELL_S, BATCH_S = 4.0, 0.3
"""Isolated: start of a process, and a batch with its fresh inputs, its rest and its check."""
OFF_BY = 2.0
"""An estimate is shown as a range: half to double. Compilers and very slow kernels are often outside."""


def guess(
    workload: Workload, kernels: list[str], plan: Protocol, kind: str, ceilings: dict[str, Any]
) -> tuple[bool, float]:
    """(whether anything is timed, seconds) of a workload without measurements: from its work and the protocol."""
    compute_s, memory_s = at_ceilings(workload, kind, ceilings)
    ideal_s = max(compute_s, memory_s)
    checked = EMULATED_CALLS if workload.dtype in EMULATED else CHECK_CALLS
    check_s = max(checked[kind] * compute_s, CHECK_MOVES[kind] * memory_s)
    call_s = SLOWER[kind] * ideal_s
    if 2 * call_s > plan.compile_limit_s:  # every kernel stops at its first two calls
        return False, plan.compile_limit_s * len(kernels)
    if check_s > VERIFY_LIMIT_S:  # or at its first check
        return False, (2 * call_s + VERIFY_LIMIT_S) * len(kernels)
    graphs = kind == "cuda" and (plan.mode == "graph" or (plan.mode == "auto" and call_s * 1e9 < GRAPH_BELOW_NS))
    least = max(plan.min_rounds, LEAST_CAPTURES) if graphs else plan.min_rounds
    rounds = plan.max_rounds if kind == "cpu" else min(plan.max_rounds, TYPICAL * least)
    if plan.name == "fixed":
        rounds = 0
        timed_s = (plan.warmup + plan.iters) * call_s * len(kernels)
    else:
        calls = least_calls(call_s * 1e9) if kind == "cuda" else MIN_CALLS
        block_s = (
            max(plan.block_ms / 1e3, (calls + 1) * call_s) * (1 + plan.rest * (kind == "cuda")) + CAPTURE_S * graphs
        )
        round_s = block_s * (len(kernels) + 1)  # the baseline runs twice
        timed_s = min(rounds * round_s, _limit_s(plan, kernels, round_s)) + max(plan.warmup_s, round_s)
    if plan.isolated:
        round_s = max(BATCH_S, call_s) * (len(kernels) + 1)
        timed_s = min(rounds * round_s, _limit_s(plan, kernels, round_s)) + CELL_S * (len(kernels) + 2)
    if plan.mode == "sustained" and kind == "cuda":
        timed_s = max(timed_s, SUSTAINED_S_PER_RESULT * len(kernels))
    if plan.verify_only:
        rounds, timed_s = 0, EDGES_S[kind] * len(kernels)
    checks = plan.verify_seeds + rounds / KEEP_EVERY + 1
    compile_s = COMPILE_S[kind] * ("compiled" in kernels)
    return True, timed_s + compile_s + (RESULT_S[kind] + FIRST_CALLS * call_s + checks * check_s) * len(kernels)


def processes_of(plan: Protocol) -> int:
    """Processes that measure each workload. What is only checked needs one."""
    return 1 if plan.verify_only else plan.processes


def _limit_s(plan: Protocol, kernels: list[str], round_s: float) -> float:
    """When rounds end that take so long: at the time budget, but not before those that a word needs."""
    budget_s = plan.budget_s * max(1, len(kernels) - 1)
    return max(budget_s, round_s, min(MIN_ROUNDS * round_s, PATIENCE * budget_s))


def at_ceilings(workload: Workload, kind: str, ceilings: dict[str, Any]) -> tuple[float, float]:
    """(compute, memory) seconds of a call at the device's ceilings; without a calibration, at those of a small
    device."""
    products = ceilings.get("matmul_tflops") or {}
    tflops = products.get(workload.dtype) or min(products.values(), default=TFLOPS[kind])
    gb_per_s = ceilings.get("copy_gb_per_s") or GB_PER_S[kind]
    problem = workload.problem
    return problem.flops() / (tflops * 1e12), sum(problem.bytes_moved()) / (gb_per_s * 1e9)


def span(low_s: float, high_s: float) -> str:
    """A range of times in words: under a minute, up to 3 min, 2 to 8 min, 40 min to 3 h, 2 to 7 h."""
    low, high = round(low_s / 60), math.ceil(high_s / 60)
    if high <= 1:
        return "under a minute"
    if low < 1:
        return f"up to {high} min"
    if high < 90:
        return f"{low} to {high} min"
    if low < 90:
        return f"{low} min to {math.ceil(high / 60)} h"
    return f"{round(low / 60)} to {math.ceil(high / 60)} h"

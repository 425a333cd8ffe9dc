"""Checks kernels of the zoo and of the catalogue as a run does before it times them: what test_numerics*.py share."""

import os
from pathlib import Path
from unittest import mock

from kernels.analysis.correctness import judge
from kernels.catalog import Unsupported, get_kernel, load
from kernels.child.bench import Bench
from kernels.child.reference import Reference, measure
from kernels.operations.base import Operation
from kernels.protocol import Protocol
from kernels.workload import Workload

ZOO = Path(__file__).parent
CHECKS = Protocol().verify_seeds


def judged(device: str, kernels: list[str], problem: Operation, seed: int = 1, checks: int = CHECKS) -> dict[str, dict]:
    """{kernel: what `judge` says of it}. Kernels share the inputs. One that does not support the workload is left out."""
    found, bench = {}, Bench(device)
    workload = Workload(operation=problem.name, dtype=problem.dtype, sizes=problem.model_dump(exclude={"dtype"}))
    kinds = problem.distributions
    with mock.patch.dict(os.environ, {"KERNEL_PATH": str(ZOO)}):
        bench.open(workload.model_dump())
        readings: dict[str, list] = {kernel: [] for kernel in kernels}
        for number in range(checks):
            asked = {"seed": 100 * seed + number, "thorough": number == 0, "distribution": kinds[number % len(kinds)]}
            for kernel in kernels:
                try:
                    readings[kernel].append(bench.verify(kernel, **asked).reading)
                except Unsupported:
                    continue
            bench.forget_references()
        for kernel, of in readings.items():
            if of:
                found[kernel] = judge(of, problem.dtype)
    return found


def judged_by_outputs(kernels: list[str], problem: Operation, seed: int = 1, checks: int = CHECKS) -> dict[str, dict]:
    """The same on the CPU from outputs only: calls are not guarded, which takes ten times as long."""
    readings: dict[str, list] = {}
    with mock.patch.dict(os.environ, {"KERNEL_PATH": str(ZOO)}):
        known = {kernel: get_kernel(problem.name, kernel) for kernel in kernels}
    able = {name: info for name, info in known.items() if not info.why_not_for(problem.dtype, problem.model_dump())}
    calls = {kernel: load(info).call for kernel, info in able.items()}
    for number in range(checks):
        kind = problem.distributions[number % len(problem.distributions)]
        inputs = problem.inputs("cpu", 100 * seed + number, kind)
        reference = Reference(problem, inputs, 100 * seed + number, number == 0, kind)
        for kernel, call in calls.items():
            readings.setdefault(kernel, []).append(measure(call(*inputs.tensors, **inputs.options), reference))
    return {kernel: judge(of, problem.dtype) for kernel, of in readings.items()}


def adhoc(candidate, reference, inputs, seed: int, device: str = "cpu") -> dict:
    """What measure() says of a callable from four seeds of its inputs."""
    import torch

    from kernels.inprocess.adhoc import Source
    from kernels.inprocess.session import InProcess, Judged, problem_of

    with torch.no_grad():
        bench = InProcess(torch.device(device), {"candidate": candidate})
        bench.problem = bench.arms.problem = problem_of(bench, Source(inputs, None, seed), reference, 0, 0)
        readings = [bench.verify("candidate", 1000 * seed + number, thorough=True).reading for number in range(4)]
        return Judged(bench.problem, has_baseline=False)("candidate", readings, {})

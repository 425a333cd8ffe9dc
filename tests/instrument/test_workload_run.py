"""One workload among others of a run."""

from types import SimpleNamespace

from kernels.contract.arm_result import Status
from kernels.parent.workload_run import WorkloadRun
from kernels.workload import Config, RunSpec


def test_a_kernel_that_has_hung_is_not_tried_on_later_workloads_of_the_run():
    config = Config(
        name="t",
        operation="gemm",
        kernels=["eager", "compiled"],
        workloads=[{"m": 8, "n": 8, "k": size} for size in (8, 16)],
    )
    first, second = config.workloads
    context = SimpleNamespace(
        spec=RunSpec.of(config, "CPU-1"), device=SimpleNamespace(kind="cpu", capability=None), is_cuda=False
    )
    before = {(first.key, "eager"): Status.OK, (first.key, "compiled"): Status.TIMED_OUT}
    eager, compiled = WorkloadRun(context, second, before).arms
    assert (eager.status, eager.why) == ("ok", "")
    assert (compiled.status, compiled.why) == ("timed out", "skipped: it hung on M=8 N=8 K=8")
    before[first.key, "compiled"] = Status.CRASHED
    assert WorkloadRun(context, second, before).arms[1].is_ok, "a crash costs little, and may be of that workload alone"

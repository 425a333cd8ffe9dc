"""One workload among others of a run."""

from types import SimpleNamespace

from kernels.parent.workload_run import Measuring
from kernels.workload import Config, RunSpec


def test_a_kernel_that_has_hung_is_not_tried_on_later_workloads_of_the_run():
    config = Config(
        name="t",
        operation="gemm",
        kernels=["eager", "compiled"],
        workloads=[{"m": 8, "n": 8, "k": size} for size in (8, 16)],
    )
    first, second = config.workloads
    run = SimpleNamespace(
        spec=RunSpec.of(config, "CPU-1"),
        device=SimpleNamespace(kind="cpu", capability=None),
        standing={(first.key, "eager"): "ok", (first.key, "compiled"): "timed out"},
    )
    eager, compiled = Measuring(run, second).arms
    assert (eager.status, eager.why) == ("ok", "")
    assert (compiled.status, compiled.why) == ("timed out", "not tried here: it hung on M=8 N=8 K=8")
    run.standing[first.key, "compiled"] = "crashed"
    assert Measuring(run, second).arms[1].status == "ok", "a crash costs little, and may be of that workload alone"

"""What measured results say by themselves: statuses, noise, others on the device, clocks; and times with intervals."""

from dataclasses import replace

import pytest

from kernels.analysis.findings import of_runs
from kernels.analysis.findings_one import Kind, Timed
from kernels.analysis.findings_run import Observed
from kernels.analysis.peaks import peak_of
from kernels.contract.arm_result import Status
from kernels.workload import Workload

L4 = peak_of("NVIDIA L4")


def attention(batch, heads):
    return Workload(operation="attention", sizes={"batch": batch, "heads": heads, "seq_len": 512, "head_dim": 64})


def observed(kernel, batch, heads, ms, **more):
    low, high = (ms * 0.995, ms * 1.005) if ms else (None, None)
    timed = Timed(attention(batch, heads), kernel, ms, L4, "NVIDIA L4", "graph", low=low, high=high)
    return Observed(timed, is_baseline=kernel == "sdpa", **more)


SDPA = [observed("sdpa", 1, 8, 0.045), observed("sdpa", 8, 16, 0.136)]
V3 = [observed("v3", 1, 8, 7.433), observed("v3", 8, 16, 113.798)]


def found(*results):
    return of_runs(results)


def kinds(*results):
    return {one.kind for one in found(*results)}


def test_a_kernel_is_the_baseline_only_where_its_measurement_says_so():
    """`sdpa` was the baseline on one workload, and was compared with `v3` on the other."""
    other = [
        replace(observed("v3", 4, 16, 0.05), is_baseline=True),
        replace(observed("sdpa", 4, 16, 1.0), is_baseline=False),
    ]
    said = [one.sentence for one in found(SDPA[0], V3[0], *other) if one.kind == Kind.SLOW]
    assert [text.partition(" on attention")[0] for text in said] == [
        "sdpa (graph) is 20 times slower than v3",
        "v3 (graph) is 165 times slower than sdpa",
    ]


def test_measured_times_are_told_with_their_uncertainty():
    every = {one.kind: one.sentence for one in found(*SDPA, *V3)}
    assert "v3 (graph): the time grows 15.3x ±0.7% while the work grows 16x" in every[Kind.GROWS]
    assert "that of sdpa grows 3.02x ±0.7%" in every[Kind.GROWS]
    assert every[Kind.LATENCY].startswith("sdpa (graph): the time grows 3.02x ±0.7%")
    assert every[Kind.SLOW] == (
        "v3 (graph) is 165 to 837 times slower than sdpa on all 2 workloads and reaches 0.1% of the speed of light."
    )


@pytest.mark.parametrize(
    "status, kind, verb",
    [(Status.IMPOSSIBLE, Kind.IMPOSSIBLE, "is impossible"), (Status.SUSPECT, Kind.SUSPECT, "is suspect"),
     (Status.INCORRECT, Kind.INCORRECT, "is incorrect"), (Status.CRASHED, Kind.BROKEN, "crashed"),
     (Status.OUT_OF_MEMORY, Kind.BROKEN, "ran out of memory")],
)  # fmt: skip
def test_each_status_that_is_not_ok_is_a_finding(status, kind, verb):
    bad = replace(V3[0], status=status, why="row 3 is wrong.")
    (one,) = (one for one in found(*SDPA, bad) if one.kind == kind)
    assert one.sentence == f"v3 {verb} on {V3[0].label}: row 3 is wrong."
    assert one.doubts and one.of == (bad.timed,)
    assert Kind.SLOW not in kinds(*SDPA, bad), "its time counts for nothing"


def test_alike_results_make_one_finding():
    bad = [observed("v3", batch, 8, 1.0, status=Status.INCORRECT) for batch in range(1, 6)]
    (one,) = (one for one in found(*bad) if one.kind == Kind.INCORRECT)
    assert one.sentence == "v3 is incorrect on 5 workloads."


def test_noise_is_a_finding_and_its_times_say_nothing():
    noisy = [replace(one, margin=0.08, noise="this machine was busy: A/A from 0.92 to 1.00") for one in (*SDPA, *V3)]
    (one,) = found(*noisy)
    assert one.kind == Kind.NOISE
    assert "this machine was busy" in one.arithmetic[0]


def test_others_on_the_device():
    busy = [replace(one, is_contended=True) for one in (*SDPA, *V3)]
    (one,) = found(*busy)
    assert (one.kind, one.sentence.startswith("Other processes used NVIDIA L4 during")) == (Kind.CONTENDED, True)


def test_a_lower_clock_than_the_baselines():
    slow = replace(V3[0], mhz=1290.0, base_mhz=1755.0)
    (one,) = (one for one in found(*SDPA, slow) if one.kind == Kind.CLOCK)
    assert "v3 ran at 1,290 MHz while the baseline in the same rounds ran at 1,755 MHz" in one.sentence
    assert Kind.CLOCK not in kinds(*SDPA, replace(V3[0], mhz=1740.0, base_mhz=1755.0))


def test_a_gpu_that_was_held_back():
    held = replace(SDPA[0], throttled=["SwPowerCap"])
    (one,) = (one for one in found(held) if one.kind == Kind.CLOCK)
    assert one.sentence == f"The GPU was throttled on {SDPA[0].label}: its power limit."


def test_sound_results_near_the_limit_give_nothing():
    assert found(observed("sdpa", 8, 16, 0.136), observed("mine", 8, 16, 0.13)) == []

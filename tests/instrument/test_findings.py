"""What times say by themselves: on series written by hand, most of them from published reports."""

import pytest

from kernels.analysis.findings import findings
from kernels.analysis.findings_one import Kind, Timed, bandwidth_without_its_bytes, rate_without_its_work
from kernels.analysis.findings_series import series
from kernels.analysis.peaks import Reached, peak_of
from kernels.workload import Workload

L4 = peak_of("NVIDIA L4")
H100 = peak_of("NVIDIA H100 80GB HBM3")


def attention(batch, heads, causal=False, seq_len=512, head_dim=64):
    sizes = {"batch": batch, "heads": heads, "seq_len": seq_len, "head_dim": head_dim, "causal": causal}
    return Workload(operation="attention", sizes=sizes)


def timed(kernel, workload, ms, peak=L4, **more):
    return Timed(workload, kernel, ms, peak, gpu="L4", **more)


def found(*results, **more):
    return findings(results, lambda one: one.kernel == "sdpa", **more)


def of_kind(every, kind):
    return [one.sentence for one in every if one.kind == kind]


TABLE = [
    (1, 8, False, 0.045, 7.433, 0.006, 165), (1, 8, True, 0.045, 5.966, 0.008, 133), (4, 16, False, 0.088, 56.325, 0.002, 640),
    (4, 16, True, 0.084, 43.884, 0.002, 522), (8, 16, False, 0.136, 113.798, 0.001, 837),
    (8, 16, True, 0.127, 89.296, 0.001, 703),
]  # fmt: skip
V3 = [
    one
    for batch, heads, causal, sdpa, v3, speedup, slowdown in TABLE
    for one in (
        timed("sdpa", attention(batch, heads, causal), sdpa, method="p50"),
        timed("v3", attention(batch, heads, causal), v3, method="p50", speedup=speedup, slowdown=slowdown),
    )
]
PROFILED = [
    one
    for batch, heads, v3, sdpa, slowdown in ((1, 8, 6.8, 0.0154, 172), (4, 16, 45.3, 0.0803, 523), (8, 16, 117.2, 0.1235, 816))
    for one in (
        timed("sdpa", attention(batch, heads), sdpa, method="profiler"),
        timed("v3", attention(batch, heads), v3, method="profiler", slowdown=slowdown),
    )
]  # fmt: skip


def test_no_ratio_joins_the_times_of_two_measurements():
    """A baseline that was measured again later gave "20 to 25 times slower" for kernels that were 7 and 8 times slower."""
    first = [timed(k, attention(1, 8), ms, measurement="1") for k, ms in (("sdpa", 0.03), ("v3", 0.33))]
    again = [timed("sdpa", attention(1, 8), 0.01, measurement="2")]
    assert of_kind(found(*first, *again), Kind.SLOW) == of_kind(found(*first), Kind.SLOW) != []
    assert "11 times slower" in of_kind(found(*first, *again), Kind.SLOW)[0]
    assert not of_kind(found(*first[1:], *again), Kind.SLOW)


def test_a_kernel_that_is_far_slower_everywhere_and_far_from_the_limit():
    (slow,) = (one for one in found(*V3) if one.kind == Kind.SLOW)
    assert slow.sentence == (
        "v3 (p50) is 133 to 837 times slower than sdpa on all 6 workloads and reaches 0.1% of the speed of light."
    )
    assert (
        "attention fp16 B=8 H=16 S=512 D=64: 113.8 ms / 0.136 ms = 836.8; 0.10% of the speed of light"
        in slow.arithmetic
    )
    assert len(slow.of) == 12


def test_a_time_that_grows_with_the_work_and_one_that_is_launch_overhead():
    every = found(*V3)
    assert of_kind(every, Kind.GROWS) == [
        "v3 (p50): the time grows 15.3x while the work grows 16x, from attention fp16 B=1 H=8 S=512 D=64 to attention fp16 "
        "B=8 H=16 S=512 D=64; that of sdpa grows 3.02x. It reaches 0.1% of the speed of light."
    ]
    assert of_kind(every, Kind.LATENCY) == [
        "sdpa (p50): the time grows 3.02x while the work grows 16x, from attention fp16 B=1 H=8 S=512 D=64 to attention fp16 "
        "B=8 H=16 S=512 D=64; small sizes are launch-bound or do not fill the GPU."
    ]


def test_kernels_that_are_latency_bound_between_the_same_workloads_are_one_finding():
    small, large = attention(1, 8), attention(8, 16)
    every = [timed("flash", small, 0.016), timed("flash", large, 0.032), timed("sdpa", small, 0.017),
             timed("sdpa", large, 0.051)]  # fmt: skip
    (one,) = (one for one in found(*every) if one.kind == Kind.LATENCY)
    assert one.sentence == (
        "flash, sdpa: the time grows 2x (flash) to 3x (sdpa) while the work grows 16x, from attention fp16 B=1 H=8 "
        "S=512 D=64 to attention fp16 B=8 H=16 S=512 D=64; small sizes are launch-bound or do not fill the GPU."
    )
    assert len(one.of) == 4 and len(one.arithmetic) == 6


def test_a_kernel_near_the_limit_may_grow_with_its_work():
    """It fills the GPU at both ends: nothing is wrong."""
    fast = [timed("mine", attention(batch, 16, seq_len=4096), 2.2 * batch) for batch in (1, 16)]
    assert found(*fast) == []


def test_factors_that_contradict_their_own_times():
    every = found(*V3, *PROFILED)
    assert of_kind(every, Kind.FACTORS) == [
        "v3 (profiler) is reported as 172, 523, 816 times slower than sdpa; its own times give 442, 564, 949."
    ]
    (one,) = (one for one in every if one.kind == Kind.FACTORS)
    assert one.arithmetic[0] == "attention fp16 B=1 H=8 S=512 D=64: 6.8 ms / 0.0154 ms = 441.6, not 172"
    assert one.doubts


def test_the_rounding_of_a_factor_is_no_contradiction():
    """0.002 may be anything from 0.0015 to 0.0025, and 0.001 may be 0.0005."""
    assert of_kind(found(*V3), Kind.FACTORS) == []
    base, mine = timed("sdpa", attention(4, 16), 0.088), attention(4, 16)
    assert of_kind(found(base, timed("v3", mine, 56.325, speedup=0.0026)), Kind.FACTORS)


def test_times_of_two_methods_or_two_gpus_are_not_compared():
    base = timed("sdpa", attention(1, 8), 0.01, method="p50")
    other = Timed(attention(1, 8), "v3", 10.0, L4, "L4", "profiler")
    assert of_kind(found(base, other), Kind.SLOW) == []
    assert of_kind(found(base, Timed(attention(1, 8), "v3", 10.0, L4, "another", "p50")), Kind.SLOW) == []


def test_impossible_and_above_everything_measured():
    sizes = {"batch": 16, "heads": 96, "seq_len": 4096}
    impossible = timed("sdpa", attention(**sizes, head_dim=128), 12.27, H100, tflops=1075)
    above = timed("sdpa", attention(**sizes, head_dim=64), 7.37, H100)
    every = found(above, impossible)
    assert [one.kind for one in every] == [Kind.IMPOSSIBLE, Kind.ABOVE] and all(one.doubts for one in every)
    assert "H100 SXM cannot exceed 1071" in every[0].sentence
    assert "895.1 TFLOP/s is above everything measured on an H100 SXM so far: 797.5" in every[1].sentence
    assert "rate: 6.597 TFLOP / 7.37 ms = 895.1 TFLOP/s" in every[1].arithmetic
    here = found(above, known=lambda one: ([Reached(900.0, "run 7")], []))
    assert here == []


def test_a_rate_that_does_not_follow_from_its_sizes():
    nsa = timed("cutedsl", attention(2, 16, True), 0.543, peak_of("NVIDIA H100 PCIe"), tflops=45.23)
    (one,) = found(nsa)
    assert one.kind == Kind.CONTRADICTORY
    assert "x 0.543 ms = 24.56 GFLOP, but this workload has 1.076 GFLOP (2.147 GFLOP with masked work)" in one.sentence
    (unknown,) = found(timed("cutedsl", attention(2, 16, True), 0.543, None, tflops=45.23))
    assert "45.23 TFLOP/s x 0.543 ms = 24.56 GFLOP, and the workload has 1.076 GFLOP" in unknown.sentence
    assert rate_without_its_work(timed("a", attention(2, 16, True), 0.543, tflops=3.955)) == "", "masked work counted"


@pytest.mark.parametrize(
    "dtype, assumed, gb_per_s, contradicts",
    [("float16", True, 12.5, True), ("float32", False, 12.5, True), ("float32", True, 120.0, False),
     ("float32", False, 120.0, True), ("float16", False, 113.9, False), ("float16", False, 500.0, False)],
)  # fmt: skip
def test_a_bandwidth_below_the_bytes_that_must_move(dtype, assumed, gb_per_s, contradicts):
    """More is no contradiction: a kernel may read twice. An assumed dtype counts as the smallest one."""
    norm = Workload(operation="layer_norm", dtype=dtype, sizes={"rows": 16384, "cols": 768})
    one = timed("cuda", norm, 0.442, None, gb_per_s=gb_per_s, assumed_dtype=assumed)
    assert bool(bandwidth_without_its_bytes(one)) == contradicts
    if contradicts and assumed:
        assert [item.kind for item in found(one)] == [Kind.CONTRADICTORY]
        assert "12.5 GB/s x 0.442 ms = 5.27 MiB, and the workload moves at least 48 MiB" in found(one)[0].sentence


def test_incorrect_by_its_own_report():
    (one,) = found(timed("flashcore", attention(8, 16), 1.0, correct=False))
    assert one.kind == Kind.INCORRECT and one.doubts


def test_a_single_time_and_nothing_give_nothing():
    assert found() == []
    assert found(timed("sdpa", attention(8, 16), 0.136)) == []
    assert found(Timed(attention(8, 16), "a", None, tflops=5.0)) == []


def test_series_are_of_one_kernel_with_equal_sizes_but_the_counts():
    other_length = timed("sdpa", attention(64, 16, seq_len=1024), 9.0, method="p50")
    assert {(one.small.kernel, one.small.workload.sizes["causal"], one.work) for one in series([*V3, other_length])} == {
        ("sdpa", False, 16), ("v3", False, 16), ("sdpa", True, 16), ("v3", True, 16),
    }  # fmt: skip

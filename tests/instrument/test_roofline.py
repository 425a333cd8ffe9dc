"""What a device can do at most, and times that cannot be: by the figures of datasheets and of published reports."""

import pytest

from kernels.analysis.peaks import PEAKS, peak_of
from kernels.analysis.roofline import rates, renewed_ms, speed_of_light_ms, why_impossible
from kernels.operations.attention import Attention
from kernels.operations.gemm import Gemm

L2 = 50 * 2**20
NAMES = {
    "NVIDIA L4": "L4",
    "Tesla L4": "L4",
    "NVIDIA A100-SXM4-80GB": "A100 SXM 80GB",
    "NVIDIA H100 PCIe": "H100 PCIe",
    "NVIDIA H100 80GB HBM3": "H100 SXM",
    "NVIDIA H200": "H200 SXM",
    "NVIDIA B200": "B200",
    "NVIDIA GeForce RTX 4090": "RTX 4090",
    "NVIDIA GeForce RTX 5090": "RTX 5090",
}
UNKNOWN = (
    "", "AMD Instinct MI300X", "Intel(R) Xeon(R) Processor", "NVIDIA L40S", "NVIDIA L40", "NVIDIA A100-PCIE-40GB",
    "NVIDIA A100-SXM4-40GB", "NVIDIA A100 80GB PCIe", "NVIDIA H100 NVL", "NVIDIA H200 NVL", "NVIDIA GH200 480GB",
    "NVIDIA GB200", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA GeForce RTX 4090 Laptop GPU",
    "NVIDIA GeForce RTX 4090 D",
)  # fmt: skip


def rates_of(problem, time_ms, peak):
    return rates(problem, time_ms, speed_of_light_ms(problem, peak))


def h100_report(causal):
    """The workload of a published H100 report that claims 12.27 ms for it."""
    return Attention(batch=16, heads=96, seq_len=4096, head_dim=128, causal=causal)


@pytest.mark.parametrize("name, model", NAMES.items())
def test_a_device_is_known_by_the_name_that_its_driver_gives(name, model):
    assert peak_of(name).model == model


def test_every_model_in_the_table_is_found_under_some_name():
    assert {peak_of(name).model for name in NAMES} == {peak.model for peak in PEAKS}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_device_that_is_not_known_has_no_limit_and_nothing_is_impossible_on_it(name):
    peak = peak_of(name)
    assert peak is None
    found = rates_of(h100_report(causal=False), 1e-6, peak)
    assert (found["limit_ms"], found["limit_share"], found["hint"]) == (None, None, "")
    assert found["tflops"] > 1e9
    assert why_impossible(h100_report(causal=False), 1e-6, peak, touched_once=True, cache_bytes=0) == ""


@pytest.mark.parametrize("peak", PEAKS, ids=lambda peak: peak.model)
def test_the_speed_of_light_is_at_the_maximum_clock_and_never_below_the_datasheet(peak):
    """Datasheets round, and count at a clock below the highest: the dense figure, never the sparse one."""
    for dtype in ("float16", "bfloat16", "float32"):
        assert peak.tflops(dtype) < 1.01 * peak.light(dtype).tflops
    assert peak.light("bfloat16").unit == "fp16"
    assert peak.light("bfloat16").tflops < 1.35 * peak.tflops("bfloat16"), "GeForce clocks are far above their boost"
    assert peak.clock_source


@pytest.mark.parametrize("peak", PEAKS, ids=lambda peak: peak.model)
def test_nobody_has_measured_more_than_the_speed_of_light_and_everything_has_a_source(peak):
    for unit, reached in peak.reached.items():
        assert reached.source
        if unit == "memory":
            assert 0.5 * peak.gb_per_s < reached.rate < peak.gb_per_s
        else:
            at_most = peak.sm_count * peak.flop_per_clock[unit] * peak.max_mhz / 1e6
            assert 0.2 * at_most < reached.rate < at_most, unit


PUBLIC = (
    ("NVIDIA GeForce RTX 4090", "float16", 168.4),
    ("NVIDIA GeForce RTX 4090", "bfloat16", 168.4),
    ("NVIDIA GeForce RTX 5090", "bfloat16", 217),
    ("NVIDIA GeForce RTX 5090", "bfloat16", 240.05),
    ("NVIDIA GeForce RTX 5090", "float16", 254.2),
)
"""(card, dtype, TFLOP/s) of matrix products that PyTorch and cuBLASLt reach, as published."""


@pytest.mark.parametrize("card, dtype, tflops", PUBLIC)
def test_published_rates_of_consumer_cards_are_possible(card, dtype, tflops):
    problem = Gemm(dtype=dtype, m=8192, n=8192, k=8192)
    assert why_impossible(problem, problem.flops() / tflops / 1e9, peak_of(card), False, L2) == ""


def test_sums_in_fp16_double_the_light_of_geforce_cards_for_float16_only():
    for card in ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 5090"):
        peak = peak_of(card)
        assert peak.light("float16").tflops == 2 * peak.light("bfloat16").tflops
        assert "1024 FLOP/clk with sums in fp16" in peak.light("float16").arithmetic
    hopper = peak_of("NVIDIA H200")
    assert hopper.light("float16").tflops == hopper.light("bfloat16").tflops


def test_the_clock_of_the_device_replaces_that_of_the_table():
    assert peak_of("NVIDIA H200").light("float16").tflops == pytest.approx(1070.5, abs=0.1)
    slower = peak_of("NVIDIA H200", 1755)
    assert slower.light("float16").tflops == pytest.approx(948.9, abs=0.1)
    assert (slower.clock_source, slower.tflops("float16")) == ("its driver", 989.4)
    assert "1.755 GHz" in slower.light("float16").arithmetic


@pytest.mark.parametrize(
    "name, unit, tflops",
    [
        ("NVIDIA H100 80GB HBM3", "fp16", 356.8),
        ("NVIDIA A100-SXM4-80GB", "fp16", 104.0),
        ("NVIDIA B200", "fp16", 794.1),
        ("NVIDIA GeForce RTX 4090", "fp32", 103.7),
    ],
)
def test_float32_may_be_three_products_of_a_faster_unit(name, unit, tflops):
    """Three products of tf32, or of scaled fp16, are as exact as one of float32, and pass the checks."""
    light = peak_of(name).light("float32")
    assert (light.unit, light.tflops) == (unit, pytest.approx(tflops, abs=0.1))


def test_float32_by_three_products_is_possible_and_by_one_is_not():
    peak = peak_of("NVIDIA H100 80GB HBM3")
    assert peak.tflops("float32") == 67
    problem = Attention(dtype="float32", batch=16, heads=96, seq_len=4096, head_dim=128)
    time_ms = problem.flops() / 200e12 * 1e3
    assert why_impossible(problem, time_ms, peak, False, L2) == "", "200 TFLOP/s are more than 67, but 3 x tf32 can"
    assert "/ 3 products of fp16" in why_impossible(problem, time_ms / 2, peak, False, L2)


def test_flops_are_counted_unmasked_and_bytes_once():
    assert h100_report(causal=False).flops() == 4 * 4096**2 * 128 * 16 * 96
    assert h100_report(causal=True).flops() == 4 * (4096 * 4097 // 2) * 128 * 16 * 96
    grouped = Attention(batch=2, heads=8, kv_heads=2, seq_len=128, head_dim=64, dtype="float32")
    one_head = 2 * 128 * 64 * 4
    assert grouped.bytes_moved() == (one_head * (8 + 2 + 2), one_head * 8)


def test_the_dense_claim_of_the_h100_report_is_impossible_and_says_why():
    why = why_impossible(h100_report(causal=False), 12.27, peak_of("NVIDIA H100 80GB HBM3"), False, L2)
    assert why == (
        "12.27 ms would be 1075 TFLOP/s; H100 SXM cannot exceed 1071 TFLOP/s (132 SMs x 4096 FLOP/clk x 1.98 GHz)"
    )
    assert speed_of_light_ms(h100_report(causal=False), peak_of("NVIDIA H100 80GB HBM3")) == pytest.approx(12.325, 1e-3)


def test_the_same_time_declared_causal_is_plausible():
    peak = peak_of("NVIDIA H100 80GB HBM3")
    assert why_impossible(h100_report(causal=True), 12.27, peak, True, L2) == ""
    found = rates_of(h100_report(causal=True), 12.27, peak)
    assert found["tflops"] == pytest.approx(537.8, abs=0.05)
    assert found["limit_share"] == pytest.approx(0.5024, abs=1e-3)
    assert found["hint"] == ""


L4_REPORT = {(1, 1, 128): 0.0421, (8, 4, 128): 0.0406, (32, 8, 128): 0.0426, (32, 8, 256): 0.0980}
"""(batch, heads, sequence length) -> p50 in ms of float16 attention, D=64, on one buffer, on an L4."""


@pytest.mark.parametrize("sizes, time_ms", L4_REPORT.items())
def test_times_on_one_buffer_that_stays_in_the_cache_are_not_impossible(sizes, time_ms):
    problem = Attention(**dict(zip(("batch", "heads", "seq_len"), sizes, strict=True)), head_dim=64)
    assert why_impossible(problem, time_ms, peak_of("NVIDIA L4"), touched_once=False, cache_bytes=48 * 2**20) == ""


def test_the_same_speed_is_impossible_where_every_input_was_touched_once():
    problem = Attention(batch=32, heads=8, seq_len=128, head_dim=64)
    assert rates_of(problem, 0.0426, None)["gb_per_s"] == pytest.approx(394, abs=1)
    why = why_impossible(problem, 0.0426, peak_of("NVIDIA L4"), touched_once=True, cache_bytes=0)
    assert why == "0.0426 ms would move 393.8 GB/s; the memory of L4 reaches at most 300 GB/s"


def test_an_output_may_stay_in_the_cache_an_input_may_not():
    problem, peak = Attention(batch=32, heads=8, seq_len=128, head_dim=64), peak_of("NVIDIA L4")
    read, written = problem.bytes_moved()
    at_bandwidth = read / (300 * 1e6)
    assert why_impossible(problem, at_bandwidth * 1.001, peak, True, cache_bytes=written) == ""
    assert "GB/s" in why_impossible(problem, at_bandwidth * 0.999, peak, True, cache_bytes=written)
    assert "GB/s" in why_impossible(problem, at_bandwidth * 1.001, peak, True, cache_bytes=0)


def test_the_limit_is_the_slower_of_arithmetic_and_memory():
    peak = peak_of("NVIDIA H200")
    short = Attention(batch=1, heads=8, seq_len=128, head_dim=64)
    assert speed_of_light_ms(short, peak) == pytest.approx(sum(short.bytes_moved()) / 4800e9 * 1e3)
    long = Attention(batch=1, heads=8, seq_len=16384, head_dim=64)
    assert speed_of_light_ms(long, peak) == pytest.approx(long.flops() / 1070.53e12 * 1e3, rel=1e-5)


def test_a_kernel_far_below_the_limit_gets_a_hint():
    peak, problem = peak_of("NVIDIA H200"), h100_report(causal=False)
    limit = speed_of_light_ms(problem, peak)
    assert rates_of(problem, limit / 0.051, peak)["hint"] == ""
    assert "far from the limit" in rates_of(problem, limit / 0.049, peak)["hint"]


def test_the_compute_bound_of_an_older_harness_becomes_todays():
    """989.4 TFLOP/s are the data sheet's; 132 SMs x 4096 FLOP/clk x 1.98 GHz are 1070.5."""
    long, peak = h100_report(causal=False), peak_of("NVIDIA H200")
    by_datasheet = long.flops() / 989.4e9
    assert (
        renewed_ms(by_datasheet, long, peak)
        == speed_of_light_ms(long, peak)
        == pytest.approx(by_datasheet / 1.082, rel=1e-3)
    )
    assert renewed_ms(today := speed_of_light_ms(long, peak), long, peak) == today
    assert renewed_ms(0.5, long, peak) == 0.5, "of another bound: an empty kernel's, or the memory's"

"""Claims of others: impossible, not consistent with their sizes, above everything measured, or plausible; with the arithmetic."""

import pytest

from kernels.analysis.claims import Claim, Word, judge, span
from kernels.analysis.peaks import Reached, peak_of
from kernels.workload import Workload

H100 = "NVIDIA H100 80GB HBM3"
REPORT = {"batch": 16, "heads": 96, "seq_len": 4096}
"""Sizes of the H100 report, beside the head dim."""
L4_SHAPE = {"batch": 8, "heads": 16, "seq_len": 512, "head_dim": 64}


def attention(sizes, **more):
    return Workload(operation="attention", sizes=sizes | more)


def judged(workload, gpu, ms=None, tflops=None, **known):
    return judge(Claim(workload, peak_of(gpu), ms, tflops), **known)


def result(found, what):
    (step,) = [step for step in found.steps if step.what == what]
    return step.result


CLAIMS = (
    # (workload, GPU, ms, TFLOP/s, verdict, part of the reason), each as its report gives it
    (attention(REPORT, head_dim=128), H100, 12.27, 1075, Word.IMPOSSIBLE, "H100 SXM cannot exceed 1071 TFLOP/s (132 SMs x 4096"),
    (attention(REPORT, head_dim=64), H100, 7.37, None, Word.ABOVE,
     "895.1 TFLOP/s is above everything measured on an H100 SXM so far: 797.5 TFLOP/s"),
    (attention(REPORT, head_dim=64), H100, 50.78, None, Word.PLAUSIBLE, "12.1% of the speed of light"),
    (attention(REPORT, head_dim=128, causal=True), H100, 12.27, None, Word.PLAUSIBLE, "50.2% of the speed of light"),
    (attention({"batch": 2, "heads": 16, "seq_len": 512, "head_dim": 64}, causal=True), "NVIDIA H100 PCIe", 0.543, 45.23,
     Word.CONTRADICTORY, "45.23 TFLOP/s x 0.543 ms = 24.56 GFLOP, but this workload has 1.076 GFLOP "
     "(2.147 GFLOP with masked work): 0.543 ms means 1.981 TFLOP/s"),
    (Workload(operation="nsa", sizes={"batch": 2, "heads": 16, "seq_len": 512, "head_dim": 64, "block_size": 32, "groups": 1,
                                      "selected_blocks": 8, "causal": True, "scale": 0.1}), "NVIDIA H100 PCIe", 0.543, 45.23,
     Word.CONTRADICTORY, "45.23 TFLOP/s x 0.543 ms = 24.56 GFLOP, but this workload has 755.9 MFLOP "
     "(2.147 GFLOP with masked work): 0.543 ms means 1.392 TFLOP/s"),
    (attention(L4_SHAPE), "NVIDIA L4", 0.136, 63.07, Word.PLAUSIBLE, "82.2% of the speed of light"),
    (attention(L4_SHAPE, causal=True), "NVIDIA L4", 0.127, 67.65, Word.PLAUSIBLE, "88.1% of the speed of light"),
    (Workload(operation="gemm", dtype="bfloat16", sizes={"m": 8192, "n": 8192, "k": 8192}), "NVIDIA GeForce RTX 5090",
     None, 240, Word.PLAUSIBLE, "of the speed of light"),
    (attention({"batch": 8, "heads": 16, "seq_len": 512, "head_dim": 64}), "NVIDIA L4", 113.798, 0.08, Word.PLAUSIBLE, ""),
)  # fmt: skip


@pytest.mark.parametrize("workload, gpu, ms, tflops, word, why", CLAIMS)
def test_published_claims(workload, gpu, ms, tflops, word, why):
    found = judged(workload, gpu, ms, tflops)
    assert found.word == word, found.why
    assert why in found.why
    assert found.stands == (word == Word.PLAUSIBLE)


def test_the_rounding_of_a_report_is_no_contradiction():
    """0.08 TFLOP/s stands for anything from 0.075 to 0.085."""
    assert judged(attention(L4_SHAPE), "NVIDIA L4", 113.798, 0.08).word == Word.PLAUSIBLE
    assert judged(attention(L4_SHAPE), "NVIDIA L4", 113.798, 0.06).word == Word.CONTRADICTORY
    assert judged(attention(L4_SHAPE), "NVIDIA L4", 113.798, 0.0801).word == Word.CONTRADICTORY


def test_the_arithmetic_is_shown_step_by_step():
    found = judged(attention(REPORT, head_dim=64), H100, 7.37)
    steps = {step.what: (step.arithmetic, step.result) for step in found.steps}
    assert steps["work"] == ("4 x S^2 x D x B x H = 4 x 4096^2 x 64 x 16 x 96", "6.597 TFLOP")
    assert steps["rate"] == ("6.597 TFLOP / 7.37 ms", "895.1 TFLOP/s")
    assert steps["speed of light"] == ("132 SMs x 4096 FLOP/clk x 1.98 GHz", "1071 TFLOP/s")
    assert steps["datasheet"][1] == "989.4 TFLOP/s"
    assert steps["highest measured so far"][1] == "797.5 TFLOP/s"
    assert steps["bytes, each once"] == ("2.25 GiB read + 768 MiB written", "3 GiB")
    assert all(step.source for step in found.steps if step.what in ("speed of light", "highest measured so far"))


def test_causal_work_is_counted_unmasked_and_shown_beside_its_dense_equivalent():
    found = judged(attention(REPORT, head_dim=128, causal=True), H100, 12.27, 1075)
    assert found.word == Word.PLAUSIBLE
    assert result(found, "rate, unmasked work") == "537.8 TFLOP/s"
    assert result(found, "rate, dense-equivalent") == "1075 TFLOP/s"
    assert found.notes == ["Its TFLOP/s count masked work, too. The verdict is on the unmasked work."]
    assert not any("dense-equivalent" in step.what for step in judged(attention(L4_SHAPE), "L4", 1.0).steps)


def test_a_rate_alone_gives_the_time_and_says_what_it_counts():
    found = judged(attention(REPORT, head_dim=128, causal=True), H100, tflops=1075)
    assert found.word == Word.IMPOSSIBLE
    assert result(found, "time") == "6.138 ms"
    assert "it is 537.6 TFLOP/s of unmasked work" in found.notes[0]


def test_what_was_measured_here_counts_too():
    workload = attention(REPORT, head_dim=64)
    here = Reached(900.0, "run 7")
    assert judged(workload, H100, 7.37, measured=[here]).word == Word.PLAUSIBLE
    found = judged(workload, H100, 7.0, measured=[here, Reached(700.0, "run 3")])
    assert (found.word, "so far: 900 TFLOP/s" in found.why) == (Word.ABOVE, True)
    assert {"run 7"} == {step.source for step in found.steps if step.what == "highest measured so far"}


def test_the_memory_has_limits_too():
    norm = Workload(operation="layer_norm", dtype="float32", sizes={"rows": 65536, "cols": 4096})
    gigabytes = norm.problem.tensor_bytes / 1e6
    assert judged(norm, "NVIDIA H200", gigabytes / 4000).word == Word.PLAUSIBLE
    above = judged(norm, "NVIDIA H200", gigabytes / 4500)
    assert (above.word, "4500 GB/s is above everything measured" in above.why) == (Word.ABOVE, True)
    assert judged(norm, "NVIDIA H200", gigabytes / 4500, bandwidths=[Reached(4600, "here")]).word == Word.PLAUSIBLE
    assert judged(norm, "NVIDIA H200", gigabytes / 5000).word == Word.CACHED


def test_where_nothing_was_measured_only_the_light_counts():
    """Sums in fp16 double the rate of a GeForce card, and no table of them is published."""
    product = Workload(operation="gemm", sizes={"m": 8192, "n": 8192, "k": 8192})
    found = judged(product, "NVIDIA GeForce RTX 4090", tflops=300)
    assert found.word == Word.PLAUSIBLE
    assert "No measured maximum is known for float16 on an RTX 4090." in found.notes
    assert judged(product, "NVIDIA GeForce RTX 4090", tflops=420).word == Word.IMPOSSIBLE


@pytest.mark.parametrize(
    "ms, said",
    [(0.0022451, "2.245 µs"), (0.0999, "99.9 µs"), (0.543, "0.543 ms"), (12.27, "12.27 ms"), (1500, "1.5 s")],
)
def test_times_have_the_unit_that_suits_them(ms, said):
    assert span(ms) == said
    assert judged(attention(L4_SHAPE), "L4", ms).steps[1].arithmetic.endswith(f" / {said}")


def test_a_claim_of_nothing_is_an_error():
    with pytest.raises(ValueError, match="give a time or a rate"):
        judged(attention(L4_SHAPE), "L4")

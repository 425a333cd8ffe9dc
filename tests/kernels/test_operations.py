"""LayerNorm and the matrix product: work and bytes by hand, and kernels of each, right and wrong.

The kernels here are wrong in ways that people's kernels are, or right in ways that differ from PyTorch's: they are the
test of the rule in kernels/analysis/correctness.py, for each dtype. What holds of every operation is tested in
test_every_operation.py.
"""

import math

import pytest

from kernels.analysis.peaks import peak_of
from kernels.analysis.roofline import rates, speed_of_light_ms, why_impossible
from kernels.catalog import get_operation

torch = pytest.importorskip("torch")

from kernels.analysis.correctness import judge  # noqa: E402
from kernels.child.reference import Reference, measure  # noqa: E402
from kernels.dtypes import DTYPES  # noqa: E402
from kernels.operations import gemm, rows  # noqa: E402
from kernels.operations.gemm import Gemm  # noqa: E402
from kernels.operations.layer_norm import LayerNorm  # noqa: E402

H200 = "NVIDIA H200"


# --- right and wrong kernels ------------------------------------------------------------------------------------------


def normalised(x, weight, bias, eps, axis=-1, unbiased=False):
    x, weight, bias = x.float(), weight.float(), bias.float()
    variance, mean = torch.var_mean(x, axis, correction=int(unbiased), keepdim=True)
    return (x - mean) * (variance + eps).rsqrt() * weight + bias


def one_pass(x, weight, bias, eps):
    wide = x.float()
    mean = wide.mean(-1, keepdim=True)
    variance = wide.square().mean(-1, keepdim=True) - mean.square()
    return ((wide - mean) / (variance + eps).sqrt() * weight + bias).to(x.dtype)


def in_float64(x, weight, bias, eps):
    return torch.layer_norm(x.double(), weight.shape, weight.double(), bias.double(), eps).to(x.dtype)


def without_mean(x, weight, bias, eps):
    wide = x.float()
    return (wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt() * weight + bias).to(x.dtype)


def padded_with_zeros(x, weight, bias, eps):
    """Sums over 63 columns, counted as 64."""
    wide = torch.nn.functional.pad(x.float(), (0, 1))
    variance, mean = torch.var_mean(wide, -1, correction=0, keepdim=True)
    return ((x.float() - mean) * (variance + eps).rsqrt() * weight + bias).to(x.dtype)


def with_last(value, right, axis):
    """The right answer, but for its last row or column."""

    def kernel(*args, **options):
        out = right(*args, **options).clone()
        out.select(axis, -1).copy_(out.select(axis, -2) if value == "neighbour" else torch.full((1,), value))
        return out

    return kernel


def eager_norm(x, weight, bias, eps):
    return torch.layer_norm(x, weight.shape, weight, bias, eps)


def term_after_term(x, weight, bias, eps):
    """As a plain loop does it, in two passes."""
    wide = x.float()

    def mean(values):
        total = torch.zeros_like(values[:, :1])
        for column in range(values.shape[1]):
            total += values[:, column : column + 1]
        return total / values.shape[1]

    centred = wide - mean(wide)
    return (centred / (mean(centred.square()) + eps).sqrt() * weight + bias).to(x.dtype)


RIGHT_NORMS = {
    "PyTorch's": eager_norm,
    "in float64": in_float64,
    "variance in one pass": one_pass,
    "term after term": term_after_term,
    "by hand": lambda x, w, b, eps: normalised(x, w, b, eps).to(x.dtype),
}
WRONG_NORMS = {
    "no weight": lambda x, w, b, eps: normalised(x, torch.ones_like(w), b, eps).to(x.dtype),
    "no bias": lambda x, w, b, eps: normalised(x, w, torch.zeros_like(b), eps).to(x.dtype),
    "no mean": without_mean,
    "unbiased variance": lambda x, w, b, eps: normalised(x, w, b, eps, unbiased=True).to(x.dtype),
    "along the other axis": lambda x, w, b, eps: normalised(x, w, b, eps, axis=0).to(x.dtype),
    "padding counted": padded_with_zeros,
    "weights one column off": lambda x, w, b, eps: normalised(x, w.roll(1), b, eps).to(x.dtype),
    "last row not written": with_last(math.nan, eager_norm, 0),
    "last row zero": with_last(0.0, eager_norm, 0),
    "last column its neighbour's": with_last("neighbour", eager_norm, 1),
    "an eps of 0.01": lambda x, w, b, eps: normalised(x, w, b, 1e-2).to(x.dtype),
    "in float32": lambda x, w, b, eps: normalised(x, w, b, eps).double(),
    "a constant": lambda x, w, b, eps: torch.zeros_like(x),
}


def eager_product(a, b):
    return a @ b


def in_slices(a, b, width, sums_in=torch.float32):
    """Slice of K after slice; the running sum is kept in a dtype."""
    total = torch.zeros(a.shape[0], b.shape[1], dtype=sums_in)
    for k in range(0, a.shape[1], width):
        total = (total.float() + a[:, k : k + width].float() @ b[k : k + width].float()).to(sums_in)
    return total.to(a.dtype)


def of_coarser_inputs(a, b):
    """8-bit inputs for a 16-bit product, tf32 for float32: a mantissa cut short."""
    if a.dtype == torch.float32:
        a, b = ((x.view(torch.int32) >> 13 << 13).view(torch.float32) for x in (a, b))
        return a @ b
    return a.to(torch.float8_e4m3fn).to(a.dtype) @ b.to(torch.float8_e4m3fn).to(b.dtype)


def with_tiles_swapped(a, b):
    out = a @ b
    out[:16], out[16:32] = out[16:32].clone(), out[:16].clone()
    return out


RIGHT_PRODUCTS = {
    "PyTorch's": eager_product,
    "in float64": lambda a, b: (a.double() @ b.double()).to(a.dtype),
    "transposed twice": lambda a, b: (b.mT.contiguous() @ a.mT.contiguous()).mT.contiguous(),
    "in slices": lambda a, b: in_slices(a, b, 16),
    "K in four parts": lambda a, b: sum(
        x.float() @ y.float() for x, y in zip(a.chunk(4, 1), b.chunk(4), strict=True)
    ).to(a.dtype),
}
WRONG_PRODUCTS = {
    "B transposed": lambda a, b: a @ b.mT,
    "last term left out": lambda a, b: a[:, :-1] @ b[:-1],
    "last slice twice": lambda a, b: a @ b + a[:, -8:] @ b[-8:],
    "last row not written": with_last(math.nan, eager_product, 0),
    "last row zero": with_last(0.0, eager_product, 0),
    "last column its neighbour's": with_last("neighbour", eager_product, 1),
    "two tiles swapped": with_tiles_swapped,
    "inputs too coarse": of_coarser_inputs,
    "running sum too coarse": lambda a, b: in_slices(a, b, 4, torch.bfloat16 if a.dtype == torch.float32 else a.dtype),
    "1% too large": lambda a, b: a @ b * 1.01,
    "in float64": lambda a, b: a.double() @ b.double(),
    "a constant": lambda a, b: torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype),
}


def norm(dtype):
    return LayerNorm(dtype=dtype, rows=65, cols=63)


def product(dtype):
    return Gemm(dtype=dtype, m=129, n=129, k=129)


def verdict(problem, kernel, seeds=(1, 2, 3)):
    readings = []
    for seed in seeds:
        inputs = problem.inputs("cpu", seed)
        readings.append(
            measure(kernel(*inputs.tensors, **inputs.options), Reference(problem, inputs, seed, thorough=True))
        )
    return judge(readings, problem.dtype)


def cases(problem, kernels):
    return [pytest.param(problem, kernel, id=f"{problem.__name__}, {name}") for name, kernel in kernels.items()]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("problem, kernel", cases(norm, RIGHT_NORMS) + cases(product, RIGHT_PRODUCTS))
def test_right_kernels_are_accepted(problem, kernel, dtype):
    said = verdict(problem(dtype), kernel)
    assert said["correct"], said["why"]


@pytest.mark.parametrize("distribution", ["normal", "uniform", "outliers", "x30"])
@pytest.mark.parametrize("rows, cols", [(64, 1000), (16, 8192)])
def test_a_plain_loop_over_long_rows_is_right_in_float32(rows, cols, distribution):
    """Its chain of roundings is as long as a row; PyTorch adds halves to halves."""
    asked = LayerNorm(dtype="float32", rows=rows, cols=cols)
    for seed in range(3):
        inputs = asked.inputs("cpu", seed, distribution)
        reference = Reference(asked, inputs, seed, True, distribution)
        said = judge([measure(term_after_term(*inputs.tensors, **inputs.options), reference)], "float32")
        assert said["correct"], said["why"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("problem, kernel", cases(norm, WRONG_NORMS) + cases(product, WRONG_PRODUCTS))
def test_wrong_kernels_are_rejected(problem, kernel, dtype):
    said = verdict(problem(dtype), kernel)
    assert not said["correct"] and said["why"]


def test_one_constant_is_right_where_the_answer_is_one():
    """A row of one column is its own mean: what is left is the bias."""
    said = verdict(LayerNorm(dtype="float32", rows=9, cols=1), eager_norm)
    assert said["correct"] and not said["constant"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_large_product_is_sampled_in_float64_and_seen_whole_once(monkeypatch, dtype):
    monkeypatch.setattr(gemm, "FLOAT64_PRODUCTS", 0)
    monkeypatch.setattr(gemm, "CHUNK", 100 * 48)
    problem = Gemm(dtype=dtype, m=600, n=48, k=70)
    inputs = problem.inputs("cpu", 1)
    sample, *chunks = problem.check(inputs, 1, thorough=True)
    assert sample.reference.shape == (256, 48) and sample.reference.dtype == torch.float64
    assert sum(len(chunk.reference) for chunk in chunks) == 600
    assert verdict(problem, eager_product, seeds=[1])["correct"]

    unseen = next(row for row in range(600) if row not in sample.index)

    def wrong_outside_the_sample(a, b):
        out = a @ b
        out[unseen, 3] += 1
        return out

    assert not verdict(problem, wrong_outside_the_sample, seeds=[1])["correct"]
    out = wrong_outside_the_sample(*inputs.tensors)
    assert judge([measure(out, Reference(problem, inputs, 1, thorough=False))], dtype)["correct"]


def test_a_large_layer_norm_is_checked_to_its_last_row(monkeypatch):
    monkeypatch.setattr(rows, "CHUNK", 7 * 63)
    problem = norm("bfloat16")
    assert len(list(problem.check(problem.inputs("cpu", 1), 1, thorough=False))) == 10
    assert verdict(problem, eager_norm)["correct"]
    assert not verdict(problem, WRONG_NORMS["last row zero"])["correct"]


# --- sizes, work, bytes -----------------------------------------------------------------------------------------------


def test_work_and_bytes_of_a_layer_norm():
    problem = LayerNorm(dtype="bfloat16", rows=16384, cols=4096)
    assert problem.flops() == 536_870_912
    assert problem.bytes_moved() == (134_234_112, 134_217_728)  # x 134217728, weight and bias 8192 each
    assert LayerNorm(dtype="float32", rows=3, cols=5).bytes_moved() == (100, 60)
    assert problem.unit == "GB/s" and problem.label() == "16384 x 4096"
    assert speed_of_light_ms(problem, peak_of(H200)) == pytest.approx(0.0559275)  # 268451840 B at 4800 GB/s
    assert rates(problem, 0.1, None)["gb_per_s"] == pytest.approx(2684.5184)


def test_work_and_bytes_of_a_product():
    problem = Gemm(dtype="bfloat16", m=8192, n=8192, k=8192)
    assert problem.flops() == 1_099_511_627_776
    assert problem.bytes_moved() == (268_435_456, 134_217_728)
    assert Gemm(dtype="float32", m=2, n=3, k=5).flops() == 60
    assert Gemm(dtype="float32", m=2, n=3, k=5).bytes_moved() == (100, 24)
    assert problem.unit == "TFLOP/s" and problem.label() == "M=8192 N=8192 K=8192"
    assert speed_of_light_ms(problem, peak_of(H200)) == pytest.approx(1.027073, rel=1e-5)  # at 1070.5 TFLOP/s
    assert "cannot exceed" in why_impossible(problem, 1.0, peak_of(H200), True, 0)
    assert why_impossible(problem, 1.39, peak_of(H200), True, 0) == ""


def test_a_library_is_known_by_its_kernels_names():
    assert Gemm.describe_ran("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NNT") == "cuBLAS"
    assert get_operation("attention").describe_ran("cudnn_generated_fort_native_sdpa_sm90") == "cuDNN"
    assert LayerNorm.describe_ran("vectorized_layer_norm_kernel") == ""

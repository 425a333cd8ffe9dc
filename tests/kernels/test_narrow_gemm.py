"""Products of tf32 and of fp8: work by hand, right and wrong kernels, and triton-narrow-gemm in the interpreter and compiled for
Hopper.
"""

import pytest
from compiling import compiled
from interpreter import WHOLE_GRIDS, interpreting, serve
from pydantic import ValidationError
from selection import telling

from kernels.analysis.peaks import peak_of
from kernels.analysis.roofline import speed_of_light_ms, why_impossible
from kernels.catalog import get_kernel
from kernels.operations.attention import Attention
from kernels.operations.gemm import FP8, TF32, Gemm
from kernels.workload import Workload

STORED = {TF32: {}, FP8: {"trans_b": True}}
in_both = pytest.mark.parametrize("dtype", [TF32, FP8])


def problem(dtype, **sizes):
    return Gemm(**{"m": 64, "n": 48, "k": 4096, "dtype": dtype} | STORED.get(dtype, {}) | sizes)


# --- sizes, work and limits -------------------------------------------------------------------------------------------


def test_work_and_bytes_by_hand():
    """fp8: a byte for each element of A and B, two for each of the product, which is in bfloat16."""
    assert problem(TF32).bytes_moved() == (4 * (64 + 48) * 4096, 4 * 64 * 48)
    assert problem(FP8).bytes_moved() == ((64 + 48) * 4096, 2 * 64 * 48)
    assert problem(FP8).flops() == problem(TF32).flops() == 2 * 64 * 48 * 4096
    assert Workload(operation="gemm", dtype=TF32, sizes={"m": 2, "n": 3, "k": 5}).label == "gemm tf32 M=2 N=3 K=5"


def test_inputs_are_what_libraries_take():
    torch = pytest.importorskip("torch")
    a, b = problem(FP8).inputs("cpu", 0, "x30").tensors
    assert a.dtype == b.dtype == torch.float8_e4m3fn and b.shape == (48, 4096) and a.float().abs().max() <= 448
    assert a.float().isfinite().all() and problem(FP8).inputs("cpu", 0).options == {"trans_b": True}
    inputs = problem(TF32).inputs("cpu", 0)
    assert inputs.tensors[0].dtype == torch.float32 and inputs.options == {"tf32": True}
    assert torch.equal(inputs.tensors[0], problem("float32").inputs("cpu", 0).tensors[0])


@pytest.mark.parametrize(
    "sizes, said",
    [
        ({"batch": 2}, "a batch is 1"),
        ({"trans_b": False}, "B transposed"),
        ({"trans_a": True}, "A is stored as it is"),
        ({"k": 4097}, "multiples of 16"),
        ({"n": 1}, "multiples of 16"),
    ],
    ids=str,
)
def test_fp8_that_no_library_takes_is_refused_with_a_sentence(sizes, said):
    with pytest.raises(ValidationError, match=said):
        problem(FP8, **sizes)


@in_both
def test_other_operations_and_kernels_have_neither(dtype):
    with pytest.raises(ValidationError, match=r"is not measured in (tf32|fp8), only in fp16, bf16, fp32"):
        Attention(batch=1, heads=1, seq_len=1, head_dim=64, dtype=dtype)
    sizes = problem(dtype).model_dump()
    for kernel in ("compiled", "triton-gemm", "triton-batched-gemm", "cuda-gemm"):
        assert get_kernel("gemm", kernel).why_not_for(dtype, sizes) == f"does not support {dtype}"
    for kernel in ("eager", "triton-narrow-gemm"):
        assert get_kernel("gemm", kernel).why_not_for(dtype, sizes) == ""
    assert get_kernel("gemm", "triton-narrow-gemm").why_not_for("float32", sizes) == "does not support float32"


def test_the_speed_of_light_is_that_of_the_unit():
    """An H200 has 132 SMs at 1.98 GHz: 4,096 FLOP a clock in fp16, half in tf32, twice in fp8. A scaled fp16
    product is as exact as tf32."""
    hopper, ampere = peak_of("NVIDIA H200"), peak_of("NVIDIA A100-SXM4-80GB")
    assert (hopper.light(FP8).unit, hopper.light(TF32).unit) == ("fp8", "fp16")
    assert hopper.light(FP8).tflops == 2 * hopper.light(TF32).tflops == pytest.approx(2141, abs=1)
    assert (hopper.tflops(FP8), hopper.tflops(TF32), hopper.tflops("float32")) == (1979, 495, 67)
    assert ampere.light(FP8).unit == "fp16" and ampere.tflops(FP8) == 312, "it has no fp8"
    square = Gemm(m=8192, n=8192, k=8192, trans_b=True, dtype=FP8)
    assert speed_of_light_ms(square, hopper) == pytest.approx(0.5136, abs=1e-3)
    assert not why_impossible(square, 0.52, hopper, False, 0)
    assert "2141" in why_impossible(square, 0.5, hopper, False, 0)


# --- right and wrong kernels ------------------------------------------------------------------------------------------


def cut(x, bits):
    """float32 without its last bits."""
    torch = pytest.importorskip("torch")
    return x.view(torch.int32).bitwise_and(-(2**bits)).view(torch.float32)


def rounded(x, bits):
    """float32 rounded to the nearest, or to even, by `bits` bits."""
    torch = pytest.importorskip("torch")
    whole = x.view(torch.int32)
    return (whole + 2 ** (bits - 1) - 1 + ((whole >> bits) & 1)).bitwise_and(-(2**bits)).view(torch.float32)


def in_turn(kept, step):
    """fp8 products added with few bits, `step` terms at a time."""

    def product(a, b):
        sums = a.float().new_zeros(1)
        for start in range(0, a.shape[1], step):
            sums = cut(sums + of_fp8(a[:, start : start + step], b[:, start : start + step]), kept)
        return sums.bfloat16()

    return product


def in_slices(a, b):
    """fp8 products added with 14 bits in slices of 128 terms, and these in float32."""
    starts = range(0, a.shape[1], 128)
    return sum(cut(of_fp8(a[:, start : start + 128], b[:, start : start + 128]), 9) for start in starts).bfloat16()


def of_fp8(a, b):
    return a.float() @ b.float().mT


RIGHT = {
    TF32: {
        "float32": lambda a, b: a @ b,
        "tf32, cut off": lambda a, b: cut(a, 13) @ cut(b, 13),
        "tf32, rounded": lambda a, b: rounded(a, 13) @ rounded(b, 13),
        "tf32, one of each": lambda a, b: cut(a, 13) @ rounded(b, 13),
        "fp16": lambda a, b: a.half().float() @ b.half().float(),
    },
    FP8: {
        "sums in float32": lambda a, b: of_fp8(a, b).bfloat16(),
        "14 bits of each slice": in_slices,
        "inputs in float16": lambda a, b: of_fp8(a.half(), b.half()).bfloat16(),
    },
}
WRONG = {
    TF32: {
        "bf16": lambda a, b: a.bfloat16().float() @ b.bfloat16().float(),
        "one bit less, cut off": lambda a, b: cut(a, 14) @ cut(b, 14),
        "the product in bf16": lambda a, b: (a @ b).bfloat16().float(),
        "the product in fp16": lambda a, b: (a @ b).half().float(),
        "the last term left out": lambda a, b: a[:, :-1] @ b[:-1],
        "a scale 1% off": lambda a, b: 1.01 * (a @ b),
    },
    FP8: {
        "sums in bf16": in_turn(16, 32),
        "all sums in 14 bits": in_turn(10, 32),
        "the product in fp8": lambda a, b: of_fp8(a, b).clamp(-448, 448).to(a.dtype).bfloat16(),
        "a scale 0.4% off": lambda a, b: (1.004 * of_fp8(a, b)).bfloat16(),
        "the last term left out": lambda a, b: of_fp8(a[:, :-1], b[:, :-1]).bfloat16(),
        "B as it is stored": lambda a, b: (a.float() @ b.float().reshape(4096, 48)).bfloat16(),
    },
}
RIGHTS = [(dtype, name) for dtype, kernels in RIGHT.items() for name in kernels]
WRONGS = [(dtype, name) for dtype, kernels in WRONG.items() for name in kernels]


def verdict(asked, kernel, checks=5):
    from kernels.analysis.correctness import judge
    from kernels.child.reference import Reference, measure

    readings = []
    for seed in range(checks):
        kind = asked.distributions[seed % len(asked.distributions)]
        inputs = asked.inputs("cpu", seed, kind)
        out = kernel(*inputs.tensors, **inputs.options)
        readings.append(measure(out, Reference(asked, inputs, seed, seed == 0, kind)))
    return judge(readings, asked.dtype)


def plain(kernel):
    """The kernel of two tensors, whatever it is told."""
    return lambda a, b, **options: kernel(a, b)


@pytest.mark.parametrize("dtype, name", RIGHTS)
@pytest.mark.parametrize("sizes", [{}, {"m": 1, "n": 128, "k": 64}, {"m": 33, "n": 64, "k": 16}], ids=str)
def test_right_kernels_are_accepted(dtype, name, sizes):
    pytest.importorskip("torch")
    said = verdict(problem(dtype, **sizes), plain(RIGHT[dtype][name]))
    assert said["correct"], said["why"]


@pytest.mark.parametrize("dtype, name", WRONGS)
def test_wrong_kernels_are_rejected(dtype, name):
    pytest.importorskip("torch")
    said = verdict(problem(dtype), plain(WRONG[dtype][name]))
    assert not said["correct"] and said["why"]


def test_in_float32_tf32_is_wrong():
    pytest.importorskip("torch")
    assert not verdict(problem("float32"), plain(RIGHT[TF32]["tf32, rounded"]))["correct"]


@in_both
def test_large_products_are_sampled(dtype, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr("kernels.operations.gemm.FLOAT64_PRODUCTS", 0)
    asked = problem(dtype, m=300, k=64)
    exact = [piece.reference.dtype for piece in asked.check(asked.inputs("cpu", 1), 1, thorough=True)]
    assert exact == [torch.float64, torch.float64 if dtype == TF32 else torch.float32]
    assert verdict(asked, plain(next(iter(RIGHT[dtype].values()))))["correct"]


@in_both
def test_eager_is_right_and_leaves_pytorch_as_it_was(dtype):
    torch = pytest.importorskip("torch")
    from kernels.operations.gemm.eager import eager

    before = torch.backends.cuda.matmul.fp32_precision
    said = verdict(problem(dtype), eager)
    assert said["correct"], said["why"]
    assert torch.backends.cuda.matmul.fp32_precision == before


# --- triton-narrow-gemm -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def interpreter():
    yield from interpreting(__file__)


@pytest.mark.parametrize("trans_a", [False, True], ids=["A", "A.T"])
@pytest.mark.parametrize("trans_b", [False, True], ids=["B", "B.T"])
@pytest.mark.parametrize(
    "sides",
    telling([(64, 64, 64), (1, 129, 65), (200, 70, 130), (63, 1, 1)], (200, 70, 130), (63, 1, 1), why=WHOLE_GRIDS),
)
def test_it_is_right_in_tf32_however_matrices_are_stored(interpreter, sides, trans_a, trans_b):
    m, n, k = sides
    found = interpreter.run(dtype=TF32, m=m, n=n, k=k, trans_a=trans_a, trans_b=trans_b)
    assert "raised" not in found, found["raised"]
    assert found["correct"], found["why"]


@pytest.mark.parametrize("sides", [(64, 64, 64), (1, 16, 16), (200, 80, 144)])
def test_it_is_right_in_fp8(interpreter, sides):
    m, n, k = sides
    found = interpreter.run(dtype=FP8, m=m, n=n, k=k, trans_b=True)
    assert "raised" not in found, found["raised"]
    assert found["correct"], found["why"]


@in_both
def test_it_uses_the_tensor_cores_of_its_dtype(dtype):
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from kernels.operations.gemm import triton_narrow_gemm as module

    stored = torch.float8_e4m3fn if dtype == FP8 else torch.float32
    a, b = (torch.empty(1024, 1024, dtype=stored, device="meta") for _ in "ab")
    (made,) = compiled(module, lambda: module.triton_narrow_gemm(a, b, trans_b=True, tf32=dtype == TF32))
    assert "wgmma" in made.asm["ptx"] and ("e4m3" if dtype == FP8 else "tf32") in made.asm["ptx"]
    assert "cp.async" in made.asm["ptx"]


@pytest.mark.parametrize("shared_bytes", [101_376, 232_448])
@pytest.mark.parametrize("fp8", [False, True])
def test_every_tile_fits_the_shared_memory_of_its_device(shared_bytes, fp8):
    pytest.importorskip("triton")
    from kernels.operations.gemm import triton_narrow_gemm as module

    for side in (1, 64, 8192):
        rows, columns, terms, _, stages = module.tile(side, side, fp8, 132, shared_bytes)
        assert (rows + columns) * terms * (1 if fp8 else 4) * stages <= shared_bytes - 1024


def run_case(**sizes):
    """Runs the kernel on a few checks and judges it by the instrument's rule."""
    from kernels.operations.gemm import triton_narrow_gemm as module

    said = verdict(Gemm(**sizes), module.triton_narrow_gemm, checks=2)
    return {"correct": said["correct"], "why": said["why"]}


if __name__ == "__main__":
    serve(run_case)

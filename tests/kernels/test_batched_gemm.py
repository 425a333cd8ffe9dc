"""Products of a batch, and of matrices that are stored transposed: work by hand, right and wrong kernels, triton-batched-gemm
in the interpreter and compiled for Hopper.
"""

import pytest
from compiling import compiled
from interpreter import WHOLE_GRIDS, interpreting, serve
from selection import telling

from kernels.catalog import get_kernel
from kernels.operations.gemm import Gemm
from kernels.workload import Workload

SIDES = {"m": 70, "n": 90, "k": 80}
STORED = [(False, False), (True, False), (False, True), (True, True)]
NAMES = ["A B", "A.T B", "A B.T", "A.T B.T"]
stored = pytest.mark.parametrize("trans_a, trans_b", STORED, ids=NAMES)


def problem(**sizes):
    return Gemm(**SIDES | sizes)


# --- sizes and work ---------------------------------------------------------------------------------------------------


def test_work_and_bytes_by_hand():
    """Scores of 32 heads of 4,096 queries and keys of 128 numbers: Q K^T."""
    scores = Gemm(dtype="bfloat16", batch=32, m=4096, n=4096, k=128, trans_b=True)
    assert scores.flops() == 2 * 32 * 4096 * 4096 * 128 == 137_438_953_472
    assert scores.bytes_moved() == (32 * 8192 * 128 * 2, 32 * 4096 * 4096 * 2)
    assert scores.label() == "B=32 M=4096 N=4096 K=128 B.T"
    assert scores.flops_formula() == ("2 x B x M x N x K", "2 x 32 x 4096 x 4096 x 128")
    assert Gemm(m=2, n=3, k=5, trans_a=True).flops_formula() == ("2 x M x N x K", "2 x 2 x 3 x 5")


@pytest.mark.parametrize("same", [{"batch": 1}, {"batch": ""}, {"batch": None}, {"trans_a": False}], ids=str)
def test_stored_workloads_keep_their_key(same):
    plain = Workload(operation="gemm", sizes=SIDES)
    assert Workload(operation="gemm", sizes=SIDES | same) == plain and plain.sizes == SIDES
    for other in ({"batch": 2}, {"trans_a": True}, {"trans_b": True}):
        asked = Workload(operation="gemm", sizes=SIDES | other)
        assert asked.key != plain.key and asked.sizes == SIDES | other


@stored
@pytest.mark.parametrize("batch", [1, 3])
def test_values_do_not_depend_on_how_they_are_stored(batch, trans_a, trans_b):
    torch = pytest.importorskip("torch")
    asked = problem(batch=batch, trans_a=trans_a, trans_b=trans_b)
    a, b = asked.inputs("cpu", 3).tensors
    plain_a, plain_b = problem(batch=batch).inputs("cpu", 3).tensors
    assert a.is_contiguous() and b.is_contiguous()
    assert torch.equal(a.mT if trans_a else a, plain_a) and torch.equal(b.mT if trans_b else b, plain_b)
    told = {"trans_a": trans_a, "trans_b": trans_b}
    assert asked.inputs("cpu", 3).options == {name: True for name, value in told.items() if value}
    assert asked.output_like(asked.inputs("cpu", 3))[0] == ((batch,) if batch > 1 else ()) + (70, 90)


def test_a_kernel_that_takes_no_transposes_gets_no_such_workload():
    plain = get_kernel("gemm", "triton-gemm")
    sizes = problem().model_dump()
    assert plain.why_not_for("float16", sizes) == ""
    assert plain.why_not_for("float16", sizes | {"trans_b": True}) == (
        "does not support trans_b=True: it has no argument of this name"
    )
    assert plain.why_not_for("float16", sizes | {"batch": 2}) == "does not support batch=2, only 1"
    assert "trans_a" in get_kernel("gemm", "cuda-gemm").why_not_for("float16", sizes | {"trans_a": True})
    assert get_kernel("gemm", "eager").why_not_for("float16", sizes | {"trans_a": True, "batch": 9}) == ""


# --- right and wrong kernels ------------------------------------------------------------------------------------------


def times(a, b, trans_a=False, trans_b=False):
    return (a.mT if trans_a else a) @ (b.mT if trans_b else b)


RIGHT = {
    "views": times,
    "copies": lambda a, b, trans_a=False, trans_b=False: times(
        a.mT.contiguous() if trans_a else a, b.mT.contiguous() if trans_b else b
    ),
    "the transpose of the product": lambda a, b, trans_a=False, trans_b=False: times(
        b, a, not trans_b, not trans_a
    ).mT.contiguous(),
}
WRONG = {
    "A as it is stored": lambda a, b, trans_a=False, trans_b=False: times(a, b, False, trans_b),
    "B as it is stored": lambda a, b, trans_a=False, trans_b=False: times(a, b, trans_a, False),
    "both the other way": lambda a, b, trans_a=False, trans_b=False: times(a, b, not trans_a, not trans_b),
    "the product transposed": lambda a, b, trans_a=False, trans_b=False: times(a, b, trans_a, trans_b).mT.contiguous(),
    "A backwards": lambda a, b, trans_a=False, trans_b=False: times(a.flip(-1), b, trans_a, trans_b),
    "the first pair for all": lambda a, b, trans_a=False, trans_b=False: times(
        a, b[:1].expand(b.shape), trans_a, trans_b
    ),
    "pairs one off": lambda a, b, trans_a=False, trans_b=False: times(a, b.roll(1, 0), trans_a, trans_b),
    "the last pair left out": lambda a, b, trans_a=False, trans_b=False: times(
        a * (a.new_tensor([1.0] * (len(a) - 1) + [0.0]))[:, None, None], b, trans_a, trans_b
    ),
}


def verdict(asked, kernel):
    from kernels.analysis.correctness import judge
    from kernels.child.reference import Reference, measure

    inputs = asked.inputs("cpu", 5)
    out = kernel(*inputs.tensors, **inputs.options)
    return judge([measure(out, Reference(asked, inputs, 5, thorough=True))], asked.dtype)


@stored
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("kernel", RIGHT.values(), ids=RIGHT)
def test_right_kernels_are_accepted(kernel, dtype, batch, trans_a, trans_b):
    pytest.importorskip("torch")
    said = verdict(problem(batch=batch, trans_a=trans_a, trans_b=trans_b, dtype=dtype), kernel)
    assert said["correct"], said["why"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("kernel", WRONG.values(), ids=WRONG)
def test_wrong_kernels_are_rejected(kernel, dtype):
    """Square matrices: no shape gives a wrong one away."""
    pytest.importorskip("torch")
    said = verdict(problem(batch=3, m=64, n=64, k=64, trans_a=True, trans_b=True, dtype=dtype), kernel)
    assert not said["correct"] and said["why"]


def test_a_large_batch_is_sampled_and_seen_whole_once(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr("kernels.operations.gemm.FLOAT64_PRODUCTS", 0)
    asked = problem(batch=20, trans_b=True)
    inputs = asked.inputs("cpu", 1)
    pieces = list(asked.check(inputs, 1, thorough=True))
    assert len(pieces) == 8 + 20
    assert [piece.reference.dtype for piece in pieces] == [torch.float64] * 8 + [torch.float32] * 20
    assert verdict(asked, times)["correct"]
    for pair in (0, 19):

        def wrong(a, b, trans_b, pair=pair):
            out = times(a, b, trans_b=trans_b)
            out[pair, 3, 4] += 5
            return out

        assert not verdict(asked, wrong)["correct"]


# --- triton-batched-gemm ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def interpreter():
    yield from interpreting(__file__)


@stored
@pytest.mark.parametrize("dtype", telling(["float16", "bfloat16"], "bfloat16", why=WHOLE_GRIDS))
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    "sides",
    telling([(64, 64, 64), (1, 129, 65), (200, 70, 130), (63, 1, 1)], (200, 70, 130), (63, 1, 1), why=WHOLE_GRIDS),
)
def test_it_is_right_however_matrices_are_stored(interpreter, sides, batch, dtype, trans_a, trans_b):
    m, n, k = sides
    found = interpreter.run(batch=batch, m=m, n=n, k=k, trans_a=trans_a, trans_b=trans_b, dtype=dtype)
    assert "raised" not in found, found["raised"]
    assert found["correct"], found["why"]


@stored
def test_its_loads_overlap_with_products(trans_a, trans_b):
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from kernels.operations.gemm import triton_batched_gemm as module

    a, b = (torch.empty(8, 1024, 1024, dtype=torch.bfloat16, device="meta") for _ in "ab")
    (made,) = compiled(module, lambda: module.triton_batched_gemm(a, b, trans_a=trans_a, trans_b=trans_b))
    assert "cp.async" in made.asm["ptx"] and "wgmma" in made.asm["ptx"]


def run_case(**sizes):
    """Runs the kernel once and judges it by the instrument's rule."""
    from kernels.operations.gemm import triton_batched_gemm as module

    said = verdict(Gemm(**sizes), module.triton_batched_gemm)
    return {"correct": said["correct"], "why": said["why"]}


if __name__ == "__main__":
    serve(run_case)

"""triton-overlapped and triton-persistent in the interpreter: right at the lengths, head dims and windows that break tiles.
And compiled for Hopper without a GPU: loads are asynchronous.
"""

import importlib

import pytest
from compiling import compiled
from interpreter import WHOLE_GRIDS, interpreting, serve
from selection import telling

LENGTHS = (1, 63, 65, 127, 129, 200, 300)
STAGES = ("triton_overlapped", "triton_persistent")
FOR_HOPPER = "compiling for Hopper: `make test` takes one of each"


@pytest.fixture(scope="module")
def interpreter():
    yield from interpreting(__file__)


def assert_right(found):
    assert "raised" not in found, found["raised"]
    assert found["correct"], found["why"]


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("dtype", telling(["float16", "bfloat16"], "bfloat16", why=WHOLE_GRIDS))
@pytest.mark.parametrize("head_dim", telling([64, 128], 64, why=WHOLE_GRIDS))
@pytest.mark.parametrize("seq_len", telling(LENGTHS, 1, 129, 200, why=WHOLE_GRIDS))
def test_is_right_at_edge_lengths(interpreter, name, seq_len, head_dim, causal, dtype):
    assert_right(interpreter.run(name=name, seq_len=seq_len, head_dim=head_dim, causal=causal, dtype=dtype))


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("window", telling([1, 2, 63, 64, 65, 100, 199, 299], 1, 65, 199, why=WHOLE_GRIDS))
def test_does_windows(interpreter, name, window, causal):
    for seq_len in (300, 200):
        assert_right(interpreter.run(name=name, seq_len=seq_len, window=window, causal=causal, scale=0.2))


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("head_dim", telling([16, 40, 80, 96, 192, 256], 40, 192, why=WHOLE_GRIDS))
def test_does_every_head_dim(interpreter, name, head_dim):
    assert_right(interpreter.run(name=name, seq_len=129, head_dim=head_dim, causal=True, window=50))


@pytest.mark.parametrize("name", STAGES)
def test_heads_share_keys_and_values(interpreter, name):
    for causal in (False, True):
        assert_right(interpreter.run(name=name, batch=2, heads=6, kv_heads=2, seq_len=150, causal=causal))


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("distribution", ["x30", "near_constant", "outliers"])
def test_is_right_on_unusual_inputs(interpreter, name, distribution):
    assert_right(interpreter.run(name=name, seq_len=150, causal=True, distribution=distribution))


@pytest.mark.parametrize("name", STAGES)
def test_a_window_of_another_size_is_seen(interpreter, name):
    found = interpreter.run(name=name, seq_len=200, window=50, causal=True, told=51)
    assert not found["correct"]


@pytest.mark.parametrize("name", STAGES)
def test_says_what_it_cannot_do(interpreter, name):
    for head_dim in (8, 44, 264):
        assert (
            f"Unsupported: head_dim is {head_dim}" in interpreter.run(name=name, seq_len=8, head_dim=head_dim)["raised"]
        )


# --- compiled for a GPU -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head_dim", telling([64, 96, 128, 256], 128, why=FOR_HOPPER))
@pytest.mark.parametrize("causal", telling([False, True], True, why=FOR_HOPPER), ids=["full", "causal"])
@pytest.mark.parametrize("window", telling([0, 512], 512, why=FOR_HOPPER))
@pytest.mark.parametrize("name", STAGES)
def test_loads_overlap_with_products(name, window, causal, head_dim):
    (made,) = launched(name, head_dim, causal, window)
    assert "cp.async" in made.asm["ptx"] and "wgmma" in made.asm["ptx"]
    assert made.metadata.shared <= 227 * 1024


def launched(name, head_dim, causal, window):
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    module = importlib.import_module(f"kernels.operations.attention.{name}")
    q, k = (torch.empty(1, heads, 2048, head_dim, dtype=torch.bfloat16, device="meta") for heads in (4, 2))
    call = getattr(module, name)
    return compiled(module, lambda: call(q, k, k, causal=causal, scale=0.1, window=window))


# --- in the child -----------------------------------------------------------------------------------------------------


def run_case(name, told=None, distribution="normal", **sizes):
    """Runs a kernel once and judges it by the instrument's rule. told: another window than the right one."""
    from kernels.analysis.correctness import judge
    from kernels.child.reference import Reference, measure
    from kernels.operations.attention import Attention

    call = getattr(importlib.import_module(f"kernels.operations.attention.{name}"), name)
    problem = Attention(**{"batch": 1, "heads": 2, "head_dim": 64} | sizes)
    inputs = problem.inputs("cpu", 3, distribution)
    out = call(*inputs.tensors, **inputs.options | ({"window": told} if told else {}))
    said = judge([measure(out, Reference(problem, inputs, 3, True, distribution))], problem.dtype)
    return {"correct": said["correct"], "why": said["why"]}


if __name__ == "__main__":
    serve(run_case)

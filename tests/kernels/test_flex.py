"""flex and compiled-sdpa on a CPU, not compiled: what they ask of PyTorch is attention in this window."""

import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention.flex_attention import flex_attention  # noqa: E402

from kernels.analysis.correctness import judge  # noqa: E402
from kernels.child.reference import Reference, measure  # noqa: E402
from kernels.operations.attention import Attention, compiled_sdpa, flex  # noqa: E402


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("window", [0, 1, 21])
@pytest.mark.parametrize("kernel", ["flex", "compiled_sdpa"])
def test_it_asks_for_this_attention(monkeypatch, kernel, window, causal):
    monkeypatch.setattr(flex, "_compiled", flex_attention)
    monkeypatch.setattr(compiled_sdpa, "_compiled", compiled_sdpa._attention)
    call = getattr({"flex": flex, "compiled_sdpa": compiled_sdpa}[kernel], kernel)
    for seq_len in (1, 65, 200):
        problem = Attention(
            batch=2, heads=4, kv_heads=2, seq_len=seq_len, head_dim=40, causal=causal, window=window, scale=0.2,
            dtype="bfloat16",
        )  # fmt: skip
        inputs = problem.inputs("cpu", 3)
        out = call(*inputs.tensors, **inputs.options)
        said = judge([measure(out, Reference(problem, inputs, 3, True))], problem.dtype)
        assert said["correct"], (seq_len, said["why"])


def test_a_block_mask_is_made_once_for_a_shape():
    flex._blocks.cache_clear()
    first = flex._blocks(256, True, 0, "cpu")
    assert flex._blocks(256, True, 0, "cpu") is first
    assert flex._blocks(256, True, 100, "cpu") is not first
    assert flex._blocks(256, False, 0, "cpu") is None
    assert flex._blocks(1024, True, 100, "cpu").sparsity() > 70

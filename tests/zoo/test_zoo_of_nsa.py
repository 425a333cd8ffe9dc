"""Native sparse attention: kernels of the zoo that read other keys than they should fail, and right ones pass. On the CPU."""

import pytest
from numerics import judged_by_outputs
from selection import telling

pytest.importorskip("torch")

from kernels.operations.nsa import NativeSparseAttention

SIZES = {"batch": 1, "heads": 4, "groups": 2, "seq_len": 125, "head_dim": 32, "block_size": 16, "selected_blocks": 4}
RIGHT = ["eager", "token-by-token", "in-order-of-position", "online", "by-a-mask"]
PLAIN = [
    "sentinel-is-block-0", "stops-at-the-first-sentinel", "last-slot-left-out", "blocks-of-the-first-group",
    "blocks-of-the-token-before", "padding-is-a-key", "mean-where-no-key-is", "nan-where-no-key-is", "heads-in-turn",
]  # fmt: skip
"""Wrong whatever the sizes are."""
CASES = {
    "plain": ({}, PLAIN),
    "causal": ({"causal": True}, [*PLAIN, "not-causal-within-a-block", "sees-one-key-more"]),
    "scale": ({"causal": True, "scale": 0.1}, ["usual-scale", "last-slot-left-out"]),
    "window": ({"window": 20}, ["window-one-key-short", "one-softmax-for-both", "stops-at-the-first-sentinel"]),
    "causal window": ({"causal": True, "window": 20}, ["window-one-key-short", "one-softmax-for-both"]),
}
WHY = "numerics of sparse attention: `make test` checks them in bfloat16"


@pytest.mark.parametrize("dtype", telling(("float16", "bfloat16", "float32"), "bfloat16", why=WHY))
@pytest.mark.parametrize("case", CASES)
def test_wrong_kernels_fail_and_right_ones_pass(case, dtype):
    more, wrong = CASES[case]
    found = judged_by_outputs([*RIGHT, *wrong], NativeSparseAttention(dtype=dtype, **SIZES | more))
    assert {kernel: found[kernel]["why"] for kernel in RIGHT if not found[kernel]["correct"]} == {}
    assert [kernel for kernel in wrong if found[kernel]["correct"]] == []

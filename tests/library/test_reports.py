"""Outputs of the providers of a perf_report file, compared: what is too far away, and what honest kernels do."""

import pytest
import torch

from kernels.inprocess.reports import _difference


def rounded_to_tf32(x):
    """Cut off, which is worse than rounded."""
    return (x.view(torch.int32) & -0x2000).view(torch.float32)


def drawn(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3)).to(dtype)


def one_row(out, factor):
    out = out.clone()
    out[-1] *= factor
    return out


def one_element(out, more):
    out = out.clone()
    out[5, 7] += more
    return out


SOFTMAX, LONG = drawn(128, 256).softmax(-1), drawn(1024, 256).softmax(-1)


@pytest.mark.parametrize(
    "out, right, why",
    [
        (SOFTMAX * 1.004, SOFTMAX, "by 0.004 of its norm"),
        (one_row(LONG, 1.05), LONG, "it differs from torch in one row by 0.05 of its norm; 0.012 is allowed"),
        (one_element(drawn(256, 1024), 0.2), drawn(256, 1024), "in one element by "),
        (drawn(64, 64).relu().half(), drawn(64, 64).relu(), "its output is of torch.float16, that of torch of torch.f"),
        (drawn(64, 64, dtype=torch.bfloat16) * 1.03, drawn(64, 64, dtype=torch.bfloat16), "of its norm"),
        (one_row(drawn(64, 64).argmax(-1), 2), drawn(64, 64).argmax(-1), "of its norm; 0 is allowed"),
        (drawn(64, 64) + torch.nan, drawn(64, 64), "elements are NaN or Inf; the correct values are finite"),
    ],
)
def test_what_is_too_far_away_is_named(out, right, why):
    """Dtypes were not compared, 0.4% were allowed, and one row of 128 could be 5% away."""
    assert why in _difference(out, right, "torch")


A, B = drawn(256, 512), drawn(512, 256)


@pytest.mark.parametrize(
    "out, right",
    [
        (SOFTMAX.double().float(), SOFTMAX),
        (rounded_to_tf32(A) @ rounded_to_tf32(B), A @ B),
        (A.flip(1) @ B.flip(0), A @ B),
        ((A.half() @ B.half()), (A.half().double() @ B.half().double()).half()),
        ((A.bfloat16() @ B.bfloat16()), (A.bfloat16().double() @ B.bfloat16().double()).bfloat16()),
        (drawn(64, 256).half().exp() / drawn(64, 256).half().exp().sum(-1, keepdim=True), drawn(64, 256).half().softmax(-1)),
        (
            drawn(64, 256).bfloat16().exp() / drawn(64, 256).bfloat16().exp().sum(-1, keepdim=True),
            drawn(64, 256).bfloat16().softmax(-1),
        ),
        (torch.cat([A, A[:1] * 1e-9]) @ B, torch.cat([A, -A[:1] * 1e-9]) @ B),
        (torch.zeros(4, 32), torch.zeros(4, 32)),
        (torch.zeros(0, 32), torch.zeros(0, 32)),
        (torch.tensor(2.0), torch.tensor(2.0)),
    ],
    ids=["same", "tf32", "another order", "fp16", "bf16", "softmax in fp16", "softmax in bf16", "a row near 0", "zeros",
         "empty", "a number"],
)  # fmt: skip
def test_what_honest_kernels_do_is_allowed(out, right):
    assert _difference(out, right, "torch") == ""

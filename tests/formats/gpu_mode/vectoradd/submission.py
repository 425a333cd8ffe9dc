#!POPCORN leaderboard vectoradd
#!POPCORN gpu H100
import torch
import triton
import triton.language as tl
from task import input_t, output_t


@triton.jit
def add(a, b, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(a + at, mask=at < n) + tl.load(b + at, mask=at < n), mask=at < n)


def custom_kernel(data: input_t) -> output_t:
    a, b = data
    out = torch.empty_like(a)
    add[(triton.cdiv(a.numel(), 1024),)](a, b, out, a.numel(), BLOCK=1024)
    return out

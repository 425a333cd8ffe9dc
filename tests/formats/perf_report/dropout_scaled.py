import torch
import triton
import triton.language as tl

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@triton.jit
def keep(x, mask, out, n, p, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = tl.load(mask + at, mask=at < n)
    tl.store(out + at, tl.where(kept > p, tl.load(x + at, mask=at < n) / (1 - p), 0.0), mask=at < n)


@triton.testing.perf_report(
    triton.testing.Benchmark(
        ["n"], [1000, 4000], "which", ["reference", "triton"], ["Reference", "Triton"], "dropout", {}
    )
)
def dropout(n, which):
    x, mask = torch.randn(n, device=DEVICE), torch.rand(n, device=DEVICE)
    if which == "reference":
        return triton.testing.do_bench(lambda: torch.where(mask > 0.5, x / 0.5, 0.0))

    def run():
        out = torch.empty_like(x)
        keep[(triton.cdiv(n, 128),)](x, mask, out, n, 0.5, BLOCK=128)
        return out

    return triton.testing.do_bench(run)

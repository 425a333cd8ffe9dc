import torch
import triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@triton.testing.perf_report(
    triton.testing.Benchmark(["n"], [1000], "provider", ["torch", "mine"], ["Torch", "Mine"], "sum", {})
)
def rows(n, provider):
    x = torch.rand(8, n, device=DEVICE)
    return triton.testing.do_bench(lambda: x.sum(1) if provider == "torch" else x.mean(1))

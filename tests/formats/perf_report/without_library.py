import torch
import triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@triton.testing.perf_report(
    triton.testing.Benchmark(["n"], [1000], "provider", ["v1", "v2"], ["One", "Two"], "versions", {})
)
def versions(n, provider):
    x = torch.rand(n, device=DEVICE)
    return triton.testing.do_bench(lambda: x + 1)

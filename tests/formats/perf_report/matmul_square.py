import torch
import triton
import triton.language as tl

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@triton.jit
def dot_kernel(a, b, c, n, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, n, BLOCK):
        ks = k + tl.arange(0, BLOCK)
        total += tl.dot(tl.load(a + rows[:, None] * n + ks[None, :]), tl.load(b + ks[:, None] * n + cols[None, :]))
    tl.store(c + rows[:, None] * n + cols[None, :], total.to(tl.float16))


configs = [
    triton.testing.Benchmark(
        x_names=["N"], x_vals=[64, 128], line_arg="provider", line_vals=["cublas", "triton"],
        line_names=["cuBLAS", "Triton"], ylabel="TFLOPS", plot_name="matmul", args={},
    )
]  # fmt: skip


@triton.testing.perf_report(configs)
def benchmark(N, provider):
    a = torch.randn((N, N), device=DEVICE, dtype=torch.float16)
    b = torch.randn((N, N), device=DEVICE, dtype=torch.float16)

    def mine():
        c = torch.empty_like(a)
        dot_kernel[(N // 32, N // 32)](a, b, c, N, BLOCK=32)
        return c

    ms = triton.testing.do_bench((lambda: torch.matmul(a, b)) if provider == "cublas" else mine)
    return 2 * N**3 * 1e-12 / (ms * 1e-3)

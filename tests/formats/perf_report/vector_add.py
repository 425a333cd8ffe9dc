import torch
import triton
import triton.language as tl

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) + tl.load(y_ptr + at, mask=at < n), mask=at < n)


def add(x, y):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    return out


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["size"],
        x_vals=[2**i for i in range(12, 20)],
        line_arg="provider",
        line_vals=["triton", "torch"],
        line_names=["Triton", "Torch"],
        ylabel="GB/s",
        plot_name="vector-add",
        args={},
    )
)
def benchmark(size, provider):
    x, y = torch.rand(size, device=DEVICE), torch.rand(size, device=DEVICE)
    quantiles = [0.5, 0.2, 0.8]
    if provider == "torch":
        ms, low, high = triton.testing.do_bench(lambda: x + y, quantiles=quantiles)
    else:
        ms, low, high = triton.testing.do_bench(lambda: add(x, y), quantiles=quantiles)
    gbps = lambda ms: 3 * x.numel() * x.element_size() * 1e-9 / (ms * 1e-3)
    return gbps(ms), gbps(high), gbps(low)


if __name__ == "__main__":
    benchmark.run(print_data=True, save_path=".")

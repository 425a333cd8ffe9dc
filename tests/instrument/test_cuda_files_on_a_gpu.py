"""Kernels in .cu files on a GPU: right, in a graph too, cheap to launch, and measured like any other.

Needs no site: python -m pytest --noconftest -c /dev/null --rootdir . -p no:django tests/instrument/test_cuda_files_on_a_gpu.py
"""

import math
from time import perf_counter

import pytest

torch = pytest.importorskip("torch")

from kernels import measure  # noqa: E402
from kernels.catalog import get_kernel, kernels, load  # noqa: E402
from kernels.child import into, launches, outputs  # noqa: E402
from kernels.child.clock import CudaClock  # noqa: E402
from kernels.child.runtime import CudaRuntime  # noqa: E402
from kernels.config_files import configs  # noqa: E402
from kernels.nvrtc import toolchain  # noqa: E402
from kernels.workload import Workload  # noqa: E402

WHY_NOT = toolchain.why_not() if torch.cuda.is_available() else "needs a CUDA GPU"
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]

OURS = [info for info in kernels() if info.path.endswith(".cu") and not info.folder]


def problems(info):
    """In each dtype the smallest workload of the operation's configs, and all of odd sizes."""
    known = [w for config in configs() for w in config.workloads if w.operation == info.operation]
    smallest = min(known, key=lambda workload: workload.problem.tensor_bytes)
    for dtype in info.dtypes:
        problem = Workload(operation=info.operation, dtype=dtype, sizes=smallest.sizes).problem
        yield from (one for one in (problem, *problem.edges()) if not info.why_not_for(dtype, one.model_dump()))


def returning(info, problem, inputs):
    likes = outputs.likes(problem, inputs)
    return into.returning(load(info).call, lambda *tensors: outputs.new(likes, tensors[0].device))


def is_right(problem, inputs, out):
    for piece in problem.check(inputs, 1, thorough=True):
        right, yardstick = piece.reference.double(), piece.yardstick.double()
        allowed = 3 * (yardstick - right).norm() + 1e-6 * right.norm()
        assert (outputs.as_tuple(out)[piece.output][piece.index].double() - right).norm() <= allowed, problem.label()
    return True


@pytest.mark.parametrize("info", OURS, ids=lambda info: info.full_name)
def test_every_kernel_is_right_also_captured_in_a_graph(info):
    major, minor = torch.cuda.get_device_capability()
    if why := info.why_not_on("cuda", major + minor / 10):
        pytest.skip(why)
    for problem in problems(info):
        inputs = problem.inputs("cuda", 7)
        call = returning(info, problem, inputs)
        plain = call(*inputs.tensors, **inputs.options)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = call(*inputs.tensors, **inputs.options)
        for one in outputs.as_tuple(captured):
            one.fill_(math.nan)
        graph.replay()
        torch.cuda.synchronize()
        assert is_right(problem, inputs, plain) and is_right(problem, inputs, captured)


COPY = """
// @kernel("softmax", name="copy", needs=cuda(min_capability=9.0))
// @launch(grid=(ceil_div(cols, WIDTH), ceil_div(rows, 40)), block=32, defines={"NUMBER": T, "WIDTH": 128 // itemsize})
// @call("copy", tensor_map(x, WIDTH, 40, swizzle=SWIZZLE), tensor_map(out, WIDTH, 40, swizzle=SWIZZLE))
#include <cuda.h>
#include <cuda_bf16.h>
__global__ void copy(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to) {
    __shared__ alignas(1024) NUMBER tile[40 * WIDTH];
    __shared__ alignas(8) unsigned long long barrier;
    if (threadIdx.x) return;
    const unsigned at = unsigned(__cvta_generic_to_shared(tile)), bar = unsigned(__cvta_generic_to_shared(&barrier));
    const int x = blockIdx.x * WIDTH, y = blockIdx.y * 40;
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\\n fence.proxy.async;" :: "r"(bar) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(40 * 128) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
        :: "r"(at), "l"(&from), "r"(x), "r"(y), "r"(bar) : "memory");
    for (unsigned done = 0, tries = 0; !done; ++tries) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
            : "=r"(done) : "r"(bar) : "memory");
        if (tries > (1u << 22)) __trap();
    }
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
        :: "l"(&to), "r"(x), "r"(y), "r"(at) : "memory");
    asm volatile("cp.async.bulk.commit_group;\\n cp.async.bulk.wait_group 0;" ::: "memory");
}
"""


@pytest.mark.parametrize("swizzle", [0, 128])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_tiles_are_copied_by_tensor_maps(tmp_path, monkeypatch, dtype, swizzle):
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("needs compute capability 9.0")
    monkeypatch.setenv("KERNEL_PATH", str(tmp_path))
    (tmp_path / "softmax").mkdir()
    (tmp_path / "softmax" / "copy.cu").write_text(COPY.replace("SWIZZLE", str(swizzle)))
    call = load(get_kernel("softmax", "copy")).call
    x = torch.randn(100, 200, device="cuda").to(getattr(torch, dtype))
    for one in (x, x.flip(0)):
        out = torch.full_like(one, math.nan)
        call(one, out=out)
        assert torch.equal(out, one)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(x, out=out)
    out.fill_(math.nan)
    graph.replay()
    assert torch.equal(out, x)


def test_what_the_launch_takes_is_reported():
    info = get_kernel("gemm", "cuda-gemm")
    problem = Workload(operation="gemm", dtype="float16", sizes={"m": 256, "n": 384, "k": 64}).problem
    inputs = problem.inputs("cuda", 7)
    call = returning(info, problem, inputs)
    call(*inputs.tensors)
    found = launches.second_call(lambda: call(*inputs.tensors), CudaClock(CudaRuntime()))
    assert (found["grid"], found["block"], found["dynamic_shared_bytes"]) == ("3 x 2 x 1", "256 x 1 x 1", 56_832)
    assert found["registers"] > 64 and 0 < found["occupancy"] <= 1
    assert found["peak_memory_bytes"] == 256 * 384 * 2
    assert "registers" in found["log"]


def test_the_stream_is_pytorchs_current_one():
    """Writes that come before it on that stream are seen."""
    info = get_kernel("layer_norm", "cuda-layer-norm")
    problem = Workload(operation="layer_norm", dtype="float32", sizes={"rows": 64, "cols": 256}).problem
    inputs = problem.inputs("cuda", 7)
    call, late = returning(info, problem, inputs), [torch.zeros_like(tensor) for tensor in inputs.tensors]
    call(*late, **inputs.options)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(20_000_000)
        for tensor, value in zip(late, inputs.tensors, strict=True):
            tensor.copy_(value)
        out = call(*late, **inputs.options)
    torch.cuda.synchronize()
    assert is_right(problem, inputs, out)


def test_the_host_needs_few_microseconds_to_launch():
    call = load(get_kernel("layer_norm", "cuda-layer-norm")).call
    x, weight, bias = (torch.ones(*shape, device="cuda") for shape in ((8, 256), (256,), (256,)))
    out, times = torch.empty_like(x), []
    for _ in range(20):
        torch.cuda.synchronize()
        begin = perf_counter()
        for _ in range(100):
            call(x, weight, bias, out=out, eps=1e-5)
        times.append((perf_counter() - begin) / 100)
    assert min(times) < 12e-6, f"{min(times) * 1e6:.1f} us, with the driver's part"


def test_measure_takes_it_like_any_callable():
    def inputs(seed):
        torch.manual_seed(seed)
        return tuple(
            torch.randn(*shape, device="cuda", dtype=torch.float16) for shape in ((4096, 1024), (1024,), (1024,))
        )

    call = load(get_kernel("layer_norm", "cuda-layer-norm")).call

    def ours(x, weight, bias, out):
        call(x, weight, bias, out=out, eps=1e-5)

    def plain(x, weight, bias):
        return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, 1e-5)

    found = measure(ours, plain, inputs=inputs, reference=plain)
    assert found.correct is True, found.why
    assert found.speedup > 0.2

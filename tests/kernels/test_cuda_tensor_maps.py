"""Tensor maps of .cu kernels: what the driver is told, what is refused, and how a kernel gets them. No GPU encodes one here.

On a GPU: tests/instrument/test_cuda_files_on_a_gpu.py.
"""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from kernels.catalog import Unsupported, get_kernel, load  # noqa: E402
from kernels.nvrtc import arguments, compiler, driver, tensor_maps, toolchain  # noqa: E402
from kernels.nvrtc.expressions import BadExpression  # noqa: E402
from kernels.nvrtc.tensor_maps import Box, Refused, layout  # noqa: E402

ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).parent / "printing_driver.c"
WHY_NOT = toolchain.why_not()
needs_nvrtc = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
KERNEL = """\
// @kernel("softmax", space={"width": (32, 64)})
// @launch(grid=1, block=32, defines={"NUMBER": T, "WIDTH": 64, "HEIGHT": 8})
// @call("copy", tensor_map(x, WIDTH, HEIGHT, swizzle=128), tensor_map(out, WIDTH, 1, l2=256), x, rows, cols, WIDTH)
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
__global__ void __cluster_dims__(2) copy(const __grid_constant__ CUtensorMap map, const __grid_constant__ CUtensorMap to,
                                         const NUMBER* x, int rows, int cols, int width) {
    __shared__ alignas(128) NUMBER tile[WIDTH * HEIGHT];
    __shared__ alignas(8) unsigned long long barrier;
    const unsigned at = unsigned(__cvta_generic_to_shared(tile)), bar = unsigned(__cvta_generic_to_shared(&barrier));
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
        :: "r"(at), "l"(&map), "r"(0), "r"(0), "r"(bar) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
        :: "l"(&to), "r"(0), "r"(0), "r"(at) : "memory");
}
"""


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.getbasetemp() / "nvrtc"
    monkeypatch.setenv(compiler.CACHE_VARIABLE, str(folder))
    driver._tensor_map.cache_clear()
    return folder


class Noting(driver.Cuda):
    """A device that notes its launches: the bytes of the first two arguments of each."""

    def __init__(self, architecture="sm_90a"):
        self.architecture, self.loaded, self.run = architecture, [], []

    def why_not(self, tensor):
        return ""

    def device(self, tensor):
        return driver.Device(self.architecture, 132, 232_448)

    def load(self, made):
        self.loaded.append(made)
        return self

    def allow_shared(self, nbytes):
        pass

    def launcher(self, grid, block, shared, address):
        places = (ctypes.c_void_p * 2).from_address(address)
        return lambda stream: self.run.append([ctypes.string_at(place, arguments.MAP_BYTES) for place in places])

    def current_stream(self):
        return lambda device: 77


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """mine(text): a kernel of this source, on a device that notes."""
    monkeypatch.setenv("KERNEL_PATH", str(tmp_path))
    (tmp_path / "softmax").mkdir()

    def made(text=KERNEL, architecture="sm_90a"):
        (tmp_path / "softmax" / "mine.cu").write_text(text)
        call = load(get_kernel("softmax", "mine")).call
        call._cuda = Noting(architecture)
        return call

    return made


@pytest.fixture
def told(monkeypatch):
    """What the driver was told of maps."""
    found = []
    monkeypatch.setattr(driver, "_encoded", lambda one: found.append(one) or bytes([len(found) % 256]) * 128)
    return found


def layout_of(tensor, *sizes, swizzle=0, l2=128):
    box = Box("tensor_map(x)", sizes, swizzle, l2)
    name = str(tensor.dtype).removeprefix("torch.")
    return layout(box, name, tensor.element_size(), 4096, tensor.shape, tensor.stride())


# --- what the driver is told ------------------------------------------------------------------------------------------


def test_sizes_and_strides_are_those_of_the_tensor_innermost_first():
    found = layout_of(torch.empty(2, 3, 5, 64, dtype=torch.bfloat16).transpose(1, 2), 64, 3, 1, 1, swizzle=128, l2=256)
    assert (found.sizes, found.strides) == ((64, 3, 5, 2), (640, 128, 1920))
    assert (found.box, found.address) == ((64, 3, 1, 1), 4096)


@pytest.mark.parametrize("rank", range(1, 6))
def test_tensors_of_one_to_five_dimensions(rank):
    found = layout_of(torch.empty(*[8] * rank), *[4] * rank)
    assert found.sizes == (8,) * rank and found.strides == tuple(32 * 8**n for n in range(rank - 1))


@pytest.mark.parametrize("shape, stride, strides", [
    ((1, 7), (7, 1), (16,)),
    ((1, 8), (3, 1), (16,)),
    ((9, 1), (8, 5), (16,)),
    ((4, 1, 3), (8, 3, 1), (16, 16)),
    ((4, 8), (0, 1), (0,)),
])  # fmt: skip
def test_the_stride_of_one_element_means_nothing(shape, stride, strides):
    assert layout_of(torch.empty_strided(shape, stride, dtype=torch.float16), *[8] * len(shape)).strides == strides


def test_the_driver_knows_types_and_choices_by_these_numbers():
    numbers = pytest.importorskip("cuda.bindings.driver")
    names = dict.fromkeys(tensor_maps.BYTES, "UINT8") | {"int16": "UINT16"}
    for dtype, number in tensor_maps.KINDS.items():
        kind = names.get(dtype, dtype.upper())
        assert getattr(numbers.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{kind}") == number, dtype
    for number, nbytes in enumerate(tensor_maps.CHOICES["swizzle"]):
        name = f"{nbytes}B" if nbytes else "NONE"
        assert getattr(numbers.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{name}") == number
    for number, nbytes in enumerate(tensor_maps.CHOICES["l2"]):
        name = f"L2_{nbytes}B" if nbytes else "NONE"
        assert getattr(numbers.CUtensorMapL2promotion, f"CU_TENSOR_MAP_L2_PROMOTION_{name}") == number


@pytest.mark.parametrize("dtype", [name for name in tensor_maps.KINDS if hasattr(torch, name)])
def test_every_type_of_element_has_a_map(dtype):
    found = layout_of(torch.empty(4, 64, dtype=getattr(torch, dtype)), 16, 4)
    assert found.kind == tensor_maps.KINDS[dtype]


HALF, FLAT = torch.empty(100, 200, dtype=torch.float16), torch.empty(100, 201, dtype=torch.float16)
REFUSED = {
    "a type without a map": (torch.empty(4, 8, dtype=torch.complex64), (8, 4), {}, "no tensor map of complex64"),
    "a short row": (HALF, (12, 4), {}, "a row of the box has 24 bytes; it must have a multiple of 16"),
    "a row above the swizzle": (HALF, (64, 4), {"swizzle": 64}, "has 128 bytes; with swizzle=64 it may have 64"),
    "a large box": (HALF, (8, 257), {}, "the box has 257 elements in a dimension; it may have 256"),
    "a stride": (FLAT, (8, 4), {}, "a dimension of the tensor has a stride of 402 bytes; it must be a multiple of 16"),
    "turned": (HALF.t(), (8, 4), {}, "the last dimension of the tensor has the stride 200; it must have 1"),
    "empty": (HALF[:0], (8, 4), {}, "the tensor has no elements"),
}


@pytest.mark.parametrize("tensor, sizes, more, why", REFUSED.values(), ids=REFUSED)
def test_what_the_hardware_has_no_map_of_is_refused(tensor, sizes, more, why):
    with pytest.raises(Refused, match=why):
        layout_of(tensor, *sizes, **more)


@pytest.mark.parametrize("address, shape, stride, why", [
    (4104, (8, 8), (8, 1), "begins at an address that is no multiple of 16"),
    (4096, (2**32 + 1,), (1,), r"has 4,294,967,297 elements in a dimension; it may have 4,294,967,296"),
    (4096, (2, 8), (2**39, 1), r"a stride of 1,099,511,627,776 bytes"),
])  # fmt: skip
def test_addresses_and_sizes_that_no_map_has_are_refused(address, shape, stride, why):
    with pytest.raises(Refused, match=why):
        layout(Box("", (8, 1)[: len(shape)], 0, 0), "float16", 2, address, shape, stride)


# --- a kernel that takes them -----------------------------------------------------------------------------------------


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_90a", "sm_100a"])
def test_a_kernel_with_tensor_maps_compiles(mine, architecture):
    text, x = mine().text, torch.ones(100, 200).bfloat16()
    made = compiler.compiled(text.compiled_from(text.values((x,), {}, 132), x.dtype), architecture)
    assert made.local_bytes == 0 and "warning" not in made.log


@needs_nvrtc
def test_a_kernel_gets_the_maps_of_inputs_and_outputs(mine, told):
    call, x = mine(), torch.ones(100, 200).bfloat16()
    outs = [torch.empty_like(x), torch.empty_like(x)]
    for out in outs:
        call(x, out=out)
    assert [(one.address, one.box, one.swizzle, one.l2) for one in told] == [
        (x.data_ptr(), (64, 8), 3, 2), (outs[0].data_ptr(), (64, 1), 0, 3), (outs[1].data_ptr(), (64, 1), 0, 3),
    ]  # fmt: skip
    assert [[one[0] for one in each] for each in call._cuda.run] == [[1, 2], [1, 3]]
    assert len(call._cuda.loaded) == 1


@needs_nvrtc
def test_maps_are_no_change_of_what_others_depend_on(mine, told):
    from kernels.child.functions import Snapshot, far, near
    from kernels.child.reach import Reach

    call, x = mine(), torch.ones(100, 200).bfloat16()
    before, others, reach = Snapshot(near()), Snapshot(far()), Reach(call)
    call(x, out=torch.empty_like(x))
    assert (before.changes(), others.changes(), reach.changes()) == ([], [], [])


@needs_nvrtc
def test_a_search_sets_the_box(mine, told):
    call, x = mine(), torch.ones(100, 200).bfloat16()
    call(x, out=torch.empty_like(x), settings={"width": 32})
    assert told[0].box == (32, 8)


def test_maps_are_kept_up_to_a_bound(told):
    x, box = torch.ones(100, 200), Box("", (32, 8), 128, 128)
    for _ in range(3):
        driver.Cuda().tensor_map(x, box)
    assert len(told) == 1
    for others in ((x[:, 4:], box), (x[::2], box), (x, box._replace(l2=0)), (x.half(), box)):
        driver.Cuda().tensor_map(*others)
    assert len(told) == 5
    for n in range(driver.KEPT_MAPS):
        driver.Cuda().tensor_map(x[: n % 100 + 1], box._replace(sizes=(32, n // 100 + 9)))
    assert driver._tensor_map.cache_info().currsize == driver.KEPT_MAPS


def test_what_the_sizes_refuse_is_unsupported_before_anything_is_compiled(mine, monkeypatch):
    monkeypatch.setattr(compiler, "compiled", None)
    with pytest.raises(Unsupported, match=r"^`tensor_map\(x, WIDTH, HEIGHT, swizzle=128\)`: .* stride of 402 bytes"):
        mine()(torch.ones(3, 201).half(), out=torch.empty(3, 201).half())
    with pytest.raises(Unsupported, match="a row of the box has 256 bytes; with swizzle=128 it may have 128"):
        mine()(torch.ones(3, 8), out=torch.empty(3, 8))
    with pytest.raises(Unsupported, match=r"tensor maps need a device of compute capability 9\.0"):
        mine(architecture="sm_89")(torch.ones(3, 8).half(), out=torch.empty(3, 8).half())


def test_a_box_that_is_none_says_line_and_number(mine, told):
    x = torch.ones(3, 200).half()
    with pytest.raises(
        BadExpression, match=r"^mine.cu, line 3: .*: `cols // 201` is 0; it must be a whole number above 0"
    ):
        mine(KERNEL.replace("(x, WIDTH,", "(x, cols // 201,"))(x, out=torch.empty_like(x))
    with pytest.raises(BadExpression, match=r"^mine.cu, line 3: .*: swizzle is 200; it must be 0, 32, 64 or 128"):
        mine(KERNEL.replace("swizzle=128", "swizzle=cols"))(x, out=torch.empty_like(x))
    with pytest.raises(BadExpression, match=r"^mine.cu, line 3: .* the box has 3 and the tensor 2 dimensions"):
        mine(KERNEL.replace("(out, WIDTH,", "(out, WIDTH, 1,"))(x, out=torch.empty_like(x))


@needs_nvrtc
@pytest.mark.parametrize("parameter, instead", [
    ("const __grid_constant__ CUtensorMap map", "const NUMBER* map"),
    ("const __grid_constant__ CUtensorMap map", "int map"),
    ("const __grid_constant__ CUtensorMap map", "const CUtensorMap& map"),
])  # fmt: skip
def test_a_kernel_that_takes_no_map_is_refused_at_the_line_of_call(mine, told, parameter, instead):
    x = torch.ones(3, 200).half()
    with pytest.raises(compiler.CompileError, match=r"^mine\.cu\(3\): error") as caught:
        mine(KERNEL.replace(parameter, instead).replace('"l"(&map)', '"l"(0ull)'))(x, out=torch.empty_like(x))
    assert "swizzle=128) as a tensor map: argument 1 of the kernel has another type" in caught.value.log


@needs_nvrtc
def test_a_kernel_that_wants_a_map_gets_no_pointer(mine, told):
    x = torch.ones(3, 200).half()
    with pytest.raises(compiler.CompileError, match="error") as caught:
        mine(KERNEL.replace("tensor_map(x, WIDTH, HEIGHT, swizzle=128)", "x"))(x, out=torch.empty_like(x))
    assert "passes x as a pointer: argument 1 of the kernel has another type" in caught.value.log


def test_memory_of_a_map_is_aligned():
    rooms = [arguments.map_room() for _ in range(50)]
    assert {ctypes.addressof(one) % 64 for one in rooms} == {0} and {len(one) for one in rooms} == {128}


# --- the driver's calls, on a driver that only prints -----------------------------------------------------------------

CALLS = """
import json
import torch
from kernels.catalog import get_kernel, load
from kernels.nvrtc import driver

class Here(driver.Cuda):
    def why_not(self, tensor): return ""
    def device(self, tensor): return driver.Device("sm_90a", 132, 232_448)
    def current_stream(self): return lambda device: 119

call = load(get_kernel("softmax", "mine")).call
call._cuda = Here()
x, out = torch.ones(100, 200).half(), torch.empty(100, 200).half()
print(json.dumps([one.data_ptr() for one in (x, out)]), flush=True)
call(x, out=out)
"""


@needs_nvrtc
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on this host")
def test_the_driver_encodes_a_map_and_the_kernel_gets_its_bytes(mine, tmp_path, cache):
    text, x = mine().text, torch.ones(100, 200).half()
    compiler.compiled(text.compiled_from(text.values((x,), {}, 132), x.dtype), "sm_90a")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", DRIVER, "-ldl"], check=True, timeout=60)
    done = subprocess.run(
        [sys.executable, "-c", CALLS], cwd=ROOT, capture_output=True, text=True, timeout=120,
        env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path), compiler.CACHE_VARIABLE: str(cache)},
    )  # fmt: skip
    pointers, *said = done.stdout.splitlines()
    x, out = json.loads(pointers)
    assert said == [
        f"map of type 6, rank 2, at {x:x}: 200 box 64 step 1 100 box 8 step 1 stride 400, interleave 0, swizzle 3, l2 2, 0",
        f"map of type 6, rank 2, at {out:x}: 200 box 64 step 1 100 box 1 step 1 stride 400, interleave 0, swizzle 0, l2 3, 0",
        f"launch 1 x 1 x 1 of 32 x 1 x 1, shared 0, stream 119: {x + 1:x} {out + 1:x} {x:x} 100 200 64",
    ], done.stderr[-2000:]

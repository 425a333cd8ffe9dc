"""Kernels in .cu files: compiled by the real NVRTC without a GPU, launched on a driver that only notes.

On a GPU: tests/instrument/test_cuda_files_on_a_gpu.py.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from selection import telling

torch = pytest.importorskip("torch")

from kernels.catalog import Unsupported, get_kernel, kernels, load  # noqa: E402
from kernels.child import into, launches  # noqa: E402
from kernels.child.__main__ import fault  # noqa: E402
from kernels.child.reach import Reach  # noqa: E402
from kernels.config_files import configs  # noqa: E402
from kernels.nvrtc import compiler, driver, toolchain  # noqa: E402
from kernels.nvrtc import kernel as cuda_kernel  # noqa: E402
from kernels.nvrtc.expressions import BadExpression  # noqa: E402
from kernels.workload import Workload  # noqa: E402

ROOT = Path(__file__).parents[2]
WHY_NOT = toolchain.why_not()
needs_nvrtc = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
ARCHITECTURES = ("sm_80", "sm_89", "sm_90a", "sm_100")
EVERY_DTYPE = "sm_90a"
OURS = [info for info in kernels() if info.path.endswith(".cu") and not info.folder]
KERNEL = """\
// Adds the bias and the weight.
// @kernel("layer_norm")
// @launch(grid=(ceil_div(cols, 128), rows), block=128, shared=4 * cols, defines={"COLS": cols, "NUMBER": T})
// @call("mine<T, rows>", x, weight, bias, out, cols, long(rows * cols), double(eps), eps > 0)
#include "mine.h"
template <typename T, int ROWS>
__global__ void mine(const T* x, const T* w, const T* b, T* out, int cols, long long all, double eps, bool is) {
    extern __shared__ float row[];
    row[threadIdx.x] = float(x[threadIdx.x % COLS]) * SCALE;
    __syncthreads();
    out[threadIdx.x] = NUMBER(row[0] + ROWS);
}
"""
HEADER = "#include <cuda_fp16.h>\n#define SCALE 2.0f\n"


class Noting(driver.Cuda):
    """A device that only notes what is loaded and launched."""

    def __init__(self):
        self.loaded, self.allowed, self.run = [], [], []

    def why_not(self, tensor):
        return ""

    def device(self, tensor):
        return driver.Device("sm_90a", 132, 232_448)

    def load(self, made):
        self.loaded.append(made)
        return self

    def allow_shared(self, nbytes):
        self.allowed.append(nbytes)

    def launcher(self, grid, block, shared, arguments):
        return lambda stream: self.run.append((grid, block, shared, stream))

    def current_stream(self):
        return lambda device: 77


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.getbasetemp() / "nvrtc"
    monkeypatch.setenv(compiler.CACHE_VARIABLE, str(folder))
    return folder


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """mine(text): a kernel of this source, on a device that notes."""
    monkeypatch.setenv("KERNEL_PATH", str(tmp_path))
    (tmp_path / "layer_norm").mkdir()
    (tmp_path / "layer_norm" / "mine.h").write_text("#error a kernel is one file\n")
    (tmp_path / "of_cuda").mkdir()
    (tmp_path / "of_cuda" / "mine.h").write_text(HEADER)
    folders = [tmp_path / "of_cuda", *toolchain.include_folders(toolchain.cuda_major())]
    monkeypatch.setattr(toolchain, "include_folders", lambda major: folders)

    def made(text=KERNEL):
        (tmp_path / "layer_norm" / "mine.cu").write_text(text)
        call = load(get_kernel("layer_norm", "mine")).call
        call._cuda = Noting()
        return call

    return made


def tensors(rows=3, cols=200, dtype=torch.float16):
    return torch.ones(rows, cols, dtype=dtype), torch.ones(cols, dtype=dtype), torch.ones(cols, dtype=dtype)


def source_of(info, workload):
    """What the compiler gets for a workload, and the expressions of its launch."""
    text = load(info).call.text
    inputs = workload.problem.inputs("cpu", 0)
    values = text.values(inputs.tensors, inputs.options, 132)
    return text.compiled_from(values, inputs.tensors[0].dtype), text.shape(values)


def workloads(info):
    """Of those that it does: the smallest in each dtype, and with each word and truth value among its sizes, and one of odd
    sizes."""
    known = [w for config in configs() for w in config.workloads if w.operation == info.operation]
    known = [w for w in known if not info.why_not_for(info.dtypes[0], w.problem.model_dump())]
    known.sort(key=lambda workload: workload.problem.tensor_bytes)
    kinds = {tuple(size for size in w.problem.model_dump().values() if type(size) is not int): w for w in known[::-1]}
    odd = known[0].problem.edges()[1]
    for dtype in info.dtypes:
        yield Workload(operation=info.operation, dtype=dtype, sizes=known[0].sizes)
    for workload in kinds.values():
        if workload.dtype == info.dtypes[0]:
            yield workload
    yield Workload(operation=info.operation, dtype=info.dtypes[0], sizes=odd.model_dump(exclude={"dtype"}))


# --- the compiler -----------------------------------------------------------------------------------------------------


@needs_nvrtc
@pytest.mark.parametrize("architecture", telling(ARCHITECTURES, EVERY_DTYPE, why="the other architectures"))
@pytest.mark.parametrize("info", OURS, ids=lambda info: info.full_name)
def test_every_kernel_compiles_without_a_warning_and_spills_nothing(info, architecture):
    each = list(workloads(info))
    for workload in each if architecture == EVERY_DTYPE else each[:1]:
        source, (grid, block, shared) = source_of(info, workload)
        made = compiler.compiled(source, architecture)
        assert made.cubin[:4] == b"\x7fELF"
        assert 0 < made.registers <= 255 and "warning" not in made.log
        assert made.local_bytes <= 16
        most = 227 if info.needs.architecture == 9.0 else 99
        assert made.static_shared_bytes + shared <= most * 1024, "more than a block may have on 9.0, or on 8.9"
        assert min(*grid, *block) >= 1


@needs_nvrtc
def test_the_example_of_the_documentation_compiles(tmp_path, monkeypatch):
    lines = (ROOT / "docs" / "kernels.md").read_text().split("`gemm/my_gemm.cu`:\n\n")[1].split("\n\n")[0].splitlines()
    (tmp_path / "gemm").mkdir()
    (tmp_path / "gemm" / "my_gemm.cu").write_text("\n".join(line[4:] for line in lines))
    monkeypatch.setenv("KERNEL_PATH", str(tmp_path))
    info = get_kernel("gemm", "my-gemm")
    assert (info.error, info.doc) == ("", "A thread for each element of the product.")
    source, shape = source_of(info, Workload(operation="gemm", dtype="float32", sizes={"m": 9, "n": 33, "k": 5}))
    assert shape == ((2, 2, 1), (32, 8, 1), 0)
    assert "warning" not in compiler.compiled(source, "sm_90a").log


@needs_nvrtc
def test_the_log_has_registers_and_memory_of_this_kernel_and_warnings(mine):
    call = mine(KERNEL.replace("    __syncthreads", "    int unused;\n    __syncthreads"))
    inputs = tensors()
    source = call.text.compiled_from(call.text.values(inputs, {"eps": 1e-5}, 132), torch.float16)
    made = compiler.compiled(source, "sm_80")
    assert 'mine.cu(10): warning #177-D: variable "unused" was declared' in made.log
    assert f"Used {made.registers} registers" in made.log and made.local_bytes == 0
    assert source.entry == "mine<__half, 3>" and source.defines == (("COLS", "200"), ("NUMBER", "__half"))


@needs_nvrtc
def test_functions_and_lambdas_need_no_device_before_them(mine):
    text = KERNEL.replace(
        "template <typename T, int", "constexpr int twice(int n) { return 2 * n; }\ntemplate <typename T, int"
    )
    text = text.replace("ROWS);", "twice(ROWS) + [](auto n) { return n; }(1));")
    mine(text)(*tensors(), out=torch.empty(3, 200), eps=1e-5)


@needs_nvrtc
def test_all_of_nvrtc_is_loaded_from_its_folder():
    """It looks for a part of itself late, and on some versions not in its own folder."""
    compiler.nvrtc_version()
    loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libnvrtc" in line}
    folder = str(toolchain.library(toolchain.cuda_major()).resolve().parent)
    assert any("builtins" in path for path in loaded) and all(path.startswith(folder) for path in loaded)


@needs_nvrtc
def test_a_file_beside_it_cannot_be_included(mine, tmp_path, monkeypatch):
    (tmp_path / "layer_norm" / "beside.h").write_text("")
    monkeypatch.chdir(tmp_path / "layer_norm")
    with pytest.raises(compiler.CompileError, match=r'open source file "beside.h"$|open source file "beside.h" \('):
        mine('#include "beside.h"\n' + KERNEL)(*tensors(), out=torch.empty(3, 200), eps=1e-5)


@needs_nvrtc
def test_local_memory_is_counted(mine):
    spills = """    float big[300];
    for (int i = 0; i < 300; ++i) big[i] = row[i] * all;
    row[0] = big[cols];
    __syncthreads"""
    call = mine(KERNEL.replace("    __syncthreads", spills))
    source = call.text.compiled_from(call.text.values(tensors(), {"eps": 1e-5}, 132), torch.float16)
    assert compiler.compiled(source, "sm_90a").local_bytes >= 1200


@needs_nvrtc
def test_a_compile_error_is_the_compilers_own_first_line_and_its_whole_log(mine):
    call = mine(KERNEL.replace("out[threadIdx.x] =", "nowhere ="))
    with pytest.raises(compiler.CompileError) as caught:
        call(*tensors(), out=torch.empty(3, 200), eps=1e-5)
    assert str(caught.value) == 'mine.cu(11): error: identifier "nowhere" is undefined'
    told = fault(caught.value, must_replace=False)
    assert (told.kind, told.message) == ("raised", f"CompileError: {caught.value}")
    assert "nowhere = NUMBER" in told.traceback and "Traceback" not in told.traceback


WRONG_CALLS = {
    "an int for a long": ("long(rows * cols)", "rows * cols", "passes rows * cols as an int: argument 6"),
    "a float for a double": ("double(eps)", "eps", "passes eps as a float: argument 7"),
    "a number for a pointer": ("bias, out", "1, out", "passes 1 as an int: argument 3"),
    "a pointer too few": ("bias, out", "out", "passes 7 arguments, the kernel takes others"),
    "another name": ('"mine<T', '"other<T', 'identifier "other" is undefined'),
}


@needs_nvrtc
@pytest.mark.parametrize("declared, instead, why", WRONG_CALLS.values(), ids=WRONG_CALLS)
def test_a_call_that_the_kernel_does_not_take_is_refused_at_its_line(mine, declared, instead, why):
    call = mine(KERNEL.replace(declared, instead))
    with pytest.raises(compiler.CompileError, match=r"^mine\.cu\(4\): error") as caught:
        call(*tensors(), out=torch.empty(3, 200), eps=1e-5)
    assert why in caught.value.log


# --- the cache --------------------------------------------------------------------------------------------------------


@needs_nvrtc
def test_what_was_compiled_is_taken_from_the_cache_until_something_changes(mine, tmp_path, monkeypatch):
    monkeypatch.setenv(compiler.CACHE_VARIABLE, str(tmp_path / "cache"))
    compiled, inner = [], compiler._compile
    monkeypatch.setattr(compiler, "_compile", lambda *asked: compiled.append(1) or inner(*asked))

    def make(text=KERNEL, architecture="sm_80"):
        """How often the compiler ran."""
        text_of = mine(text).text
        source = text_of.compiled_from(text_of.values(tensors(), {"eps": 1e-5}, 132), torch.float16)
        compiled.clear()
        make.made = compiler.compiled(source, architecture)
        return len(compiled)

    assert make() == 1
    first = make.made
    assert (make(), make.made) == (0, first)
    assert make(architecture="sm_89") == 1
    assert make(KERNEL + "// changed\n") == 1
    assert make(KERNEL.replace("block=128", 'block=128, options={"use_fast_math": True}')) == 1
    (tmp_path / "of_cuda" / "mine.h").write_text(HEADER.replace("2.0", "3.0"))
    assert make() == 1, "a header is part of the source"
    monkeypatch.setattr(compiler, "nvrtc_version", lambda: (12, 0))
    assert make() == 1
    monkeypatch.undo()


@needs_nvrtc
@pytest.mark.parametrize("damage", ["cut", "a bit", "empty", "another"])
def test_a_damaged_file_of_the_cache_is_compiled_again(mine, tmp_path, monkeypatch, damage):
    monkeypatch.setenv(compiler.CACHE_VARIABLE, str(tmp_path / "cache"))
    text = mine().text
    source = text.compiled_from(text.values(tensors(), {"eps": 1e-5}, 132), torch.float16)
    made = compiler.compiled(source, "sm_80")
    (path,) = (tmp_path / "cache").iterdir()
    whole = path.read_bytes()
    wrong = {"cut": whole[:-9], "a bit": whole[:-9] + b"X" + whole[-8:], "empty": b"", "another": b"not\na\ncache"}[
        damage
    ]
    path.write_bytes(wrong)
    assert compiler.compiled(source, "sm_80") == made
    assert path.read_bytes() == whole and [one.name for one in path.parent.iterdir()] == [path.name]


@needs_nvrtc
def test_a_cache_that_cannot_be_written_is_none(mine, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(compiler.CACHE_VARIABLE, str(tmp_path / "file" / "cache"))
    text = mine().text
    source = text.compiled_from(text.values(tensors(), {"eps": 1e-5}, 132), torch.float16)
    assert compiler.compiled(source, "sm_80").cubin[:4] == b"\x7fELF"


# --- calls ------------------------------------------------------------------------------------------------------------


@needs_nvrtc
def test_a_signature_is_prepared_once_and_launched_on_the_current_stream(mine):
    call = mine()
    x, weight, bias = tensors()
    for _ in range(3):
        call(x, weight, bias, out=torch.empty_like(x), eps=1e-5)
    assert call._cuda.run == [((2, 3, 1), (128, 1, 1), 800, 77)] * 3
    assert len(call._cuda.loaded) == 1 and call._cuda.allowed == [800]
    call(*tensors(3, 50), out=torch.empty(3, 50), eps=1e-5)
    assert call._cuda.run[-1][0] == (1, 3, 1) and len(call._cuda.loaded) == 2
    call(x, weight, bias, out=torch.empty_like(x), eps=0.0)
    assert len(call._cuda.loaded) == 2, "another value of an argument needs no other machine code"


@needs_nvrtc
def test_it_is_called_like_any_kernel_and_gets_a_new_output(mine):
    call = mine()
    assert into.wants_out(call)
    made = []
    returning = into.returning(call, lambda x, *rest: made.append(torch.empty_like(x)) or made[-1])
    assert returning(*tensors(), eps=1e-5) is made[0]


@needs_nvrtc
def test_launches_are_noted_for_the_results_page(mine):
    call = mine()
    with cuda_kernel.launched() as noted:
        call(*tensors(), out=torch.empty(3, 200), eps=1e-5)
    call(*tensors(), out=torch.empty(3, 200), eps=1e-5)
    found = launches.facts(launches.of_cuda_files(noted), "9.0")
    made = call._cuda.loaded[0]
    assert (found["registers"], found["log"]) == (made.registers, made.log)
    assert (found["grid"], found["block"], found["occupancy"]) == ("2 x 3 x 1", "128 x 1 x 1", 1.0)
    assert (found["static_shared_bytes"], found["dynamic_shared_bytes"], found["local_bytes"]) == (0, 800, 0)


@needs_nvrtc
def test_too_much_shared_memory_is_unsupported_and_impossible_sizes_say_so(mine):
    with pytest.raises(Unsupported, match="needs 240,000 bytes of shared memory for a block; this device has 232,448"):
        mine(KERNEL.replace("4 * cols", "1200 * cols"))(*tensors(), out=torch.empty(3, 200), eps=1e-5)
    with pytest.raises(BadExpression, match=r"mine.cu, line 3: `cols \* 8` is 1600 x 1 x 1 threads"):
        mine(KERNEL.replace("block=128", "block=cols * 8"))(*tensors(), out=torch.empty(3, 200), eps=1e-5)
    with pytest.raises(BadExpression, match=r"^mine.cu, line 3: .*must be one to three numbers above 0"):
        mine(KERNEL.replace("block=128", "block=cols - 200"))(*tensors(), out=torch.empty(3, 200), eps=1e-5)
    with pytest.raises(BadExpression, match=r"mine.cu, line 4: `cols \* 2000000000`: .* write long"):
        mine(KERNEL.replace("out, cols,", "out, cols * 2000000000,"))(*tensors(), out=torch.empty(3, 200), eps=1e-5)


def test_a_torch_of_another_version_of_cuda_is_named_with_the_command(monkeypatch):
    monkeypatch.setattr(toolchain, "cuda_major", lambda: 13)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert driver.Cuda().why_not(SimpleNamespace(device=SimpleNamespace(type="cuda"))) == (
        "PyTorch is of CUDA 12 and the package cuda-bindings of CUDA 13: pip install 'cuda-bindings==12.*'"
    )


def test_without_a_gpu_it_is_unsupported(mine):
    call = mine()
    call._cuda = driver.Cuda()
    with pytest.raises(Unsupported, match="needs a CUDA device"):
        call(*tensors(), out=torch.empty(3, 200), eps=1e-5)


@needs_nvrtc
def test_what_a_call_prepares_is_no_change_of_what_others_depend_on(mine):
    from kernels.child.functions import Snapshot, far, near

    call = mine()
    before, others, reach = Snapshot(near()), Snapshot(far()), Reach(call)
    call(*tensors(), out=torch.empty(3, 200), eps=1e-5)
    assert (before.changes(), others.changes(), reach.changes()) == ([], [], [])


# --- the driver's calls, on a driver that only prints -----------------------------------------------------------------

DRIVER = Path(__file__).parent / "printing_driver.c"
CALLS = """
import json, sys
import torch
from kernels.catalog import get_kernel, load
from kernels.nvrtc import driver

class Here(driver.Cuda):
    def why_not(self, tensor): return ""
    def device(self, tensor): return driver.Device("sm_90a", 132, 232_448)
    def current_stream(self): return lambda device: 119

call = load(get_kernel("gemm", "cuda-gemm")).call
call._cuda = Here()
a, b, out = torch.ones(192, 64).half(), torch.ones(64, 80).half(), torch.empty(192, 80).half()
print(json.dumps([one.data_ptr() for one in (a, b, out)]), flush=True)
call(a, b, out=out)
try:
    call(a, b, out=out)
except RuntimeError as error:
    print(error, flush=True)
"""


@needs_nvrtc
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on this host")
def test_the_driver_gets_grid_stream_shared_memory_and_every_argument(tmp_path, cache):
    workload = Workload(operation="gemm", dtype="float16", sizes={"m": 192, "n": 80, "k": 64})
    compiler.compiled(
        source_of(get_kernel("gemm", "cuda-gemm"), workload)[0], "sm_90a"
    )  # the driver can do nothing else
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", DRIVER, "-ldl"], check=True, timeout=60)
    done = subprocess.run(
        [sys.executable, "-c", CALLS], cwd=ROOT, capture_output=True, text=True, timeout=120,
        env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path), compiler.CACHE_VARIABLE: str(cache)},
    )  # fmt: skip
    pointers, *said = done.stdout.splitlines()
    a, b, out = (f"{pointer:x}" for pointer in json.loads(pointers))
    launch = f"launch 1 x 2 x 1 of 256 x 1 x 1, shared 56832, stream 119: {a} {b} {out} 192 80 64"
    assert said == ["allow 56832", launch, launch, "CUDA error: CUDA_ERROR_FROM_A_TEST"], done.stderr[-2000:]

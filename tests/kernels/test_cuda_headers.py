"""Names that nvcc gives a file, and headers of the C and C++ libraries that kernels include: NVRTC has none of its own."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from kernels.catalog import load, read_kernels  # noqa: E402
from kernels.formats.bare import adapted_cuda  # noqa: E402
from kernels.nvrtc import compiler, toolchain  # noqa: E402
from kernels.workload import Workload  # noqa: E402

FORMATS = Path(__file__).parents[1] / "formats" / "cuda"
pytestmark = pytest.mark.skipif(bool(toolchain.why_not()), reason=toolchain.why_not())

WITHOUT_INCLUDE = (
    "constexpr float least = -INFINITY; x[0] = least;",
    "x[0] = NAN;",
    "x[0] = FLT_MAX + FLT_MIN + FLT_EPSILON;",
    "x[0] = float(M_PI * M_SQRT1_2 * M_2_SQRTPI);",
    "uint32_t a = INT_MAX; uint8_t b = 1; int64_t c = 2; uintptr_t d = 3; x[0] = float(a + b + c + d);",
    'printf("%d\\n", min(1, 2));',
)
WITH = {
    "math.h": "x[0] = expf(M_PI) - INFINITY;",
    "cmath": "x[0] = std::exp(x[1]) + std::sqrt(x[2]) + float(M_PI) - INFINITY;",
    "float.h": "x[0] = FLT_MAX;",
    "limits.h": "x[0] = INT_MAX;",
    "stdint.h": "uint16_t a = 1; x[0] = a;",
    "cstdint": "std::uint32_t a = 1; x[0] = a;",
    "stdio.h": 'printf("%d\\n", 1);',
    "stdlib.h": "size_t a = 1; x[0] = a;",
    "assert.h": "assert(x);",
    "string.h": "int a, b = 1; memcpy(&a, &b, 4); x[0] = a;",
    "limits": "x[0] = std::numeric_limits<float>::infinity();",
    "algorithm": "x[0] = std::max(1, 2);",
    "type_traits": "static_assert(std::is_same_v<int, int>);",
    "cuda_runtime.h": "float4 a = {}; x[0] = a.x - INFINITY;",
    "cuda/std/cmath": "x[0] = -INFINITY;",
}


def compiled(body, *headers):
    includes = "".join(f"#include <{header}>\n" for header in headers)
    text = f'{includes}extern "C" __global__ void k(float* x) {{ {body} }}\n'
    return compiler.compiled(compiler.Source(text, "k.cu", "k"), "sm_90a")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(compiler.CACHE_VARIABLE, str(tmp_path))


@pytest.mark.parametrize("body", WITHOUT_INCLUDE)
def test_names_that_need_no_include(body):
    assert "warning" not in compiled(body).log


@pytest.mark.parametrize("header", WITH)
def test_headers_of_the_libraries(header):
    assert "warning" not in compiled(WITH[header], header).log


def test_all_headers_together():
    assert "warning" not in compiled("x[0] = INFINITY;", *WITH, "cuda_fp16.h", "cuda_bf16.h", "cuda_pipeline.h").log


def test_a_line_number_is_that_of_the_file():
    with pytest.raises(compiler.CompileError, match=r"^k\.cu\(2\): error: identifier \"wrong\" is undefined"):
        compiled("x[0] = wrong;", "cuda_fp16.h")


def test_a_changed_library_is_compiled_again(monkeypatch, tmp_path):
    library = tmp_path / "library"
    library.mkdir()
    for path in compiler.LIBRARY.iterdir():
        (library / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(compiler, "LIBRARY", library)
    source = compiler.Source('extern "C" __global__ void k(float* x) { x[0] = M_PI; }\n', "k.cu", "k")
    before = compiler.compiled(source, "sm_90a").cubin
    usual = library / compiler.USUAL
    usual.write_text(usual.read_text().replace("3.14159", "4.14159"))
    assert compiler.compiled(source, "sm_90a").cubin != before


@pytest.mark.parametrize("name", ["gemm_naive", "layer_norm", "rms_norm", "softmax_row", "swish"])
def test_a_function_as_people_have_it_compiles(name, tmp_path):
    found = adapted_cuda((FORMATS / f"{name}.cu").read_text(), f"cuda/{name}")
    (tmp_path / f"{name}.cu").write_text(found.text)
    (info,) = read_kernels(found.operation, tmp_path / f"{name}.cu")
    text = load(info).call.text
    sizes = {"m": 8, "n": 8, "k": 8} if found.operation == "gemm" else {"rows": 8, "cols": 8}
    for dtype in info.dtypes or ("float16", "bfloat16", "float32"):
        inputs = Workload(operation=found.operation, dtype=dtype, sizes=sizes).problem.inputs("cpu", 0)
        values = text.values(inputs.tensors, inputs.options, 132)
        assert compiler.compiled(text.compiled_from(values, inputs.tensors[0].dtype), "sm_90a").registers

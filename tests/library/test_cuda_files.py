"""What a .cu file declares: read and not run. Nothing here compiles: tests/kernels/test_cuda_kernels.py does."""

import ast

import pytest

from kernels import catalog
from kernels.catalog import cuda, get_kernel, kernels
from kernels.nvrtc import toolchain
from kernels.nvrtc.expressions import BadExpression, Expression, Tensor

MINE = """\
// Copyright: somebody.

// One block for each row.
// It has a second line.
// @kernel("layer_norm", dtypes=("float16",), needs=cuda(min_capability=8.0), limits={"cols": (1024,)})
// @launch(grid=rows, block=256)
// @call("mine<T>", x, weight, bias, out, cols, eps)
template <typename T> __global__ void mine(const T* x, const T* w, const T* b, T* out, int cols, float eps) {}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of LayerNorm kernels on KERNEL_PATH."""
    monkeypatch.setenv("KERNEL_PATH", str(tmp_path))
    (tmp_path / "layer_norm").mkdir()
    return tmp_path / "layer_norm"


def error_of(folder, text):
    (folder / "mine.cu").write_text(text)
    (info,) = [info for info in kernels("layer_norm") if info.path.endswith("mine.cu")]
    return info.error


# --- declarations -----------------------------------------------------------------------------------------------------


def test_three_comment_lines_make_a_kernel(folder):
    (folder / "my_way.cu").write_text(MINE)
    info = get_kernel("layer_norm", "my-way")
    assert (info.backend, info.dtypes, info.limits) == ("cuda", ("float16",), {"cols": (1024,)})
    assert info.needs == cuda(min_capability=8.0)
    assert (info.doc, info.error) == ("One block for each row.", "")


def test_without_needs_it_needs_a_cuda_device(folder):
    (folder / "mine.cu").write_text(MINE.replace(", needs=cuda(min_capability=8.0)", ""))
    info = get_kernel("layer_norm", "mine")
    assert info.why_not_on("cpu", None) == "needs a CUDA device"


def test_a_statement_may_go_on_over_several_lines(folder):
    text = MINE.replace("grid=rows, block=256)", "grid=rows,\n//         block=min(256,\n//                   cols))")
    assert error_of(folder, text) == ""


def test_a_file_may_declare_several_kernels_each_with_a_name(folder):
    declaration, _, source = MINE.partition("template")
    first, second = (declaration.replace('"layer_norm",', f'"layer_norm", name="{name}",') for name in "ab")
    (folder / "mine.cu").write_text(first + second + "template" + source)
    assert {"a", "b"} <= {info.name for info in kernels("layer_norm")}
    assert "declares 2 kernels: give each @kernel a name" in error_of(folder, declaration + declaration)


BAD = {
    "none": ("__global__ void f() {}", "it declares no kernel"),
    "no call": ("\n".join(MINE.splitlines()[:-2]), "line 5: @kernel needs `// @call("),
    "no launch": (MINE.replace("// @launch(grid=rows, block=256)\n", ""), "line 5: @kernel needs `// @launch("),
    "a launch alone": ("// @launch(grid=1, block=1)", "line 1: @launch comes before any @kernel"),
    "a second launch": (MINE.replace("// @call", "// @launch(grid=1, block=1)\n// @call"), "line 7: a second @launch"),
    "never closed": (MINE.replace("block=256)", "block=256"), "line 6: `@launch(grid=rows, block=256` is not closed"),
    "no block": (MINE.replace(", block=256", ""), "line 6: @launch takes grid= and block="),
    "another argument": (MINE.replace("block=256", "block=256, cluster=2"), "line 6: @launch takes grid= and block="),
    "a size that is not there": (
        MINE.replace("grid=rows", "grid=lines"),
        "line 6: layer_norm has no `lines`; there are",
    ),
    "an option that is not there": (MINE.replace("eps)\n", "epsilon)\n"), "line 7: layer_norm has no `epsilon`"),
    "an expression that calls": (MINE.replace("grid=rows", "grid=open('x')"), "line 6: `open('x')` is not allowed"),
    "no entry point": (MINE.replace('"mine<T>", ', ""), "line 7: @call takes the name of the kernel"),
    "a strange entry point": (MINE.replace("mine<T>", "mine;drop"), "line 7: `mine;drop` is not the name of a kernel"),
    "options that the compiler lacks": (
        MINE.replace("block=256", 'block=256, options={"include_path": "/"}'),
        "line 6: options is a dict of the compiler's options",
    ),
    "a computed operation": (MINE.replace('"layer_norm"', "WHICH"), "line 5: the operation must be a literal"),
    "another operation": (MINE.replace('"layer_norm"', '"norm"'), "there is no operation 'norm'"),
    "a header by its path": (MINE + '# include "/etc/mine.h"\n', "line 9: only CUDA's headers can be included"),
    "a header of another folder": (MINE + "#include <../mine.h>\n", "line 9: only CUDA's headers can be included"),
    "not Python": (MINE.replace("grid=rows", "grid=->"), "line 6: `@launch(grid=->, block=256)` is not valid"),
}


BAD_MAPS = {
    "without a box": ("tensor_map(x)", "the box has 0 dimensions; it must have one to 5"),
    "six dimensions": ("tensor_map(x, 1, 2, 3, 4, 5, 6)", "the box has 6 dimensions; it must have one to 5"),
    "dimensions that the tensor has not": (
        "tensor_map(x, 64)",
        "the box has 1 and x has 2 dimensions: rows, cols",
    ),
    "of a size": ("tensor_map(rows, 64, 8)", "rows is no tensor; there are x, weight, bias and out"),
    "of scratch memory": ("tensor_map(scratch, 64)", "scratch is no tensor; there are x, weight, bias and out"),
    "of an expression": ("tensor_map(x.shape[0], 64, 8)", "tensor_map takes the name of a tensor and the numbers"),
    "of nothing": ("tensor_map()", "tensor_map takes the name of a tensor and the numbers"),
    "another keyword": ("tensor_map(x, 64, 8, fill=0)", "tensor_map has no `fill`; it has swizzle and l2"),
    "several keywords": ("tensor_map(x, 64, 8, **all)", "tensor_map has no `**`; it has swizzle and l2"),
    "a swizzle that is not there": ("tensor_map(x, 64, 8, swizzle=100)", "swizzle is 100; it must be 0, 32, 64 or 128"),
    "a computed one": ("tensor_map(x, 64, 8, l2=2 * 256)", "l2 is 512; it must be 0, 64, 128 or 256"),
    "a swizzle that is no number": (
        "tensor_map(x, 64, 8, swizzle=True)",
        "swizzle is True; it must be 0, 32, 64 or 128",
    ),
    "a large box": ("tensor_map(x, 64, 257)", "257 is too much; a box has at most 256"),
    "an empty box": ("tensor_map(x, 0, 8)", "`0` is 0; it must be a whole number above 0"),
    "half an element": ("tensor_map(x, 64, 5 / 2)", "`5 / 2` is 2.5; it must be a whole number above 0"),
    "a size that is not there": ("tensor_map(x, lines, 8)", "layer_norm has no `lines`; there are"),
    "a word": ("tensor_map(x, 'all', 8)", "`'all'` is not allowed; allowed are numbers"),
}


@pytest.mark.parametrize("argument, reason", BAD_MAPS.values(), ids=BAD_MAPS)
def test_a_tensor_map_that_cannot_be_is_listed_with_line_and_reason(folder, argument, reason):
    error = error_of(folder, MINE.replace("bias, out,", f"bias, {argument},"))
    assert error.startswith("mine.cu cannot be read: line 7: ") and reason in error


@pytest.mark.parametrize(
    "argument",
    ["tensor_map(x, 64, 128, swizzle=128)", "tensor_map(out, min(cols, 64), 256)", "tensor_map(weight, COLS // 2, l2=0)",
     "tensor_map(x, 64, 1, swizzle=128 if cols > 64 else 0, l2=COLS)"],
)  # fmt: skip
def test_a_tensor_map_is_an_argument(folder, argument):
    text = MINE.replace("bias, out,", f"bias, {argument},").replace("block=256", 'block=256, defines={"COLS": 64}')
    assert error_of(folder, text) == ""


def test_a_tensor_map_is_no_number(folder):
    assert "`tensor_map(x, 64, 8)` is not allowed" in error_of(folder, MINE.replace("=rows", "=tensor_map(x, 64, 8)"))


@pytest.mark.parametrize("text, reason", BAD.values(), ids=BAD)
def test_a_bad_declaration_is_listed_with_file_line_and_reason(folder, text, reason):
    error = error_of(folder, text)
    assert error.startswith("mine.cu cannot be read: ") and reason in error


def test_a_host_without_a_package_lists_the_kernel_with_the_command(folder, monkeypatch):
    (folder / "mine.cu").write_text(MINE)
    monkeypatch.setattr(toolchain, "_version", lambda package: None if package == "cuda-core" else "13.0.1")
    toolchain._why_not.cache_clear()
    try:
        why = {one["name"]: one["why_not"] for one in catalog.declared("cuda", 9.0) if one["operation"] == "layer_norm"}
    finally:
        toolchain._why_not.cache_clear()
    assert why["mine"] == "package cuda-core is not installed on this device: pip install cuda-core"
    assert why["eager"] == ""


# --- where the compiler is --------------------------------------------------------------------------------------------

WHEELS = {
    12: {"cuda_nvrtc/lib/libnvrtc.so.12", "cuda_runtime/include/cuda_fp16.h", "cuda_runtime/include/mma.h",
         "cuda_nvcc/include/crt/mma.h", "cuda_cccl/include/nv/target"},
    13: {"cu13/lib/libnvrtc.so.13", "cu13/include/cuda_fp16.h", "cu13/include/mma.h", "cu13/include/crt/mma.h",
         "cu13/include/cccl/nv/target"},
}  # fmt: skip


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host with the packages of a version of CUDA: host(13, without="crt/mma.h")."""

    def made(major, without=""):
        for number, name in enumerate(WHEELS[major]):
            folder = tmp_path / str(number % 2)  # a virtual environment and the host's packages
            if not (without and name.endswith(without)):
                (folder / "nvidia" / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / "nvidia" / name).write_text("")
        known = {"cuda-core": "1.2.0", "cuda-bindings": f"{major}.0.3"}
        known |= {"nvidia-cuda-runtime" if major == 13 else "nvidia-cuda-runtime-cu12": f"{major}.0.96"}
        monkeypatch.setattr(toolchain, "_version", known.get)
        monkeypatch.setattr(toolchain, "DEFAULT_TOOLKIT", str(tmp_path / "none"))
        monkeypatch.setattr("sys.path", [str(tmp_path / "0"), str(tmp_path / "1")])
        for name in (*toolchain.TOOLKITS, "LD_LIBRARY_PATH"):
            monkeypatch.delenv(name, raising=False)
        return toolchain.why_not()

    return made


@pytest.mark.parametrize("major", WHEELS)
def test_wheels_are_found_wherever_they_lie(host, major):
    assert host(major) == ""


@pytest.mark.parametrize(
    "major, without, why",
    {
        "the library": (13, "libnvrtc.so.13", "NVRTC of CUDA 13 is not installed on this device: pip install nvidia-cuda-nvrtc"),
        "of 12": (12, "libnvrtc.so.12", "NVRTC of CUDA 12 is not installed on this device: pip install nvidia-cuda-nvrtc-cu12"),
        "crt": (
            13,
            "crt/mma.h",
            "headers of CUDA 13 are missing on this device (crt/mma.h): pip install 'nvidia-cuda-crt==13.0.*'",
        ),
        "crt of 12": (
            12,
            "crt/mma.h",
            "headers of CUDA 12 are missing on this device (crt/mma.h): pip install 'nvidia-cuda-nvcc-cu12==12.0.*'",
        ),
        "cccl": (
            13,
            "nv/target",
            "headers of CUDA 13 are missing on this device (nv/target): pip install nvidia-cuda-cccl",
        ),
    }.values(),
)  # fmt: skip
def test_what_is_missing_is_named_with_the_command(host, major, without, why):
    assert host(major, without) == why


def test_headers_of_another_version_are_not_taken(host, tmp_path):
    host(13)
    for folder, version in (("0", 12090), ("1", 12090)):
        if (inside := tmp_path / folder / "nvidia/cu13/include").is_dir():
            (inside / "cuda.h").write_text(f"#define CUDA_VERSION {version}\n")
    assert toolchain.include_folders(13) == []


# --- expressions ------------------------------------------------------------------------------------------------------

VALUES = {"rows": 10, "cols": 7, "eps": 1e-5, "causal": True, "kind": "tanh", "x": Tensor((10, 7), (7, 1))}


@pytest.mark.parametrize(
    "text, value",
    [
        ("ceil_div(rows, 4)", 3),
        ("(rows, cols + 1)", (10, 8)),
        ("rows if causal and cols % 2 == 1 else 0", 10),
        ("not causal or rows > 10", False),
        ("x.shape[0] * x.stride[1]", 10),
        ("min(512, next_power_of_2(rows))", 16),
        ("-rows // 3", -4),
        ("rows / 4", 2.5),
        ("1 < rows <= 10", True),
        ("kind == 'tanh'", True),
    ],
)
def test_an_expression_is_computed(text, value):
    assert Expression.parsed(text).value(VALUES) == value


@pytest.mark.parametrize(
    "text",
    ["__import__('os')", "x.__class__", "rows.real", "[1]", "'text'", "lambda: 1", "rows ** 99999", "1 << rows", "x.data[0]",
     "(rows := 3)", "min(rows, key=1)", "eval(rows)", "f'{rows}'", "rows.__add__(1)", "{}"],
)  # fmt: skip
def test_what_is_not_arithmetic_is_refused(text):
    with pytest.raises(BadExpression, match="not allowed"):
        Expression.parsed(text)


def test_an_expression_that_cannot_be_computed_says_why():
    with pytest.raises(BadExpression, match=r"`rows // \(cols - 7\)` cannot be computed: integer"):
        Expression.parsed("rows // (cols - 7)").value(VALUES)


def test_every_operation_names_its_tensors_and_options_as_they_are():
    torch = pytest.importorskip("torch")
    from kernels.config_files import configs

    for name, operation in catalog.operations().items():
        known = [w.problem for config in configs() for w in config.workloads if w.operation == name]
        problem = min(known, key=lambda one: one.tensor_bytes)
        inputs = problem.inputs("cpu", 0)
        told = set(operation.on_request) - set(inputs.options)
        assert set(operation.options) == {*inputs.options, *told}, name
        assert all(getattr(problem, option) == operation.on_request[option] for option in told)
        for (tensor, sizes), made in zip(operation.tensors.items(), inputs.tensors, strict=True):
            assert isinstance(made, torch.Tensor)
            assert tuple(getattr(problem, size) for size in sizes) == tuple(made.shape), (name, tensor)


def test_names_of_an_expression_are_not_those_of_functions():
    assert Expression(ast.parse("min(rows, x.shape[cols])", mode="eval").body).names == {"rows", "x", "cols"}

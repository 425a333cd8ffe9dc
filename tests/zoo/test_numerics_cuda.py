"""On a GPU: the catalogue's kernels are not accused on the canonical shapes, and almost right ones are caught. A minute.

Needs no site: python -m pytest --noconftest -c /dev/null --rootdir . tests/zoo/test_numerics_cuda.py
"""

import pytest
from numerics import judged
from row_operations import ROW_OPERATIONS

from kernels import catalog
from kernels.config_files import load_config
from kernels.host.device import NoSuchDevice, find_device
from kernels.operations.attention import Attention
from kernels.operations.gemm import Gemm
from kernels.operations.layer_norm import LayerNorm

try:
    DEVICE = find_device("cuda")
    NO_DEVICE = ""
except NoSuchDevice as error:
    NO_DEVICE = str(error)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.thorough("the zoo's numerics with a GPU"),
    pytest.mark.skipif(bool(NO_DEVICE), reason=NO_DEVICE),
]

DTYPES = ("float16", "bfloat16", "float32")
FULL = Attention(batch=4, heads=16, seq_len=512, head_dim=64)
CAUSAL = Attention(batch=1, heads=20, seq_len=2048, head_dim=128, causal=True)
GROUPED = Attention(batch=1, heads=8, kv_heads=2, seq_len=512, head_dim=128)
NORM = LayerNorm(rows=8192, cols=4096)
PRODUCT = Gemm(m=4096, n=4096, k=4096)
SHAPES = {"attention": FULL, "causal": CAUSAL, "grouped": GROUPED, "layer norm": NORM, "gemm": PRODUCT} | {
    name: min(load_config(name.replace("_", "-")).workloads, key=lambda w: w.problem.tensor_bytes).problem
    for name in ("softmax", "rms_norm", "cross_entropy", "gelu", "swish", "mse_loss")
}
"""Those that memory limits: the smallest of their configs."""
COMPILED = (("attention", "float16"),)
"""`compiled` takes seconds for each shape and dtype."""
FLASHES = ["plain-flash", "folded-scale", "folded-scale-in-base-2", "folded-into-both"]
FLAWED = ["scale-off-by-a-thousandth", "scale-off-by-three-thousandths", "last-key-dropped", "rescaling-skipped"]
NORMS = ["written-out", "rounded-twice", "in-one-pass"]
FLAWED_NORMS = ["without-eps", "eps-a-tenth", "unbiased-variance", "last-column-left-out"]


def in_dtype(problem, dtype):
    return problem.model_copy(update={"dtype": dtype})


def wrongly(found, of):
    return {name: found[name]["why"] for name in of if not found[name]["correct"]}


def runnable(problem):
    """The catalogue's kernels that declare this workload on this device."""
    return [
        info.name
        for info in catalog.kernels(problem.name)
        if not info.error
        and not info.why_not_on(DEVICE.kind, DEVICE.capability)
        and not info.why_not_for(problem.dtype, problem.model_dump())
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_catalogue_is_not_accused(shape, dtype):
    problem = in_dtype(SHAPES[shape], dtype)
    kernels = [name for name in runnable(problem) if name != "compiled" or (shape, dtype) in COMPILED]
    found = judged("cuda", kernels, problem)
    for name, said in found.items():
        slope = said.get("slope")
        print(f"{shape} {dtype} {name}: {said['frobenius']:.2e} of {said['yard_frobenius']:.2e}", end="")
        print(f", slope {slope:+.1e}, {said.get('precision', '')}" if slope is not None else "")
    assert wrongly(found, found) == {}
    assert len(found) >= (1 if (shape, dtype) == ("gemm", "float32") else 2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_that_is_almost_right_is_caught_and_honest_variants_are_not(dtype):
    of_dtype = ["scores-in-half"] if dtype == "float16" else []
    causal = [(CAUSAL, FLAWED)] if dtype != "float32" else []  # its exact reference takes seconds
    for problem, flawed in [(FULL, FLAWED + of_dtype), *causal]:
        found = judged("cuda", FLASHES + flawed, in_dtype(problem, dtype))
        assert wrongly(found, FLASHES) == {}
        assert [name for name in flawed if found[name]["correct"]] == []


@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_norm_that_is_almost_right_is_caught_and_honest_variants_are_not(dtype):
    right = NORMS if dtype != "float32" else NORMS[:1]
    found = judged("cuda", right + FLAWED_NORMS, in_dtype(NORM, dtype))
    assert wrongly(found, right) == {}
    assert [name for name in FLAWED_NORMS if found[name]["correct"]] == []


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", ROW_OPERATIONS)
def test_of_an_operation_that_memory_limits_the_wrong_kernels_fail_and_the_right_ones_pass(operation, dtype):
    problem, right, wrong = ROW_OPERATIONS[operation]
    found = judged("cuda", [*right, *wrong], in_dtype(problem, dtype))
    assert wrongly(found, found.keys() & right) == {}
    assert [name for name in wrong if found[name]["correct"]] == []


def test_float32_products_are_named_and_those_of_bfloat16_are_caught():
    found = judged("cuda", ["eager", "tf32x3", "bf16x3"], in_dtype(PRODUCT, "float32"))
    assert found["eager"]["precision"] == "as float32"
    assert found["tf32x3"]["precision"].startswith("as with three tf32 products")
    assert not found["bf16x3"]["correct"]

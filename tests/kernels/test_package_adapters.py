"""Kernels of attention that call a package: what they ask of it is attention in this window, and what is said without it.

The packages are not here. Stand-ins with their signatures compute attention as the packages' documentation defines it.
"""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from kernels.catalog import Unsupported, get_kernel

torch = pytest.importorskip("torch")

from kernels.analysis.correctness import judge  # noqa: E402
from kernels.catalog import load  # noqa: E402
from kernels.child.reference import Reference, measure  # noqa: E402
from kernels.operations.attention import Attention  # noqa: E402
from kernels.operations.gemm import Gemm, tilelang_gemm  # noqa: E402


def attend(q, k, v, scale, left, right):
    """(B, S, H, D); left, right: keys that a query sees on either side of its own; None: all."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    i = torch.arange(q.shape[2])
    hidden = torch.zeros(len(i), len(i), dtype=torch.bool)
    if left is not None:
        hidden |= i < i[:, None] - left
    if right is not None:
        hidden |= i > i[:, None] + right
    weights = (q.float() @ k.float().mT * scale).masked_fill(hidden, float("-inf")).softmax(-1)
    return (weights @ v.float()).to(q.dtype).transpose(1, 2).contiguous()


def flash_attn_4(monkeypatch):
    def flash_attn_func(q, k, v, *, softmax_scale=None, causal=False, window_size=(None, None)):
        left, right = window_size
        return attend(q, k, v, softmax_scale, left, 0 if causal else right), None

    planted(monkeypatch, "flash_attn.cute", flash_attn_func=flash_attn_func)


def flash_attn_2(monkeypatch):
    def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1)):
        left, right = (None if side < 0 else side for side in window_size)
        return attend(q, k, v, softmax_scale, left, 0 if causal else right)

    planted(monkeypatch, "flash_attn", flash_attn_func=flash_attn_func)


def xformers(monkeypatch):
    def memory_efficient_attention(query, key, value, attn_bias=None, p=0.0, scale=None):
        if query.dim() == 5:
            query, key, value = (x.flatten(2, 3) for x in (query, key, value))
        return shaped(attend(query, key, value, scale, *(attn_bias or (None, None))))

    def shaped(out):
        return out.unflatten(2, (2, 2)) if out.shape[2] == 4 else out

    masks = SimpleNamespace(
        LowerTriangularMask=lambda: (None, 0),
        LowerTriangularFromBottomRightLocalAttentionMask=lambda window: (window - 1, 0),
        LocalAttentionFromBottomRightMask=lambda window_left, window_right: (window_left, window_right),
    )
    fmha = SimpleNamespace(attn_bias=masks)
    ops = ModuleType("xformers.ops")
    ops.memory_efficient_attention, ops.fmha = memory_efficient_attention, fmha
    planted(monkeypatch, "xformers", ops=ops)


def planted(monkeypatch, name, **contents):
    for part in [name.rsplit(".", n)[0] for n in range(name.count(".") + 1)]:
        monkeypatch.setitem(sys.modules, part, ModuleType(part))
    vars(sys.modules[name]).update(contents)


@pytest.mark.parametrize("plant", [flash_attn_4, flash_attn_2, xformers], ids=lambda plant: plant.__name__)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("window", [0, 1, 21])
@pytest.mark.parametrize("kv_heads", [2, 4])
def test_it_asks_for_this_attention(monkeypatch, plant, kv_heads, window, causal):
    if plant is xformers and kv_heads == 4:
        kv_heads, heads = 2, 2
    else:
        heads = 4
    plant(monkeypatch)
    problem = Attention(
        batch=2, heads=heads, kv_heads=kv_heads, seq_len=65, head_dim=40, causal=causal, window=window, scale=0.2
    )
    inputs = problem.inputs("cpu", 3)
    out = load(get_kernel("attention", plant.__name__.replace("_", "-"))).call(*inputs.tensors, **inputs.options)
    said = judge([measure(out, Reference(problem, inputs, 3, True))], problem.dtype)
    assert said["correct"], said["why"]


@pytest.mark.parametrize(
    "name, wheel",
    [
        ("gemm/tilelang", "tilelang"),
        ("gemm/tilelang-cutedsl", "tilelang"),
        ("flash-attn-4", "flash-attn-4"),
        ("flash-attn-2", "flash-attn"),
        ("xformers", "xformers"),
        ("tilelang", "tilelang"),
        ("tilelang-cutedsl", "tilelang"),
    ],
)
def test_without_the_package_it_is_listed_with_the_command(monkeypatch, tmp_path, name, wheel):
    operation, _, name = name.rpartition("/")
    info = get_kernel(operation or "attention", name)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    sys.path_importer_cache.clear()
    assert info.why_not_on("cuda", 9.0) == f"package {wheel} is not installed on this device: pip install {wheel}"


def test_a_part_of_a_package_is_looked_for_without_importing_it(monkeypatch, tmp_path):
    (tmp_path / "flash_attn" / "cute").mkdir(parents=True)
    (tmp_path / "flash_attn" / "cute" / "__init__.py").write_text("raise SystemExit('do not import me')\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert get_kernel("attention", "flash-attn-4").why_not_on("cuda", 9.0) == ""
    assert "pip install flash-attn" in get_kernel("attention", "flash-attn-2").why_not_on("cuda", 9.0)
    (tmp_path / "flash_attn" / "__init__.py").write_text("raise SystemExit('do not import me')\n")
    (tmp_path / "flash_attn" / "flash_attn_interface.py").write_text("")
    sys.path_importer_cache.clear()
    assert get_kernel("attention", "flash-attn-2").why_not_on("cuda", 9.0) == ""


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("trans_a, trans_b", [(False, False), (True, False), (True, True)])
def test_tilelangs_product_is_always_one_of_a_batch(monkeypatch, batch, trans_a, trans_b):
    def compiled(of_a, of_b, trans_a, trans_b, dtype, target):
        assert len(of_a) == len(of_b) == 3 and (dtype, target) == ("bfloat16", "cuda")
        return lambda a, b: (a.mT if trans_a else a) @ (b.mT if trans_b else b)

    monkeypatch.setattr(tilelang_gemm, "_compiled", compiled)
    problem = Gemm(m=9, n=20, k=17, batch=batch, trans_a=trans_a, trans_b=trans_b, dtype="bfloat16")
    inputs = problem.inputs("cpu", 3)
    out = tilelang_gemm.tilelang(*inputs.tensors, **inputs.options)
    said = judge([measure(out, Reference(problem, inputs, 3, True))], problem.dtype)
    assert said["correct"], said["why"]


@pytest.mark.parametrize(("trans_a", "trans_b"), [(False, False), (True, False), (False, True)])
def test_the_cute_dsl_refuses_a_k_that_it_cannot_compile(monkeypatch, trans_a, trans_b):
    monkeypatch.setattr(tilelang_gemm, "_compiled", lambda *shapes: lambda a, b: (shapes[0], "compiled"))
    for k, refused in ((65, True), (64, False), (72, False)):
        inputs = Gemm(m=9, n=20, k=k, trans_a=trans_a, trans_b=trans_b, dtype="bfloat16").inputs("cpu", 3)
        if refused:
            with pytest.raises(Unsupported, match="K is 65; "):
                tilelang_gemm.tilelang_cutedsl(*inputs.tensors, **inputs.options)
        else:
            tilelang_gemm.tilelang_cutedsl(*inputs.tensors, **inputs.options)
        tilelang_gemm.tilelang(*inputs.tensors, **inputs.options)


@pytest.mark.parametrize(
    ("operation", "cols", "dtype", "why"),
    [
        ("softmax", 63, torch.float32, "multiples of 4 columns"),
        ("softmax", 12, torch.float16, "multiples of 8 columns"),
        ("rms_norm", 63, torch.bfloat16, "even numbers of columns"),
        ("layer_norm", 1, torch.float16, "even numbers of columns"),
        ("cross_entropy", 63, torch.float16, "even numbers of columns"),
    ],
)
def test_a_width_that_quack_cannot_copy_is_unsupported(operation, cols, dtype, why):
    call = load(get_kernel(operation, "quack")).call
    x, weight, targets = torch.zeros(5, cols, dtype=dtype), torch.ones(cols, dtype=dtype), torch.zeros(5).long()
    others = {"softmax": (), "rms_norm": (weight,), "layer_norm": (weight, weight), "cross_entropy": (targets,)}
    with pytest.raises(Unsupported, match=why):
        call(x, *others[operation], **({"eps": 1e-5} if "norm" in operation else {}))


def test_quack_is_asked_for_widths_that_it_can_copy(monkeypatch):
    planted(monkeypatch, "quack", softmax=lambda x: x.softmax(-1), rmsnorm=lambda x, weight, eps: x * weight)
    assert load(get_kernel("softmax", "quack")).call(torch.zeros(5, 12)).shape == (5, 12)
    half = torch.zeros(5, 62, dtype=torch.float16)
    assert load(get_kernel("rms_norm", "quack")).call(half, half[0], eps=1e-6).shape == (5, 62)

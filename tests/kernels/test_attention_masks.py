"""Attention in a window, with a scale and with keys of its own: work by hand, and kernels that are right or wrong about them."""

import sys

import pytest

from kernels.catalog import get_kernel, kernels
from kernels.operations.attention import Attention
from kernels.workload import Workload

torch = pytest.importorskip("torch")

from kernels.analysis.correctness import judge  # noqa: E402
from kernels.catalog import load  # noqa: E402
from kernels.child.reference import Reference, measure  # noqa: E402
from kernels.dtypes import DTYPES  # noqa: E402

SIZES = {"batch": 2, "heads": 4, "kv_heads": 2, "seq_len": 96, "head_dim": 40}


def problem(**sizes):
    return Attention(**SIZES | sizes)


# --- work -------------------------------------------------------------------------------------------------------------


def test_work_by_hand():
    """Mistral 7B at 8,192: 4096 x 4097 / 2 pairs while the window fills, then 4,096 for each of 4,096 queries."""
    mistral = Attention(batch=1, heads=32, kv_heads=8, seq_len=8192, head_dim=128, causal=True, window=4096)
    assert mistral.pairs == 8_390_656 + 16_777_216
    assert mistral.flops() == 4 * 25_167_872 * 128 * 32 == 412_350_414_848
    assert mistral.flops_formula()[1] == "4 x (4096 x 4097 / 2 + 4096 x 4096) x 128 x 1 x 32"
    assert mistral.dense_flops() == 4 * 8192**2 * 128 * 32
    assert mistral.bytes_moved() == (2 * 8192 * 128 * (32 + 16), 2 * 8192 * 128 * 32)
    both = Attention(batch=1, heads=1, seq_len=5, head_dim=8, window=2)
    assert (both.pairs, both.flops()) == (13, 4 * 13 * 8)  # 5 on the diagonal, 4 on each side of it
    assert both.flops_formula()[1] == "4 x (5^2 - 3 x 4) x 8 x 1 x 1"


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("seq_len", [1, 2, 7, 64])
@pytest.mark.parametrize("window", [0, 1, 2, 6, 7, 63])
def test_pairs_are_what_the_mask_leaves(seq_len, window, causal):
    asked = problem(seq_len=seq_len, window=window, causal=causal)
    scores = asked._masked(torch.zeros(seq_len, seq_len), None)
    assert asked.pairs == int(scores.isfinite().sum())
    near = window or seq_len
    assert asked.pairs == sum(
        0 <= i - j < near if causal else abs(i - j) < near for i in range(seq_len) for j in range(seq_len)
    )
    assert _numbers(asked.flops_formula()[1]) == asked.flops()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("seq_len, kv_len", [(1, 2), (1, 40), (4, 5), (16, 40), (7, 3)])
@pytest.mark.parametrize("window", [0, 1, 3, 17, 39])
def test_pairs_of_two_lengths_are_what_the_mask_leaves(seq_len, kv_len, window, causal):
    if kv_len < seq_len and (causal or window):
        with pytest.raises(ValueError, match="needs a key: 7 queries, 3 keys"):
            problem(seq_len=seq_len, kv_len=kv_len, window=window, causal=causal)
        return
    asked = problem(seq_len=seq_len, kv_len=kv_len, window=window, causal=causal)
    scores = asked._masked(torch.zeros(seq_len, kv_len), None)
    near, first = window or kv_len + seq_len, kv_len - seq_len
    assert asked.pairs == int(scores.isfinite().sum())
    assert asked.pairs == sum(
        0 <= i + first - j < near if causal else abs(i + first - j) < near
        for i in range(seq_len)
        for j in range(kv_len)
    )
    assert _numbers(asked.flops_formula()[1]) == asked.flops()


def test_work_of_decoding_by_hand():
    """A token of Llama 3 8B after 8,191 others: every query sees every key; K and V are nearly all that is read."""
    token = Attention(batch=2, heads=32, kv_heads=8, seq_len=1, kv_len=8192, head_dim=128, causal=True)
    assert token.pairs == 8192
    assert token.flops() == token.dense_flops() == 4 * 8192 * 128 * 2 * 32
    assert token.bytes_moved() == (2 * 2 * 128 * (32 + 2 * 8 * 8192), 2 * 2 * 128 * 32)
    assert token.label() == "B=2 H=32 Hkv=8 S=1 Skv=8192 D=128 causal"
    draft = Attention(batch=1, heads=1, seq_len=4, kv_len=10, head_dim=8, causal=True)
    assert draft.pairs == 7 + 8 + 9 + 10


def _numbers(formula):
    return int(eval(formula.replace("^", "**").replace("x", "*")))  # our own text: digits and operators


# --- right and wrong kernels ------------------------------------------------------------------------------------------


def attend(q, k, v, causal, scale, window=0, left=None, right=None):
    """left, right: keys that a query sees on either side of its own."""
    left = window - 1 if left is None else left
    right = (0 if causal else left) if right is None else right
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1).float() for x in (k, v))
    i = torch.arange(q.shape[2])
    hidden = (i > i[:, None] + right) | (i < i[:, None] - left)
    return ((q.float() @ k.mT * scale).masked_fill(hidden, float("-inf")).softmax(-1) @ v).to(q.dtype)


def by_index(q, k, v, causal, scale, window):
    """Gathers the keys of each query, one query after the other."""
    rows = []
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    for i in range(q.shape[2]):
        seen = slice(max(0, i - window + 1), i + 1 if causal else i + window)
        weights = (q[:, :, i, None].float() @ k[:, :, seen].float().mT * scale).softmax(-1)
        rows.append((weights @ v[:, :, seen].float()).to(q.dtype))
    return torch.cat(rows, 2)


RIGHT = {
    "masked": attend,
    "gathered": by_index,
    "scale in q": lambda q, k, v, causal, scale, window: attend((q * scale).to(q.dtype), k, v, causal, 1.0, window),
}
WRONG = {
    "a key too many": lambda q, k, v, causal, scale, window: attend(q, k, v, causal, scale, window + 1),
    "a key too few": lambda q, k, v, causal, scale, window: attend(q, k, v, causal, scale, window - 1),
    "its own key not counted": lambda q, k, v, causal, scale, window: attend(
        q, k, v, causal, scale, left=window, right=0 if causal else window
    ),
    "no window": lambda q, k, v, causal, scale, window: attend(q, k, v, causal, scale, q.shape[2]),
    "half of the window on each side": lambda q, k, v, causal, scale, window: attend(
        q, k, v, causal, scale, left=window // 2, right=0 if causal else window // 2
    ),
    "whole blocks of keys": lambda q, k, v, causal, scale, window: attend(
        q, k, v, causal, scale, left=-(-window // 16) * 16, right=0 if causal else window - 1
    ),
    "the usual scale": lambda q, k, v, causal, scale, window: attend(q, k, v, causal, q.shape[3] ** -0.5, window),
    "no scale": lambda q, k, v, causal, scale, window: attend(q, k, v, causal, 1.0, window),
    "heads instead of groups": lambda q, k, v, causal, scale, window: attend(
        q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1), causal, scale, window
    ),
}


def verdict(asked, kernel):
    inputs = asked.inputs("cpu", 5)
    out = kernel(*inputs.tensors, **inputs.options)
    return judge([measure(out, Reference(asked, inputs, 5, thorough=True))], asked.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("kernel", RIGHT.values(), ids=RIGHT)
def test_right_kernels_are_accepted(kernel, causal, dtype):
    said = verdict(problem(window=21, scale=0.25, causal=causal, dtype=dtype), kernel)
    assert said["correct"], said["why"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("kernel", WRONG.values(), ids=WRONG)
def test_wrong_kernels_are_rejected(kernel, causal, dtype):
    said = verdict(problem(window=21, scale=0.25, causal=causal, dtype=dtype), kernel)
    assert not said["correct"] and said["why"]


@pytest.mark.parametrize("name", ["sdpa", "sdpa-math", "eager"])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("window", [0, 1, 21])
def test_pytorchs_kernels_do_windows_at_every_edge(name, causal, window):
    call = load(get_kernel("attention", name)).call
    asked = problem(window=window, causal=causal, scale=0.1, dtype="float32")
    for one in (asked, *asked.edges()):
        said = verdict(one, call)
        assert said["correct"], (one.label(), said["why"])


def decoded(q, k, v, causal, scale, kv_len=0, more=None):
    """more: keys before the first query."""
    more = k.shape[2] - q.shape[2] if more is None else more
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1).float() for x in (k, v))
    hidden = torch.arange(k.shape[2]) > torch.arange(q.shape[2])[:, None] + more
    scores = q.float() @ k.mT * scale
    return ((scores.masked_fill(hidden, float("-inf")) if causal else scores).softmax(-1) @ v).to(q.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sampled", [False, True], ids=["complete", "sampled"])
def test_more_keys_than_queries_end_with_the_queries(sampled, dtype, monkeypatch):
    if sampled:
        monkeypatch.setattr("kernels.operations.attention.FLOAT64_SCORES", 0)
    asked = problem(seq_len=5, kv_len=37, causal=True, dtype=dtype)
    assert verdict(asked, decoded)["correct"]
    for more in (31, 33, 0, 37):
        assert not verdict(asked, lambda q, k, v, more=more, **options: decoded(q, k, v, **options, more=more))[
            "correct"
        ]
    full = problem(seq_len=5, kv_len=37, dtype=dtype)
    assert verdict(full, decoded)["correct"]
    assert not verdict(full, lambda q, k, v, **options: decoded(q, k, v, **options | {"causal": True}))["correct"]


@pytest.mark.parametrize("name", ["sdpa", "sdpa-math", "eager", "compiled"])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("window", [0, 21])
def test_pytorchs_kernels_do_two_lengths_at_every_edge(name, causal, window):
    call = load(get_kernel("attention", name)).call
    asked = problem(seq_len=5, kv_len=96, window=window, causal=causal, dtype="float32")
    for one in (asked, *(asked.edges() if name != "compiled" else ())):
        said = verdict(one, call)
        assert said["correct"], (one.label(), said["why"])


def test_a_kernel_that_knows_one_length_is_not_called_with_two():
    two, one = (Workload(operation="attention", dtype="float16", sizes=SIZES | more) for more in ({"kv_len": 97}, {}))
    assert get_kernel("attention", "triton-flash").why_not_for(
        "float16", two.problem.model_dump() | {"head_dim": 64}
    ) == ("does not support kv_len=97: it has no argument of this name")
    assert not get_kernel("attention", "triton-flash").why_not_for(
        "float16", one.problem.model_dump() | {"head_dim": 64}
    )
    assert not get_kernel("attention", "sdpa").why_not_for("float16", two.problem.model_dump())


def test_edges_of_two_lengths_cut_the_keys():
    def lengths(**sizes):
        return [(edge.seq_len, edge.keys) for edge in problem(**sizes).edges()]

    assert lengths(seq_len=1, kv_len=8192) == [(1, 3), (1, 63), (1, 65), (1, 127), (1, 129)]
    assert lengths(seq_len=16, kv_len=8192) == [(1, 3), (16, 63), (16, 65), (16, 127), (16, 129)]
    assert lengths(seq_len=512, kv_len=8192)[-1] == (129, 259)
    assert lengths(seq_len=4096, kv_len=77) == [(1, 1), (63, 31), (65, 32), (127, 63), (129, 64)]


def test_a_large_window_is_sampled(monkeypatch):
    monkeypatch.setattr("kernels.operations.attention.FLOAT64_SCORES", 0)
    asked = problem(window=21, seq_len=300, causal=True)
    assert verdict(asked, attend)["correct"]
    assert not verdict(asked, WRONG["a key too few"])["correct"]


def test_edges_have_windows_that_hide_something():
    edges = problem(window=4096, seq_len=8192).edges()
    assert [(edge.seq_len, edge.window) for edge in edges] == [(1, 0), (63, 31), (65, 32), (127, 63), (129, 64)]
    assert {edge.scale for edge in problem(scale=0.5).edges()} == {0.5}


# --- who can do it ----------------------------------------------------------------------------------------------------


def test_a_kernel_that_takes_no_window_is_told_of_none_and_gets_no_such_workload(tmp_path, monkeypatch):
    assert problem().inputs("cpu", 1).options == {"causal": False, "scale": 40**-0.5}
    assert problem(window=5).inputs("cpu", 1).options["window"] == 5
    plain = get_kernel("attention", "triton-flash")
    sizes = problem(head_dim=64).model_dump()
    assert plain.why_not_for("float16", sizes) == ""
    refused = "does not support window=5: it has no argument of this name"
    assert plain.why_not_for("float16", sizes | {"window": 5}) == refused
    assert get_kernel("attention", "sdpa").why_not_for("float16", sizes | {"window": 5}) == ""
    assert get_kernel("attention", "cuda-naive").why_not_for("float16", sizes | {"window": 5}) == ""
    monkeypatch.setenv("KERNEL_PATH", str(tmp_path))
    (tmp_path / "attention").mkdir()
    text = 'from kernels.catalog import kernel\n@kernel("attention", backend="x")\ndef mine(q, k, v, {}): ...\n'
    for takes, why in (("*, causal, scale", refused), ("**options", ""), ("causal, scale, window", "")):
        (tmp_path / "attention" / "mine.py").write_text(text.format(takes))
        assert get_kernel("attention", "mine").why_not_for("float16", sizes | {"window": 5}) == why


def test_stored_workloads_have_neither_size_in_their_key():
    stored = {"batch": 2, "heads": 4, "kv_heads": 2, "seq_len": 96, "head_dim": 40, "causal": False}
    assert Workload(operation="attention", sizes=stored).sizes == stored
    more = Workload(operation="attention", sizes=stored | {"window": 9, "scale": 0.5})
    assert more.sizes == stored | {"window": 9, "scale": 0.5} == more.brief_sizes | {"causal": False}
    assert Workload(**more.model_dump()) == more


def test_someone_does_every_head_dim():
    for head_dim in range(32, 257, 8):
        sizes = problem(head_dim=head_dim).model_dump()
        able = [info.name for info in kernels("attention") if not info.why_not_for("float16", sizes)]
        assert {"sdpa", "eager", "cuda-naive"} <= set(able)


def test_compiled_attention_asks_once_for_the_room_of_its_tuner(monkeypatch):
    """Both pieces at once. Without the memory it goes on: the tuner copies through the host then."""
    make_room = sys.modules[load(get_kernel("attention", "compiled")).call.__module__]._make_room
    asked = []

    def empty(size, *, dtype, device):
        asked.append((size, dtype, device))
        if size > 100:
            raise torch.OutOfMemoryError
        return size

    monkeypatch.setattr(torch, "empty", empty)
    for size in (100, 100, 101, 101):
        make_room(size, "cuda:0")
    assert asked == [(size, torch.uint8, "cuda:0") for size in (100, 100, 101)]

"""Native sparse attention: work and bytes by hand, the blocks that it draws, what it refuses, and integer inputs in the
instrument's probes."""

import pytest

from kernels.operations.nsa import EMPTY_AT, NONE, SHORT_AT, NativeSparseAttention, selected_pairs, why_invalid
from kernels.workload import Workload

torch = pytest.importorskip("torch")

from kernels.catalog import get_kernel, load  # noqa: E402
from kernels.child.bench import Bench  # noqa: E402
from kernels.operations.base import Inputs  # noqa: E402

SMALL = {"batch": 1, "heads": 4, "groups": 2, "seq_len": 130, "head_dim": 8, "block_size": 16, "selected_blocks": 4}
SEEDS = (1, 2, 3)


def nsa(**sizes):
    return NativeSparseAttention(**SMALL | sizes)


def visible(problem, indices):
    """Pairs of token and visible key in the selected blocks of one group, counted one by one."""
    count = 0
    for token, slots in enumerate(indices.tolist()):
        for block in slots:
            keys = range(block * problem.block_size, min((block + 1) * problem.block_size, problem.seq_len))
            count += sum(key <= token or not problem.causal for key in keys) if block >= 0 else 0
    return count


# --- work and bytes ---------------------------------------------------------------------------------------------------


def test_work_and_bytes_by_hand():
    """4 tokens, blocks of 2, 2 of them, causal: token 0 sees 1 key, 1 sees 2, 2 sees 2 + 1, 3 sees 2 + 2: 10 pairs."""
    problem = NativeSparseAttention(
        batch=3, heads=4, groups=2, seq_len=4, head_dim=8, block_size=2, selected_blocks=2, causal=True
    )
    assert problem.pairs == 10
    assert problem.flops() == 4 * 10 * 8 * 3 * 4 == 3_840
    assert problem.dense_flops() == 4 * 16 * 8 * 3 * 4 == 6_144
    # q 3x4x4x8, k and v 3x4x2x8 in 2 bytes, indices 3x4x2x2 in 4 bytes; out as q
    assert problem.bytes_moved() == (768 + 2 * 384 + 192, 768)
    assert problem.queries() == 48 and problem.heads_of() == (3, 4)
    assert problem.flops_formula()[1] == "4 x 10 x 8 x 3 x 4"


def test_a_window_adds_its_own_pairs():
    """Of 2 keys: 1 + 2 + 2 + 2; to both sides: 2 + 3 + 3 + 2."""
    few = {"seq_len": 4, "block_size": 2, "selected_blocks": 2}
    assert nsa(**few, causal=True, window=2).pairs == 10 + 7
    assert nsa(**few, window=2).pairs == nsa(**few).pairs + 10
    assert nsa(**few, window=99) == nsa(**few, window=4)


def test_a_ragged_last_block_counts_what_it_has():
    """5 tokens, blocks of 2: everybody sees the last block, of 1 key, and one of the others."""
    assert nsa(seq_len=5, block_size=2, selected_blocks=2).pairs == 5 * (2 + 1)
    assert nsa(seq_len=5, block_size=2, selected_blocks=9).pairs == 5 * 5


def test_tokens_without_a_block_and_with_half_as_many_are_counted():
    few = nsa(seq_len=61, block_size=1, selected_blocks=4)
    assert few.pairs == 59 * 4 + 2 + 0  # token 30 has two blocks, token 60 none


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("more", [{}, {"block_size": 7}, {"selected_blocks": 20}, {"seq_len": 61}], ids=str)
def test_every_seed_and_group_has_the_work_that_is_counted(causal, more):
    problem = nsa(causal=causal, **more)
    for seed in SEEDS:
        indices = problem.inputs("cpu", seed).tensors[3]
        assert {visible(problem, indices[0, :, group]) for group in range(problem.groups)} == {problem.pairs}


def test_the_work_of_a_long_sequence():
    """Of 8192 x 16 x 64 pairs, the causal mask and the tokens with fewer blocks leave 89%."""
    pairs = selected_pairs(8192, 64, 16, True)
    assert pairs == sum(
        (min({30: 8, 60: 0}.get(t % 61, 16), t // 64 + 1) - 1) * 64 + t % 64 + 1 if t % 61 != 60 else 0
        for t in range(8192)
    )
    assert pairs == 7_451_199


# --- the blocks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_blocks_are_drawn_without_one_twice_in_random_order(causal):
    problem = nsa(causal=causal)
    one, other = (problem.inputs("cpu", seed).tensors[3] for seed in (1, 2))
    assert one.dtype == torch.int32 and not torch.equal(one, other)
    assert why_invalid(one, 9) == ""
    assert not torch.equal(one[:, :, 0], one[:, :, 1]), "each group has its own"
    full = one[0, 100, 0].tolist()
    assert len(set(full)) == 4 and NONE not in full
    slots = {tuple(one[0, token, 0].argsort().tolist()) for token in range(80, 120)}
    assert len(slots) > 5, "always in one order"
    for token in range(130):
        count = int((one[0, token, 0] != NONE).sum())
        assert token % 61 != EMPTY_AT or (causal and token % 2) or count == 0
        assert token % 61 != SHORT_AT or (causal and token % 2) or count <= 2


def test_a_causal_token_selects_its_own_block_and_sometimes_a_later_one():
    indices = nsa(causal=True).inputs("cpu", 1).tensors[3][0]
    later = 0
    for token in range(130):
        for group in range(2):
            slots = indices[token, group].tolist()
            assert token // 16 in slots or token % 61 == EMPTY_AT
            later += any(block > token // 16 for block in slots)
    assert later > 20, "nothing tests that later blocks are hidden"


def test_a_token_without_a_key_has_the_output_0():
    problem = nsa(dtype="float32")
    inputs = problem.inputs("cpu", 1)
    (piece,) = problem.check(inputs, 1, True)
    for name in ("eager",):
        out = load(get_kernel("nsa", name)).call(*inputs.tensors, **inputs.options)
        assert not out[:, EMPTY_AT].any() and not piece.reference[EMPTY_AT].any()
        assert out[:, EMPTY_AT - 1].any()


# --- what it refuses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "slots, why",
    [
        ([3, 1, 3, -1], "block_indices[0, 5, 1] has block 3 twice"),
        ([0, -1, -1, 0], "block_indices[0, 5, 1] has block 0 twice"),
        ([9, 0, 1, 2], "block_indices are from -1 (none) to 8 (the last block) here"),
        ([-2, 0, 1, 2], "block_indices are from -1 (none) to 8 (the last block) here"),
    ],
)
def test_indices_of_ones_own_are_refused_where_a_block_is_twice_or_missing(slots, why):
    problem = nsa()
    q, k, v, indices = problem.inputs("cpu", 1).tensors
    indices[0, 5, 1] = torch.tensor(slots, dtype=torch.int32)
    assert why_invalid(indices, 9) == why
    with pytest.raises(ValueError, match="block_indices"):
        list(problem.check(Inputs((q, k, v, indices), {}), 1, True))


def test_slots_without_a_block_may_be_several():
    indices = nsa().inputs("cpu", 1).tensors[3]
    indices[0, 5, 1] = NONE
    assert why_invalid(indices, 9) == ""


# --- in the instrument ------------------------------------------------------------------------------------------------


def test_the_probe_scales_numbers_and_never_the_indices():
    """A kernel that sees every call's indices: the probe's own values are valid ones."""
    problem = nsa(seq_len=20)
    bench, seen = Bench("cpu"), []
    bench.open(Workload(operation="nsa", sizes=problem.sizes()).model_dump())
    call = bench.arms.kernel("eager").call

    def watching(q, k, v, block_indices, **options):
        seen.append(block_indices.clone())
        return call(q, k, v, block_indices, **options)

    bench.arms.loaded["nsa/eager"].call = watching
    bench.prepare(seeds=list(range(10)), sets=3)
    bench.probe("eager", seeds=list(range(100, 140)), sights=2, in_turn=3)
    assert len(seen) > 10
    assert {why_invalid(indices, 2) for indices in seen} == {""}
    assert len({tuple(indices.flatten().tolist()) for indices in seen}) > 3, "the probe draws no other blocks"


def test_dense_attention_is_another_work():
    info = get_kernel("nsa", "sdpa")
    assert info.other_work == "attends to every key, whatever block_indices select"
    assert "window" in info.why_not_for("float16", nsa(window=4).model_dump())


def test_tilelang_says_that_it_is_not_installed():
    for name in ("tilelang", "tilelang-cutedsl"):
        assert get_kernel("nsa", name).why_not_on("cuda", 9.0) == (
            "package tilelang is not installed on this device: pip install tilelang"
        )

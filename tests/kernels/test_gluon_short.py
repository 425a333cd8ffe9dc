"""gluon-short without a GPU: the order of its tiles, run as Python, what it refuses, and what its launch passes on.

Gluon has no interpreter. The functions that give a program its tiles are plain arithmetic, so they run here as they are.
"""

from collections import Counter

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton.experimental.gluon", reason="gluon-short needs Triton 3.6")

from kernels.catalog import Unsupported  # noqa: E402
from kernels.operations.attention import gluon_short as gluon_short  # noqa: E402

PROCESSORS = 132
LENGTHS = (1, 63, 64, 65, 128, 200, 256, 257, 300, 448, 450, 511, 512)


def dealt(tile, seq_len, causal):
    """The tiles of each group of each program of a head."""
    parts = -(-seq_len // (64 * tile.groups * tile.turns))
    place = gluon_short._place.fn
    return [
        [
            [place(part, turn, group, tile.groups, parts, tile.turns, causal) for turn in range(tile.turns)]
            for group in range(tile.groups)
        ]
        for part in range(parts)
    ]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("seq_len", LENGTHS)
@pytest.mark.parametrize("heads", [1, 64, 128, 1000])
def test_every_tile_is_done_once_and_fits(causal, seq_len, heads):
    tile = gluon_short.tiles(causal, seq_len, heads, PROCESSORS)
    found = dealt(tile, seq_len, causal)
    done = Counter(tile for program in found for group in program for tile in group)
    assert set(done) == set(range(len(found) * tile.groups * tile.turns))
    assert set(done.values()) == {1}
    load = tile.keys * tile.chunk
    assert load <= 256  # rows that one TMA load takes
    kept = 128 * (2 * -(-seq_len // load) * load + 64 * tile.groups * tile.turns)
    assert (kept + 2048) * tile.fill <= 228 * 1024


@pytest.mark.parametrize("seq_len", LENGTHS)
@pytest.mark.parametrize("tile", [(4, 2), (4, 1), (1, 1), (1, 2), (4, 3)])
def test_the_longest_tile_of_a_program_is_known_before(monkeypatch, seq_len, tile):
    """A program asks for no keys beyond those of its longest tile: it would wait for ever for others."""
    monkeypatch.setattr(gluon_short, "_place", gluon_short._place.fn)
    groups, turns = tile
    parts = -(-seq_len // (64 * groups * turns))
    for part in range(parts):
        tiles = [
            gluon_short._place(part, turn, group, groups, parts, turns, True)
            for turn in range(turns)
            for group in range(groups)
        ]
        assert gluon_short._longest.fn(part, groups, parts, turns) == max(tiles)


@pytest.mark.parametrize(("tile", "blocks"), [((4, 2), {9}), ((2, 4), {18}), ((2, 2), {9})])
def test_causal_groups_have_the_same_work(tile, blocks):
    """In blocks of 64 keys, at S = 512."""
    groups, turns = tile
    found = dealt(gluon_short.Tile(groups, turns, 64, 1), 512, causal=True)
    assert {sum(tile + 1 for tile in group) for program in found for group in program} == blocks


class Launched:
    """In the kernel's place: keeps the grid and the arguments."""

    def __getitem__(self, grid):
        self.grid = grid
        return self.call

    def call(self, *positional, **named):
        self.positional, self.named = positional, named


@pytest.mark.parametrize(
    ("seq_len", "heads", "causal", "programs", "load", "registers", "ragged"),
    [
        (300, 8, False, 8 * 2 * 5, 256, 248, True),
        (128, 16, True, 16 * 2 * 2, 128, 248, False),
        (256, 64, False, 64 * 2 * 4, 128, 168, False),
        (20, 128, False, 128 * 2, 64, 168, True),
        (512, 32, False, 32 * 2 * 2, 128, 128, False),
        (512, 64, False, 64 * 2, 256, 128, False),
        (500, 64, True, 64 * 2, 128, 128, False),
    ],
)
def test_a_launch(monkeypatch, seq_len, heads, causal, programs, load, registers, ragged):
    launched = Launched()
    monkeypatch.setattr(gluon_short, "_attention", launched)
    q = torch.zeros(2, heads, seq_len, 64, dtype=torch.float16)
    k = torch.zeros(2, seq_len, heads // 4, 64, dtype=torch.float16).transpose(1, 2)
    tile = gluon_short.tiles(causal, seq_len, 2 * heads, PROCESSORS)
    out = gluon_short.launch(q, k, k, causal, 0.5, tile)
    assert out.shape == q.shape and out.is_contiguous()
    assert launched.grid == (programs,)
    descriptors, numbers = launched.positional[:4], launched.positional[4:]
    assert [x.block_shape for x in descriptors] == [[1, 1, rows, 64] for rows in (64, load, load, 64)]
    assert [list(x.shape) for x in descriptors] == [list(x.shape) for x in (q, k, k, q)]
    assert numbers == (heads, 4, seq_len, 0.5 * gluon_short.LOG2_E)
    assert launched.named["CHUNKS"] == -(-seq_len // load)
    assert (launched.named["maxnreg"], launched.named["RAGGED"]) == (registers, ragged)


@pytest.mark.parametrize(
    ("shape", "dtype", "scale", "why"),
    [
        ((1, 2, 513, 64), torch.float16, 0.1, "seq_len is 513; this kernel does up to 512"),
        ((1, 2, 512, 128), torch.float16, 0.1, "head_dim 64, all in float16 or all in bfloat16"),
        ((1, 2, 512, 64), torch.float32, 0.1, "head_dim 64, all in float16 or all in bfloat16"),
        ((1, 2, 512, 64), torch.float16, -1.0, "scale is -1.0; it must be positive"),
    ],
)
def test_what_it_does_not_do_is_said(shape, dtype, scale, why):
    q = torch.zeros(shape, dtype=dtype)
    with pytest.raises(Unsupported, match=why):
        gluon_short.gluon_short(q, q, q, causal=False, scale=scale)


def test_other_numbers_of_keys_are_refused():
    q, k = torch.zeros(1, 2, 64, 64), torch.zeros(1, 2, 65, 64)
    with pytest.raises(Unsupported, match="needs \\(B, H, S, D\\)"):
        gluon_short.gluon_short(q, k, k, causal=False, scale=0.1)

"""gluon-flash without a GPU: the order of its tiles, run as Python, and what its launch passes on.

Gluon has no interpreter. The functions that give a program its tiles are plain arithmetic, so they run here as they are,
with a stand-in for `gl`.
"""

from collections import Counter
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton.experimental.gluon", reason="gluon-flash needs Triton 3.6")

from kernels.operations.attention import gluon_flash as gluon_flash  # noqa: E402

PROCESSORS = 132


class Number(int):
    """A number whose comparison can be converted, as a scalar of Gluon can."""

    def __lt__(self, other):
        return Number(int(self) < other)

    def to(self, _):
        return self


def dealt(monkeypatch, rows, heads, causal):
    """The (head, row tile) pairs of each program, in order."""
    paired = gluon_flash.heads_in_pairs(rows, heads, PROCESSORS) if causal else 0
    work = (rows, heads, heads, paired, 1, 0)
    programs = min(rows * heads, PROCESSORS)
    found = []
    for place in range(programs):
        gl = SimpleNamespace(
            where=lambda condition, yes, no: Number(yes if condition else no),
            program_id=lambda axis, place=place: Number(place),
            num_programs=lambda axis: programs,
            maximum=max,
            int32=int,
        )
        monkeypatch.setattr(gluon_flash, "gl", gl)
        steps = range(gluon_flash._count.fn(work, causal))
        found.append([gluon_flash._tile.fn(step, work, causal)[1:] for step in steps])
    return found, paired


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 11, 15, 16, 17, 22, 31, 32, 128])
@pytest.mark.parametrize("heads", [1, 3, 64, 300])
def test_every_tile_is_done_once(monkeypatch, rows, heads, causal):
    found, paired = dealt(monkeypatch, rows, heads, causal)
    done = Counter(tile for program in found for tile in program)
    assert set(done) == {(head, tile) for head in range(heads) for tile in range(rows)}
    twice = {tile for tile, times in done.items() if times > 1}
    assert twice == ({(head, 0) for head in range(paired)} if rows % 2 else set())


@pytest.mark.parametrize(
    ("rows", "heads", "most"), [(16, 64, 1.005), (16, 256, 1.01), (32, 1536, 1.001), (128, 16, 1.002)]
)
def test_causal_work_is_even(monkeypatch, rows, heads, most):
    """The longest program over the mean, in blocks of keys and one more for a tile's start and end.

    With all tiles dealt out from the longest down, 16 row tiles of 64 or 256 heads would come to 1.031.
    """
    found, _ = dealt(monkeypatch, rows, heads, causal=True)
    work = [sum(tile + 2 for _, tile in program) for program in found]
    assert max(work) <= most * sum(work) / len(work)


def test_pairs_of_a_program_are_as_long_as_any_other(monkeypatch):
    found, paired = dealt(monkeypatch, 16, 64, causal=True)
    assert paired == 33
    for program in found:
        assert {program[i][1] + program[i + 1][1] for i in (0, 2)} == {15}
        assert all(program[i][0] == program[i + 1][0] for i in (0, 2))


class Launched:
    """In the kernel's place: keeps the grid and the arguments."""

    def __getitem__(self, grid):
        self.grid = grid
        return self.call

    def call(self, *positional, **named):
        self.positional, self.named = positional, named


@pytest.mark.parametrize(
    ("head_dim", "columns", "depth", "keys"),
    [
        (32, 64, 64, 128),
        (64, 64, 64, 128),
        (80, 128, 80, 128),
        (96, 128, 96, 128),
        (128, 128, 128, 128),
        (192, 256, 192, 64),
        (256, 256, 256, 64),
    ],
)
def test_a_launch(monkeypatch, head_dim, columns, depth, keys):
    launched = Launched()
    monkeypatch.setattr(gluon_flash, "_attention", launched)
    q = torch.zeros(2, 4, 300, head_dim, dtype=torch.float16)
    k = torch.zeros(2, 300, 2, head_dim, dtype=torch.float16).transpose(1, 2)
    tile = gluon_flash.tiles(head_dim, False, 300, 8, PROCESSORS)
    out = gluon_flash.launch(q, k, k, False, 0.5, tile, PROCESSORS)
    assert out.shape == q.shape
    assert launched.grid == (3 * 8,)
    descriptors, numbers = launched.positional[:4], launched.positional[4:]
    assert [x.block_shape for x in descriptors] == [[1, 1, rows, columns] for rows in (64, keys, keys, 64)]
    assert [list(x.shape) for x in descriptors] == [list(x.shape) for x in (q, k, k, q)]
    assert numbers == (3, 4, 8, 0, 2, 300, 0.5 * gluon_flash.LOG2_E)
    assert launched.named["DEPTH"] == depth
    assert launched.named["RAGGED"]

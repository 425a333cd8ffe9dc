"""gluon-gemm without a GPU: the order of its tiles and shares of K, run as Python, what it refuses, and what its launches
pass on. Gluon has no interpreter. The functions that give a program its work are plain arithmetic, so they run here as they
are. Its rules are data: each fits the chip, and names its evidence or none.
"""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton.experimental.gluon", reason="gluon-gemm needs Triton 3.6")

from kernels import catalog  # noqa: E402
from kernels.catalog import Unsupported  # noqa: E402
from kernels.operations.gemm import gluon_gemm as gluon_gemm  # noqa: E402

ROOT = Path(__file__).parents[2]
PROCESSORS = 132
Tile = gluon_gemm.Tile
USUAL = Tile(128, 256, 64, 4, parts=4)


@pytest.fixture
def arithmetic(monkeypatch):
    monkeypatch.setattr(gluon_gemm, "gl", SimpleNamespace(cdiv=lambda x, y: -(-x // y), minimum=min))


def items(m, n, k, groups, columns, terms, splits, group):
    """What each index of a launch is: its first row and column, and its slices of K."""
    how = gluon_gemm.How(groups, 64 * groups, columns, terms, 4, group, 1, False, True, False, splits > 1)
    splits = min(splits, -(-k // terms))
    count = -(-m // how.height) * -(-n // columns) * splits
    return [gluon_gemm._item.fn(index, (m, n, k, splits, count), how) for index in range(count)]


@pytest.mark.parametrize("splits", [1, 2, 7, 33])
@pytest.mark.parametrize("sizes", [(8, 8, 8), (136, 264, 200), (1000, 72, 4104), (512, 512, 16384), (2048, 640, 640)])
@pytest.mark.parametrize(("groups", "columns", "group"), [(1, 16, 8), (2, 256, 4), (2, 128, 3)])
def test_every_slice_of_every_tile_is_done_once(arithmetic, sizes, groups, columns, group, splits):
    m, n, k = sizes
    done = Counter()
    for row, column, first, last in items(m, n, k, groups, columns, 64, splits, group):
        assert first < last, "a share of K is empty: its sums would be those of the share before"
        done.update((row, column, at) for at in range(first, last))
    tiles = [(row, column) for row in range(0, m, 64 * groups) for column in range(0, n, columns)]
    assert done == Counter((row, column, at) for row, column in tiles for at in range(-(-k // 64)))


def test_shares_of_a_tile_are_neighbours_of_the_same_length(arithmetic):
    """The second launch finds the shares of a tile one after the other, in the order of K."""
    found = items(512, 512, 16384, 2, 128, 64, 8, 8)
    for first in range(0, len(found), 8):
        shares = found[first : first + 8]
        assert len({share[:2] for share in shares}) == 1
        assert [share[2:] for share in shares] == [(32 * i, 32 * (i + 1)) for i in range(8)]


def test_tiles_in_flight_share_rows_and_columns(arithmetic):
    """The first 128 of 32 x 16 tiles touch 8 rows of tiles and 16 columns, not 128 of one and 1 of the other."""
    found = items(4096, 4096, 4096, 2, 256, 64, 1, 8)[:128]
    assert len({row for row, *_ in found}) == 8
    assert len({column for _, column, *_ in found}) == 16


@pytest.mark.parametrize("slots", [2, 3, 7])
def test_the_ring_comes_round(monkeypatch, slots):
    monkeypatch.setattr(gluon_gemm, "gl", SimpleNamespace(where=lambda condition, yes, no: yes if condition else no))
    how = SimpleNamespace(slots=slots)
    slot, phase, seen = 0, 1, []
    for _ in range(2 * slots):
        seen.append((slot, phase))
        slot, phase = gluon_gemm._next.fn(slot, phase, how)
    assert seen == [(slot, 1) for slot in range(slots)] + [(slot, 0) for slot in range(slots)]


# --- the rules --------------------------------------------------------------------------------------------------------


def test_every_product_has_a_rule_and_every_rule_fits_the_chip():
    sides = (1, 16, 17, 64, 128, 256, 512, 1024, 1280, 2048, 4096, 8192, 16384, 262_144)
    for fp8, rules in ((False, gluon_gemm.RULES), (True, gluon_gemm.FP8_RULES)):
        seen = {gluon_gemm.rule(m, n, k, fp8) for m in sides for n in sides for k in (16, 4096, 65_536)}
        assert seen == set(rules), "a rule is hidden by those before it"
        for one in rules:
            assert gluon_gemm.fitting(one.tile, fp8) == one.tile
            assert not one.evidence or (ROOT / "docs" / "measurements" / one.evidence).is_file(), one


def test_the_tiles_of_the_rules_can_be_tuned_to():
    space = catalog.get_kernel("gemm", "gluon-gemm").space
    assert tuple(space) == Tile._fields
    for one in (*gluon_gemm.RULES, *gluon_gemm.FP8_RULES):
        assert all(value in space[name] for name, value in one.tile._asdict().items()), one


@pytest.mark.parametrize("sizes", [(512, 512, 16384), (256, 256, 65536), (1024, 1024, 32768)])
def test_of_a_long_k_the_shares_are_at_most_one_wave_and_at_least_a_quarter(sizes):
    m, n, k = sizes
    tile = gluon_gemm.rule(m, n, k).tile
    assert 32 <= -(-m // tile.block_m) * -(-n // tile.block_n) * tile.splits <= PROCESSORS


@pytest.mark.parametrize(
    ("changed", "fp8", "why"),
    [
        ({"slots": 5}, False, "needs 279552 bytes of shared memory, this device has 232448"),
        ({"parts": 1}, False, "needs 263168 bytes"),
        ({"block_m": 256}, False, "a tile has 64 or 128 rows and up to 256 columns"),
        ({"block_m": 32}, False, "a tile has 64 or 128 rows"),
        ({"block_n": 32, "turned": 1, "parts": 1}, False, "a turned one the other way round"),
        ({"splits": 2}, False, "stored in parts only where K is not split"),
        ({"block_n": 32, "parts": 4}, False, "of 16 or more columns"),
        ({"parts": 1, "splits": 128}, False, "up to 96 shares of K"),
        ({}, True, "up to 128 columns here"),
        ({"block_n": 128, "block_k": 256, "slots": 2}, True, "of fp8 slices of up to 128 terms"),
    ],
)
def test_tiles_that_do_not_fit_are_refused(changed, fp8, why):
    with pytest.raises(Unsupported, match=why):
        gluon_gemm.fitting(USUAL._replace(**changed), fp8)


# --- launches ---------------------------------------------------------------------------------------------------------


class Launched:
    """In the kernel's place: keeps the grid and the arguments."""

    def __init__(self):
        self.grid = None

    def __getitem__(self, grid):
        self.grid = grid
        return self.call

    def call(self, *positional, **named):
        self.positional, self.named = positional, named


@pytest.fixture
def launches(monkeypatch):
    product, addition = Launched(), Launched()
    monkeypatch.setattr(gluon_gemm, "_product", product)
    monkeypatch.setattr(gluon_gemm, "_addition", addition)
    properties = SimpleNamespace(multi_processor_count=PROCESSORS)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    return product, addition


def stored(m, n, k, trans_a=False, trans_b=False, dtype=torch.float16):
    shapes = ((k, m) if trans_a else (m, k)), ((n, k) if trans_b else (k, n))
    return [torch.empty(shape, dtype=dtype, device="meta") for shape in shapes]


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
def test_a_launch(launches, trans_a, trans_b):
    product, addition = launches
    a, b = stored(4096, 2048, 512, trans_a, trans_b)
    out = gluon_gemm.launch(a, b, USUAL, trans_a, trans_b)
    assert out.shape == (4096, 2048) and out.is_contiguous()
    assert product.grid == (PROCESSORS,) and addition.grid is None
    left, right, to, _, *numbers = product.positional
    assert left.base is a and right.base is b and to.base is out
    assert left.block_shape == [64, 64]
    assert right.block_shape == ([256, 64] if trans_b else [64, 256])
    assert to.block_shape == [64, 64]
    assert numbers == [4096, 2048, 512, 1, 256]
    assert (product.named["LEFT_BY_K"], product.named["RIGHT_BY_K"]) == (trans_a, not trans_b)
    assert (product.named["GROUPS"], product.named["maxnreg"], product.named["SPLIT"]) == (2, 168, False)


def test_a_turned_launch(launches):
    product, _ = launches
    a, b = stored(16, 8192, 4096)
    out = gluon_gemm.launch(a, b, Tile(16, 64, 128, 10, turned=1))
    left, right, to, _, *numbers = product.positional
    assert out.shape == (16, 8192)
    assert left.base is b and right.base is a
    assert [x.block_shape for x in (left, right, to)] == [[128, 64], [16, 128], [16, 64]]
    assert numbers == [8192, 16, 4096, 1, 128]
    assert (product.named["LEFT_BY_K"], product.named["RIGHT_BY_K"], product.named["TURNED"]) == (True, False, True)


@pytest.mark.parametrize(("turned", "strides"), [(0, (264, 1)), (1, (1, 264))])
def test_a_split_launch(launches, turned, strides):
    product, addition = launches
    gluon_gemm.launch(*stored(136, 264, 4096), Tile(128, 128, 64, 7, 33, turned=turned))
    sums = product.positional[3]
    assert sums.dtype == torch.float32 and sums.numel() == 2 * 3 * 33 * 128 * 128
    assert product.grid == (PROCESSORS,) and product.positional[-1] == 2 * 3 * 33
    assert addition.grid == (6, 128 * 128 // 512)
    assert addition.positional[1] is sums
    assert addition.positional[2:] == ((264, 136) if turned else (136, 264)) + strides
    assert (addition.named["SPLITS"], addition.named["AT_ONCE"]) == (33, 16)
    assert addition.named["launch_pdl"]


def test_a_short_k_has_no_more_shares_than_slices(launches):
    product, addition = launches
    gluon_gemm.launch(*stored(128, 128, 72), Tile(128, 128, 64, 7, 8))
    assert product.grid == (2,)
    assert addition.named["SPLITS"] == 2


def test_fp8_gives_bfloat16(launches):
    product, _ = launches
    out = gluon_gemm.gluon_gemm(*stored(4096, 4096, 512, trans_b=True, dtype=torch.float8_e4m3fn), trans_b=True)
    left, right, to, *_ = product.positional
    assert out.dtype == to.base.dtype == torch.bfloat16
    assert [x.block_shape for x in (left, right)] == [[64, 128], [128, 128]]
    assert (product.named["LEFT_BY_K"], product.named["RIGHT_BY_K"]) == (False, False)


def test_settings_are_taken_or_refused(launches):
    product, _ = launches
    gluon_gemm.gluon_gemm(*stored(64, 64, 64), settings=Tile(64, 64, 128, 3)._asdict())
    assert (product.named["GROUPS"], product.named["SLOTS"], product.named["TERMS"]) == (1, 3, 128)
    with pytest.raises(Unsupported, match="bytes of shared memory"):
        gluon_gemm.gluon_gemm(*stored(64, 64, 64), settings=Tile(64, 64, 128, 12)._asdict())


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"k": 12}, "K is 12; this kernel does multiples of 8"),
        ({"n": 12}, "N is 12; this kernel does multiples of 8"),
        ({"m": 12, "trans_a": True}, "M is 12; this kernel does multiples of 8"),
        ({"n": 12, "trans_b": True}, "N is 12; this kernel does multiples of 8"),
        ({"dtype": torch.float32}, "dtypes are torch.float32 and torch.float32"),
        ({"dtype": torch.float8_e4m3fn}, "a stored \\(M, K\\) and b stored \\(N, K\\)"),
        ({"dtype": torch.float8_e4m3fn, "trans_b": True, "k": 24}, "K is 24; this kernel does multiples of 16"),
    ],
)
def test_what_it_does_not_do_is_said(arguments, why):
    how = {name: arguments[name] for name in ("trans_a", "trans_b") if name in arguments}
    a, b = stored(**{"m": 64, "n": 64, "k": 64} | arguments)
    with pytest.raises(Unsupported, match=why):
        gluon_gemm.gluon_gemm(a, b, **how)


def test_other_shapes_are_refused():
    with pytest.raises(Unsupported, match="needs \\(M, K\\) and \\(K, N\\)"):
        gluon_gemm.gluon_gemm(torch.zeros(8, 16), torch.zeros(8, 16))

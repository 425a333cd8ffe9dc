"""cuda-cluster-gemm without a GPU: what its declaration computes, and whether it compiles. TMA and wgmma are not emulated: it is
checked on a GPU, in every run."""

import pytest
from selection import telling
from test_cuda_settings import spread

torch = pytest.importorskip("torch")

from kernels.catalog import get_kernel, load  # noqa: E402
from kernels.nvrtc import compiler, toolchain  # noqa: E402
from kernels.nvrtc.arguments import MAP  # noqa: E402
from kernels.nvrtc.tensor_maps import Refused, layout  # noqa: E402
from kernels.settings import spelled  # noqa: E402

SMS, ENTRIES, MOST_SHARED = 132, 4096, 232_448
INFO = get_kernel("gemm", "cuda-cluster-gemm")
SETTINGS = {"own": None} | {spelled(one): one for one in spread(INFO.space)}
NAMES = list(SETTINGS)
SHAPES = [
    (512, 512, 16384),
    (256, 256, 65536),
    (1024, 1024, 32768),
    (128, 8192, 8192),
    (4096, 4096, 4096),
    (129, 136, 72),
]
needs_nvrtc = pytest.mark.skipif(bool(toolchain.why_not()), reason=toolchain.why_not())


def text():
    return load(INFO).call.text


def values_of(m, n, k, settings=None, dtype=torch.bfloat16):
    a, b = torch.empty(m, k, dtype=dtype, device="meta"), torch.empty(k, n, dtype=dtype, device="meta")
    return text().values((a, b), {}, SMS, settings)


@pytest.mark.parametrize(
    ("shape", "blocks", "cluster"),
    [((512, 512, 16384), 96, 3), ((256, 256, 65536), 64, 8), ((1024, 1024, 32768), 128, 2), ((128, 8192, 8192), 128, 2),
     ((2048, 2048, 2048), 128, 1)],
)  # fmt: skip
def test_its_own_choice_is_that_of_the_sweep(shape, blocks, cluster):
    values = values_of(*shape)
    grid, block, _ = text().shape(values)
    assert (grid, block, values["CLUSTER"]) == ((blocks, 1, 1), (384, 1, 1), cluster)


@pytest.mark.parametrize("settings", NAMES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_launch_has_room_for_its_blocks_sums_and_entries(shape, settings):
    values, n = values_of(*shape, SETTINGS[settings]), shape[1]
    grid, _, shared = text().shape(values)
    tiles = values["TILES_M"] * -(-n // values["COLUMNS"])
    assert values["CLUSTER"] <= 8 and grid[0] % values["CLUSTER"] == 0
    assert grid[0] >= tiles * values["SHARES"] * values["SPLITS"], "every tile has blocks for each share of K"
    ring, sums = values["DEPTH"] * values["STAGE"], 128 * (values["COLUMNS"] + 8) * 4
    assert max(ring, sums) + 16 * values["DEPTH"] + 1023 < shared <= MOST_SHARED and values["DEPTH"] >= 2
    if values["SPLITS"] > 1:
        assert values["CLUSTER"] * values["PACKS"] <= ENTRIES, "blocks of a launch have entries of their own"
        per_tile = 128 * values["COLUMNS"] * 4 * values["SPLITS"]
        assert text().scratch(values) == per_tile * values["NEAR"] * values["PACKS"]
    else:
        assert text().scratch(values) == 0


@needs_nvrtc
@pytest.mark.parametrize("settings", telling(NAMES, *NAMES[:2], why="every setting of the kernel"))
def test_it_compiles_and_its_products_are_not_serialised(settings):
    for dtype in (torch.bfloat16, torch.float16):
        made = compiler.compiled(
            text().compiled_from(values_of(512, 512, 16384, SETTINGS[settings], dtype), dtype), "sm_90a"
        )
        assert made.local_bytes <= 16 and "warning" not in made.log and "serialized" not in made.log


def test_sides_that_tensor_maps_do_not_have_are_refused():
    for m, n, k in ((64, 65, 64), (64, 64, 65)):
        values = values_of(m, n, k)
        maps = [value for kind, value in text().arguments(values) if kind == MAP]
        shapes = [(m, k), (k, n)]
        with pytest.raises(Refused, match="it must be a multiple of 16"):
            for place, box in maps:
                rows, cols = shapes[place]
                layout(box, "bfloat16", 2, 0, (rows, cols), (cols, 1))

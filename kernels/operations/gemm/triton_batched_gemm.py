"""Products of a batch of matrices in Triton, each stored as it is or transposed: a program computes a tile of one product.

It reads what is stored transposed by its strides, without a copy. Sums are in float32. Programs run in groups of rows of tiles,
so that those in flight share A and B in L2. Tiles are guesses; nothing is measured yet.
"""

from functools import cache

import torch
import triton
import triton.language as tl

from kernels.catalog import Unsupported, cuda, kernel

GROUP = 8
"""Rows of tiles shared by programs in flight."""
MOST_SUMS = 32 * 128
"""Elements of the product that a warp adds up in registers."""
SMALL = 160 * 1024
"""Bytes of shared memory below which a device gets fewer stages: compute capability 8.6, 8.9 and 12.x have 99 KiB."""


def tile(m, n, batch, processors, shared_bytes):
    """Rows and columns of a tile, terms of a slice, warps, and stages: large tiles where there are enough of them."""
    if triton.cdiv(m, 128) * triton.cdiv(n, 128) * batch >= processors:
        return 128, 128, 32 if shared_bytes < SMALL else 64, 8, 3
    return 64, 64, 64, 4, 3


def fitting(settings, itemsize, shared_bytes):
    """(rows, columns, terms, warps, stages) of settings, if registers and shared memory can hold them. Raises Unsupported."""
    rows, columns, terms, warps, stages = (settings[name] for name in ("rows", "columns", "terms", "warps", "stages"))
    if (sums := rows * columns) > MOST_SUMS * warps:
        raise Unsupported(f"{sums // (32 * warps)} sums a thread; this kernel does {MOST_SUMS // 32}")
    needed = itemsize * (rows + columns) * terms * stages
    if needed > shared_bytes:
        raise Unsupported(f"needs {needed} bytes of shared memory, this device has {shared_bytes}")
    return rows, columns, terms, warps, stages


@kernel(
    "gemm", backend="triton", dtypes=("float16", "bfloat16"), needs=cuda(min_capability=8.0),
    space={
        "rows": (16, 32, 64, 128), "columns": (16, 32, 64, 128, 256), "terms": (32, 64, 128), "warps": (4, 8),
        "stages": (2, 3, 4),
    },
)  # fmt: skip
def triton_batched_gemm(a, b, *, trans_a=False, trans_b=False, settings=None):
    """Tiled products of a batch in Triton, transposed or not, float32 sums."""
    a_of, b_of = (x.mT if trans else x for x, trans in ((a, trans_a), (b, trans_b)))
    m, k, n = *a_of.shape[-2:], b_of.shape[-1]
    batch = a.shape[0] if a.dim() == 3 else 1
    processors, shared_bytes = _device(a.device)
    chosen = (
        fitting(settings, a.element_size(), shared_bytes) if settings else tile(m, n, batch, processors, shared_bytes)
    )
    rows, columns, terms, warps, stages = chosen
    out = torch.empty(*a.shape[:-2], m, n, dtype=a.dtype, device=a.device)
    with torch.cuda.device_of(a):
        _products[(triton.cdiv(m, rows) * triton.cdiv(n, columns), min(batch, 65_535), triton.cdiv(batch, 65_535))](
            a, b, out, batch, m, n, k, *a_of.stride()[-2:], *b_of.stride()[-2:],
            ROWS=rows, COLUMNS=columns, TERMS=terms, GROUP=GROUP, EVEN=k % terms == 0, num_warps=warps,
            num_stages=stages,
        )  # fmt: skip
    return out


@cache
def _device(device):
    """Its processors, and the bytes of shared memory that a program may have. Triton's interpreter works on a CPU."""
    if device.type != "cuda":
        return 4, 2**18
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count, properties.shared_memory_per_block_optin


@triton.jit
def _products(
    a, b, out, batch, m, n, k, a_row, a_term, b_term, b_column,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, TERMS: tl.constexpr, GROUP: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """A tile of one product. a_row, a_term, ...: strides. EVEN: no slice reaches past K."""
    pair = tl.cast(tl.program_id(2), tl.int64) * tl.num_programs(1) + tl.program_id(1)
    if pair >= batch:
        return
    place = tl.program_id(0)
    of_group = GROUP * tl.cdiv(n, COLUMNS)
    top = place // of_group * GROUP
    height = tl.minimum(tl.cdiv(m, ROWS) - top, GROUP)
    rows = (top + place % of_group % height) * ROWS + tl.arange(0, ROWS)
    columns = place % of_group // height * COLUMNS + tl.arange(0, COLUMNS)
    terms = tl.arange(0, TERMS)
    in_rows, in_columns = rows < m, columns < n
    of_a = rows.to(tl.int64)[:, None] * a_row + terms[None, :] * a_term
    of_b = terms[:, None] * b_term + columns.to(tl.int64)[None, :] * b_column
    a += pair * m * k
    b += pair * k * n
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, k, TERMS):
        if EVEN:
            left = tl.load(a + of_a, mask=in_rows[:, None], other=0.0)
            right = tl.load(b + of_b, mask=in_columns[None, :], other=0.0)
        else:
            inside = start + terms < k
            left = tl.load(a + of_a, mask=in_rows[:, None] & inside[None, :], other=0.0)
            right = tl.load(b + of_b, mask=inside[:, None] & in_columns[None, :], other=0.0)
        sums = tl.dot(left, right, sums)
        a += TERMS * a_term
        b += TERMS * b_term
    to = out + pair * m * n + rows.to(tl.int64)[:, None] * n + columns[None, :]
    tl.store(to, sums.to(out.dtype.element_ty), mask=in_rows[:, None] & in_columns[None, :])

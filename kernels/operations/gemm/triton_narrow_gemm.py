"""Matrix product of tf32 or of fp8 in Triton: a program computes a tile of the product, with sums in float32.

tf32: tensor cores read float32 and leave out what tf32 does not have. fp8: sums of a slice of K are kept in the tensor core, with
its 14 bits, and added to the others in float32. What is stored transposed is read by its strides. Tiles are guesses; nothing is
measured yet.
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
"""Bytes of shared memory below which a device gets narrower slices: compute capability 8.6, 8.9 and 12.x have 99 KiB."""


def tile(m, n, fp8, processors, shared_bytes):
    """Rows and columns of a tile, terms of a slice, warps, and stages: large tiles where there are enough of them. A slice of a
    tile is as many bytes in both dtypes."""
    if triton.cdiv(m, 128) * triton.cdiv(n, 128) >= processors:
        terms = (64 if fp8 else 16) if shared_bytes < SMALL else (128 if fp8 else 32)
        return 128, 128, terms, 8, 3
    return 64, 64, 128 if fp8 else 32, 4, 3


@kernel(
    "gemm",
    backend="triton",
    dtypes=("tf32", "float8_e4m3fn"),
    needs=cuda(min_capability=8.0),
    limits={"batch": (1,)},
    space={
        "rows": (16, 32, 64, 128), "columns": (16, 32, 64, 128, 256), "terms": (16, 32, 64, 128), "warps": (4, 8),
        "stages": (2, 3, 4),
    },
)  # fmt: skip
def triton_narrow_gemm(a, b, *, trans_a=False, trans_b=False, tf32=False, settings=None):
    """Tiled matrix product in Triton of tf32, or of fp8 from Ada on; float32 sums."""
    fp8 = a.dtype == torch.float8_e4m3fn
    if not (fp8 or tf32):
        raise Unsupported("this kernel does tf32 and fp8")
    if fp8 and a.is_cuda and torch.cuda.get_device_capability(a.device) < (8, 9):
        raise Unsupported("this device multiplies no fp8: compute capability 8.9 does")
    a, b = a.mT if trans_a else a, b.mT if trans_b else b
    processors, shared_bytes = _device(a.device)
    if settings:
        return launch(a, b, fitting(settings, a.element_size(), shared_bytes))
    return launch(a, b, tile(a.shape[0], b.shape[1], fp8, processors, shared_bytes))


def fitting(settings, itemsize, shared_bytes):
    """(rows, columns, terms, warps, stages) of settings, if registers and shared memory can hold them. Raises Unsupported."""
    rows, columns, terms, warps, stages = (settings[name] for name in ("rows", "columns", "terms", "warps", "stages"))
    if itemsize == 1 and terms < 32:
        raise Unsupported("a product of fp8 has at least 32 terms")
    if (sums := rows * columns) > MOST_SUMS * warps:
        raise Unsupported(f"{sums // (32 * warps)} sums a thread; this kernel does {MOST_SUMS // 32}")
    needed = itemsize * (rows + columns) * terms * stages
    if needed > shared_bytes:
        raise Unsupported(f"needs {needed} bytes of shared memory, this device has {shared_bytes}")
    return rows, columns, terms, warps, stages


def launch(a, b, chosen):
    """The product of a (M, K) and b (K, N), of any strides, with rows, columns, terms, warps and stages. Returns a new (M, N): in
    float32, or in bfloat16 of fp8."""
    (m, k), n = a.shape, b.shape[1]
    rows, columns, terms, warps, stages = chosen
    fp8 = a.dtype == torch.float8_e4m3fn
    out = torch.empty(m, n, dtype=torch.bfloat16 if fp8 else torch.float32, device=a.device)
    with torch.cuda.device_of(a):
        _product[(triton.cdiv(m, rows) * triton.cdiv(n, columns),)](
            a, b, out, m, n, k, *a.stride(), *b.stride(),
            ROWS=rows, COLUMNS=columns, TERMS=terms, GROUP=GROUP, EVEN=k % terms == 0,
            KEPT=terms if fp8 else 0, num_warps=warps, num_stages=stages,
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
def _product(
    a, b, out, m, n, k, a_row, a_term, b_term, b_column,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, TERMS: tl.constexpr, GROUP: tl.constexpr, EVEN: tl.constexpr,
    KEPT: tl.constexpr,
):  # fmt: skip
    """A tile. a_row, a_term, ...: strides. EVEN: no slice reaches past K. KEPT: terms that the tensor core adds by itself."""
    place = tl.program_id(0)
    of_group = GROUP * tl.cdiv(n, COLUMNS)
    top = place // of_group * GROUP
    height = tl.minimum(tl.cdiv(m, ROWS) - top, GROUP)
    rows = (top + place % of_group % height) * ROWS + tl.arange(0, ROWS)
    columns = place % of_group // height * COLUMNS + tl.arange(0, COLUMNS)
    terms = tl.arange(0, TERMS)
    in_rows, in_columns = rows < m, columns < n
    a += rows.to(tl.int64)[:, None] * a_row + terms[None, :] * a_term
    b += terms[:, None] * b_term + columns.to(tl.int64)[None, :] * b_column
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, k, TERMS):
        if EVEN:
            left = tl.load(a, mask=in_rows[:, None], other=0.0)
            right = tl.load(b, mask=in_columns[None, :], other=0.0)
        else:
            inside = start + terms < k
            left = tl.load(a, mask=in_rows[:, None] & inside[None, :], other=0.0)
            right = tl.load(b, mask=inside[:, None] & in_columns[None, :], other=0.0)
        sums = tl.dot(left, right, sums, input_precision="tf32", max_num_imprecise_acc=KEPT)
        a += TERMS * a_term
        b += TERMS * b_term
    to = out + rows.to(tl.int64)[:, None] * n + columns[None, :]
    tl.store(to, sums.to(out.dtype.element_ty), mask=in_rows[:, None] & in_columns[None, :])

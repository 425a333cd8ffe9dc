"""Matrix product in TileLang: tiles, pipelined copies and products as the language has them. Compiled by TileLang to CUDA C++,
or to the CuTe DSL. Tiles are guesses.
"""

from functools import cache

from kernels.catalog import Unsupported, cuda, kernel

ROWS, COLUMNS, TERMS, THREADS, STAGES = 128, 128, 64, 256, 3


@kernel(
    "gemm",
    backend="tilelang",
    dtypes=("float16", "bfloat16"),
    needs=cuda(min_capability=9.0, packages=("tilelang",)),
)
def tilelang(a, b, *, trans_a=False, trans_b=False):
    """Tiled matrix product in TileLang, compiled to CUDA C++; batches and transposed matrices."""
    return _product(a, b, trans_a, trans_b, "cuda")


@kernel(
    "gemm",
    backend="tilelang-cutedsl",
    dtypes=("float16", "bfloat16"),
    needs=cuda(min_capability=9.0, packages=("tilelang", "cutlass")),
)
def tilelang_cutedsl(a, b, *, trans_a=False, trans_b=False):
    """The same TileLang program, compiled to the CuTe DSL; K in multiples of 8."""
    if (k := a.shape[-2 if trans_a else -1]) % 8:  # "'_Tensor' object has no attribute 'toint'" at 65
        raise Unsupported(f"K is {k}; this kernel takes multiples of 8, for TileLang 0.1.15 failed at 65")
    return _product(a, b, trans_a, trans_b, "cutedsl")


def _product(a, b, trans_a, trans_b, target):
    flat = a.dim() == 2
    a, b = (a[None], b[None]) if flat else (a, b)
    dtype = str(a.dtype).removeprefix("torch.")
    out = _compiled(tuple(a.shape), tuple(b.shape), trans_a, trans_b, dtype, target)(a, b)
    return out[0] if flat else out


@cache
def _compiled(of_a, of_b, trans_a, trans_b, dtype, target):
    """The program for two shapes, compiled for the current device; called with a and b it makes the product."""
    from tilelang import compile

    return compile(program(of_a, of_b, trans_a, trans_b, dtype), out_idx=[2], target=target)


def program(of_a, of_b, trans_a, trans_b, dtype):
    """The TileLang program for a of (B, M, K) and b of (B, K, N), or as they are stored transposed."""
    import tilelang.language as T

    batch, m, k = (of_a[0], of_a[2], of_a[1]) if trans_a else of_a
    n = of_b[1] if trans_b else of_b[2]
    tile_a = [TERMS, ROWS] if trans_a else [ROWS, TERMS]
    tile_b = [COLUMNS, TERMS] if trans_b else [TERMS, COLUMNS]

    @T.prim_func
    def product(a: T.Tensor(of_a, dtype), b: T.Tensor(of_b, dtype), out: T.Tensor((batch, m, n), dtype)):
        with T.Kernel(T.ceildiv(n, COLUMNS), T.ceildiv(m, ROWS), batch, threads=THREADS) as (column, row, pair):
            left = T.alloc_shared(tile_a, dtype)
            right = T.alloc_shared(tile_b, dtype)
            sums = T.alloc_fragment([ROWS, COLUMNS], "float32")
            T.clear(sums)
            for step in T.Pipelined(T.ceildiv(k, TERMS), num_stages=STAGES):
                if trans_a:
                    T.copy(a[pair, step * TERMS : (step + 1) * TERMS, row * ROWS : (row + 1) * ROWS], left)
                else:
                    T.copy(a[pair, row * ROWS : (row + 1) * ROWS, step * TERMS : (step + 1) * TERMS], left)
                if trans_b:
                    T.copy(b[pair, column * COLUMNS : (column + 1) * COLUMNS, step * TERMS : (step + 1) * TERMS], right)
                else:
                    T.copy(b[pair, step * TERMS : (step + 1) * TERMS, column * COLUMNS : (column + 1) * COLUMNS], right)
                T.gemm(left, right, sums, transpose_A=trans_a, transpose_B=trans_b)
            T.copy(sums, out[pair, row * ROWS : (row + 1) * ROWS, column * COLUMNS : (column + 1) * COLUMNS])

    return product

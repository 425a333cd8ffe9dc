"""Native sparse attention in TileLang (https://tilelang.com): a block of threads for each token and group.

The two kernels differ in TileLang's target only: CUDA C++, or the CuTe DSL. Written from TileLang's public documentation.
"""

from functools import lru_cache

from kernels.catalog import Unsupported, cuda, kernel

LOG2_E = 1.4426950408889634
FEWEST_ROWS = 16
THREADS = 128


@kernel(
    "nsa",
    backend="tilelang",
    name="tilelang",
    dtypes=("float16", "bfloat16"),
    needs=cuda(min_capability=8.0, packages=("tilelang",)),
    limits={"head_dim": (64, 128), "block_size": (16, 32, 64, 128)},
)
def tilelang_cuda(q, k, v, block_indices, *, block_size, causal, scale):
    """TileLang, compiled to CUDA C++."""
    return _made(q, block_indices, block_size, causal, scale, "cuda")(q, k, v, block_indices)


@kernel(
    "nsa",
    backend="tilelang-cutedsl",
    name="tilelang-cutedsl",
    dtypes=("float16", "bfloat16"),
    needs=cuda(min_capability=8.0, packages=("tilelang", "cutlass")),
    limits={"head_dim": (64, 128), "block_size": (16, 32, 64, 128)},
    environment={"TILELANG_USE_GEMM_V1": "1"},
)
def tilelang_cutedsl(q, k, v, block_indices, *, block_size, causal, scale):
    """TileLang, compiled to the CuTe DSL."""
    return _made(q, block_indices, block_size, causal, scale, "cutedsl")(q, k, v, block_indices)


def _made(q, block_indices, block_size, causal, scale, target):
    groups, slots = block_indices.shape[2:]
    if q.shape[1] % block_size:
        raise Unsupported(f"seq_len is {q.shape[1]}; this kernel does multiples of block_size, {block_size}")
    dtype = str(q.dtype).removeprefix("torch.")
    return _compiled((*q.shape, groups, slots), block_size, causal, scale, dtype, target)


@lru_cache(maxsize=64)
def _compiled(sizes, block_size, causal, scale, dtype, target):
    """A function of (q, k, v, block_indices), compiled for these sizes."""
    import tilelang
    import tilelang.language as T

    batch, length, heads, dim, groups, slots = sizes
    mine = heads // groups
    rows = max(FEWEST_ROWS, 1 << (mine - 1).bit_length())
    factor = scale * LOG2_E

    @T.prim_func
    def attention(
        q: T.Tensor((batch, length, heads, dim), dtype),
        k: T.Tensor((batch, length, groups, dim), dtype),
        v: T.Tensor((batch, length, groups, dim), dtype),
        indices: T.Tensor((batch, length, groups, slots), "int32"),
        out: T.Tensor((batch, length, heads, dim), dtype),
    ):
        with T.Kernel(length, groups, batch, threads=THREADS) as (token, group, b):
            q_tile = T.alloc_shared((rows, dim), dtype)
            k_tile = T.alloc_shared((block_size, dim), dtype)
            v_tile = T.alloc_shared((block_size, dim), dtype)
            weights = T.alloc_shared((rows, block_size), dtype)
            scores = T.alloc_fragment((rows, block_size), "float32")
            acc = T.alloc_fragment((rows, dim), "float32")
            largest = T.alloc_fragment((rows,), "float32")
            before = T.alloc_fragment((rows,), "float32")
            shrink = T.alloc_fragment((rows,), "float32")
            part = T.alloc_fragment((rows,), "float32")
            total = T.alloc_fragment((rows,), "float32")

            for row, column in T.Parallel(rows, dim):
                q_tile[row, column] = T.if_then_else(row < mine, q[b, token, group * mine + row, column], 0)
            T.fill(acc, 0)
            T.fill(total, 0)
            T.fill(largest, -1e30)  # finite: the difference of two infinities is not a number
            for slot in T.serial(slots):
                first = indices[b, token, group, slot] * block_size
                if first >= 0 and (not causal or first <= token):
                    T.copy(k[b, first : first + block_size, group, :], k_tile)
                    T.copy(v[b, first : first + block_size, group, :], v_tile)
                    T.clear(scores)
                    T.gemm(q_tile, k_tile, scores, transpose_B=True)
                    if causal:
                        for row, key in T.Parallel(rows, block_size):
                            scores[row, key] = T.if_then_else(
                                first + key <= token, scores[row, key], -T.infinity("float32")
                            )
                    T.copy(largest, before)
                    T.reduce_max(scores, largest, dim=1, clear=False)
                    for row in T.Parallel(rows):
                        shrink[row] = T.exp2((before[row] - largest[row]) * factor)
                    for row, key in T.Parallel(rows, block_size):
                        scores[row, key] = T.exp2((scores[row, key] - largest[row]) * factor)
                    T.reduce_sum(scores, part, dim=1)
                    for row in T.Parallel(rows):
                        total[row] = total[row] * shrink[row] + part[row]
                    for row, column in T.Parallel(rows, dim):
                        acc[row, column] *= shrink[row]
                    T.copy(scores, weights)
                    T.gemm(weights, v_tile, acc)
            for row, column in T.Parallel(rows, dim):
                if row < mine:
                    out[b, token, group * mine + row, column] = T.if_then_else(
                        total[row] > 0, acc[row, column] / total[row], 0
                    )

    return tilelang.compile(attention, out_idx=[-1], target=target)

"""Flash attention in TileLang: tiles, pipelined copies and products as the language has them. Compiled by TileLang to CUDA C++,
or to the CuTe DSL.

A block has a tile of queries and streams K and V past it; blocks of keys that no row sees are left out. Tiles are guesses.
TileLang 0.1.15 compiles it for Hopper. For compute capability 8.0 it cannot compile a pipelined loop of a length that is not
known beforehand.
"""

from functools import cache

from kernels.catalog import cuda, kernel

LOG2_E = 1.4426950408889634
ROWS, THREADS, STAGES = 128, 256, 2


@kernel(
    "attention",
    backend="tilelang",
    dtypes=("float16", "bfloat16"),
    needs=cuda(min_capability=9.0, packages=("tilelang",)),
    limits={"head_dim": (32, 64, 128)},
)
def tilelang(q, k, v, *, causal, scale, window=0):
    """Flash attention in TileLang, compiled to CUDA C++."""
    return _compiled(q.shape, k.shape[1], causal, scale, window, _name(q), "cuda")(q, k, v)


@kernel(
    "attention",
    backend="tilelang-cutedsl",
    dtypes=("float16", "bfloat16"),
    needs=cuda(min_capability=9.0, packages=("tilelang", "cutlass")),
    limits={"head_dim": (32, 64, 128)},
)
def tilelang_cutedsl(q, k, v, *, causal, scale, window=0):
    """The same TileLang program, compiled to the CuTe DSL."""
    return _compiled(q.shape, k.shape[1], causal, scale, window, _name(q), "cutedsl")(q, k, v)


def _name(q):
    return str(q.dtype).removeprefix("torch.")


@cache
def _compiled(shape, kv_heads, causal, scale, window, dtype, target):
    """The program for a shape, compiled for the current device; called with q, k and v it makes the output."""
    from tilelang import compile

    return compile(program(*shape, kv_heads, causal, scale, window, dtype), out_idx=[3], target=target)


def program(batch, heads, seq_len, head_dim, kv_heads, causal, scale, window, dtype):
    """The TileLang program for one shape: q, out (B, H, S, D); k, v (B, Hkv, S, D)."""
    import tilelang.language as T

    KEYS = 64 if head_dim == 128 else 128
    group, factor = heads // kv_heads, scale * LOG2_E
    of_q, of_kv = (batch, heads, seq_len, head_dim), (batch, kv_heads, seq_len, head_dim)

    @T.prim_func
    def flash(
        q: T.Tensor(of_q, dtype), k: T.Tensor(of_kv, dtype), v: T.Tensor(of_kv, dtype), out: T.Tensor(of_q, dtype)
    ):
        with T.Kernel(T.ceildiv(seq_len, ROWS), heads, batch, threads=THREADS) as (place, h, b):
            queries = T.alloc_shared([ROWS, head_dim], dtype)
            of_keys = T.alloc_shared([KEYS, head_dim], dtype)
            of_values = T.alloc_shared([KEYS, head_dim], dtype)
            scores = T.alloc_fragment([ROWS, KEYS], "float32")
            weights = T.alloc_fragment([ROWS, KEYS], dtype)
            sums = T.alloc_fragment([ROWS, head_dim], "float32")
            largest = T.alloc_fragment([ROWS], "float32")
            before = T.alloc_fragment([ROWS], "float32")
            kept = T.alloc_fragment([ROWS], "float32")
            of_block = T.alloc_fragment([ROWS], "float32")
            total = T.alloc_fragment([ROWS], "float32")

            T.copy(q[b, h, place * ROWS : (place + 1) * ROWS, :], queries)
            T.clear(sums)
            T.clear(total)
            T.fill(largest, -T.infinity("float32"))
            # Blocks of keys that some row sees: from the first, so many.
            first = T.max(0, place * ROWS - window + 1) // KEYS if window else 0
            ahead = 1 if causal else (window if window else seq_len)
            end = T.min(T.ceildiv(seq_len, KEYS), T.ceildiv((place + 1) * ROWS - 1 + ahead, KEYS))
            for step in T.Pipelined(end - first, num_stages=STAGES):
                T.copy(k[b, h // group, (first + step) * KEYS : (first + step + 1) * KEYS, :], of_keys)
                T.clear(scores)
                T.gemm(queries, of_keys, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                for i, j in T.Parallel(ROWS, KEYS):
                    row = place * ROWS + i
                    key = (first + step) * KEYS + j
                    visible = key < seq_len
                    if causal:
                        visible = T.And(visible, row >= key)
                    if window:
                        visible = T.And(visible, row - key < window)
                        visible = T.And(visible, key - row < window)
                    scores[i, j] = T.if_then_else(visible, scores[i, j] * factor, -T.infinity("float32"))
                T.copy(largest, before)
                T.reduce_max(scores, largest, dim=1, clear=False)
                for i in T.Parallel(ROWS):
                    # In a window a row may have seen no key yet: nothing is taken from minus infinity.
                    of_block[i] = T.if_then_else(largest[i] == -T.infinity("float32"), 0.0, largest[i])
                    kept[i] = T.exp2(before[i] - of_block[i])
                for i, j in T.Parallel(ROWS, KEYS):
                    scores[i, j] = T.exp2(scores[i, j] - of_block[i])
                T.reduce_sum(scores, of_block, dim=1)
                for i in T.Parallel(ROWS):
                    total[i] = total[i] * kept[i] + of_block[i]
                for i, j in T.Parallel(ROWS, head_dim):
                    sums[i, j] *= kept[i]
                T.copy(scores, weights)
                T.copy(v[b, h // group, (first + step) * KEYS : (first + step + 1) * KEYS, :], of_values)
                T.gemm(weights, of_values, sums, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(ROWS, head_dim):
                sums[i, j] /= total[i]
            T.copy(sums, out[b, h, place * ROWS : (place + 1) * ROWS, :])

    return flash

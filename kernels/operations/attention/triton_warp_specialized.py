"""Flash attention in Triton, third stage: warps with roles. Some load K and V, others multiply and compute the softmax.

What it changes against triton-persistent: the compiler gives warps roles (`tl.range(..., warp_specialize=True)`), and blocks
come by the tensor memory accelerator. On Hopper, Triton 3.6 does so for a single loop without branches only, of 128 rows and 4
warps. So there is one loop, which masks every block where any needs a mask, and a program has one tile. Triton 3.9 cannot
compile it for Hopper.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.catalog import cuda, kernel

LOG2_E = 1.4426950408889634
ROWS, KEYS, WARPS, STAGES = 128, 64, 4, 3


@kernel(
    "attention",
    backend="triton",
    dtypes=("float16", "bfloat16"),
    needs=cuda(architecture=9.0, triton=(">=3.6", "<3.7")),
    limits={"head_dim": (64, 128)},
)
def triton_warp_specialized(q, k, v, *, causal, scale, window=0):
    """Flash attention with warps that load and warps that compute (warp_specialize), for Hopper; TMA loads."""
    batch, heads, seq_len, head_dim = q.shape
    out = torch.empty_like(q)
    with torch.cuda.device_of(q):
        _attention[(triton.cdiv(seq_len, ROWS), heads, batch)](
            _blocks(q, ROWS), _blocks(k, KEYS), _blocks(v, KEYS), out, seq_len, heads // k.shape[1], window,
            scale * LOG2_E, HEAD_DIM=head_dim, ROWS=ROWS, KEYS=KEYS, CAUSAL=causal, WINDOWED=window > 0,
            MASKED=causal or window > 0 or seq_len % KEYS != 0, SPECIALIZED=q.is_cuda, STAGES=STAGES,
            num_warps=WARPS, num_stages=STAGES,
        )  # fmt: skip
    return out


def _blocks(x, rows):
    """A descriptor of x (B, H, S, D) by blocks of rows; rows past the end of a sequence are zeros."""
    return TensorDescriptor.from_tensor(x, [1, 1, rows, x.shape[-1]])


@triton.jit(do_not_specialize=["seq_len", "window"])
def _attention(
    q, k, v, out, seq_len, group, window, scale,
    HEAD_DIM: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
    MASKED: tl.constexpr, SPECIALIZED: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A tile of ROWS queries of one head; the last tile of a causal head sees the most keys and goes first."""
    place = tl.num_programs(0) - 1 - tl.program_id(0) if CAUSAL else tl.program_id(0)
    head, batch = tl.program_id(1), tl.program_id(2)
    kv_head = head // group
    first_row = place * ROWS
    rows = first_row + tl.arange(0, ROWS)
    queries = q.load([batch, head, first_row, 0]).reshape(ROWS, HEAD_DIM)

    begin = tl.maximum(first_row - window + 1, 0) // KEYS * KEYS if WINDOWED else 0
    end = tl.minimum(seq_len, first_row + ROWS) if CAUSAL else seq_len
    if WINDOWED and not CAUSAL:
        end = tl.minimum(seq_len, first_row + ROWS - 1 + window)
    sums = tl.zeros([ROWS, HEAD_DIM], tl.float32)
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    for start in tl.range(begin, end, KEYS, num_stages=STAGES, warp_specialize=SPECIALIZED):
        of_keys = k.load([batch, kv_head, start, 0]).reshape(KEYS, HEAD_DIM)
        scores = tl.dot(queries, tl.trans(of_keys)) * scale
        if MASKED:
            keys = start + tl.arange(0, KEYS)
            scores = tl.where(_visible(rows, keys, seq_len, window, CAUSAL, WINDOWED), scores, float("-inf"))
        now = tl.maximum(largest, tl.max(scores, 1))
        # In a window a row may have seen no key yet: nothing is taken from minus infinity.
        base = tl.where(now == float("-inf"), 0.0, now) if WINDOWED else now
        weights = tl.exp2(scores - base[:, None])
        kept = tl.exp2(largest - base)
        total = total * kept + tl.sum(weights, 1)
        of_values = v.load([batch, kv_head, start, 0]).reshape(KEYS, HEAD_DIM)
        sums = tl.dot(weights.to(of_values.dtype), of_values, sums * kept[:, None])
        largest = now
    columns = tl.arange(0, HEAD_DIM)
    at = tl.cast(batch * tl.num_programs(1) + head, tl.int64) * seq_len * HEAD_DIM
    at += rows[:, None] * HEAD_DIM + columns[None, :]
    tl.store(out + at, (sums / total[:, None]).to(out.dtype.element_ty), mask=(rows < seq_len)[:, None])


@triton.jit
def _visible(rows, keys, seq_len, window, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr):
    """Which row sees which key."""
    visible = (keys < seq_len)[None, :] & (rows >= 0)[:, None]
    if CAUSAL:
        visible &= rows[:, None] >= keys[None, :]
    if WINDOWED:
        visible &= rows[:, None] - keys[None, :] < window
        if not CAUSAL:
            visible &= keys[None, :] - rows[:, None] < window
    return visible

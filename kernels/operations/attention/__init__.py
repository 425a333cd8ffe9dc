"""Attention, forward: softmax(q k^T * scale) v, optionally causal or in a sliding window, with grouped key/value heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, model_validator

from kernels.catalog import operation
from kernels.dtypes import DTYPES
from kernels.operations.base import (
    CUT_OFF,
    EDGE_SIZES,
    SYSTEMATIC,
    Allowance,
    Distribution,
    Inputs,
    Operation,
    Piece,
    draw,
)
from kernels.operations.products import yardstick_product

if TYPE_CHECKING:
    import torch

FLOAT64_SCORES = 2**26
"""Largest score matrix (elements, all heads) with a complete float64 reference: 0.5 GiB."""
TOGETHER_SCORES, TOGETHER_VALUES = 2**25, 2**24
"""Scores of heads that are computed together, where every head is checked; and values that are compared together."""
SAMPLED_HEADS, SAMPLED_ROWS = 8, 256
"""Above that, float64 checks this many (batch, head) pairs, and this many query rows of each; the last and the first
too."""
DRIFT = 1.5
"""drift: mean of q; of k in the first half of the head dimension, with the other sign in the second half."""
NEAR, RAMP = 2.0**-8, 3e-4
"""near_constant: standard deviation of k; scores rise by RAMP from key to key, up to the middle, then fall."""
LAST = 8.0
"""near_constant: the last value is this many times as large, so that an output without it is visibly another."""
MAY_BE_EMPTY = ("kv_heads", "kv_len", "scale", "window")
ALONE = {0: "the first row", -1: "the last row"}
"""Rows of a causal output that are judged on their own: they see the fewest keys, and all."""


@operation("attention", baseline="sdpa", title="Attention, forward")
class Attention(Operation):
    """q: (B, H, S, D); k, v: (B, Hkv, Skv, D); out: (B, H, S, D). Self-attention: Skv is S, unless kv_len says otherwise.

    Query i sees key j if |i - j| < window; causal: if 0 <= i - j < window. A window of 0 hides nothing. Of more keys than
    queries, the queries are the last ones: query i stands at i + Skv - S.
    """

    tensors: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "q": ("batch", "heads", "seq_len", "head_dim"),
        "k": ("batch", "kv_heads", "keys", "head_dim"),
        "v": ("batch", "kv_heads", "keys", "head_dim"),
    }
    options: ClassVar[tuple[str, ...]] = ("causal", "scale", "window", "kv_len")
    later: ClassVar[tuple[str, ...]] = ("scale", "window", "kv_len")
    on_request: ClassVar[Mapping[str, Any]] = {"window": 0, "kv_len": 0}
    libraries: ClassVar[tuple[tuple[str, str], ...]] = (
        ("cudnn", "cuDNN"),
        ("flash_fwd", "FlashAttention-2"),
        ("fmha_cutlass", "the memory-efficient backend"),
        ("flash_attention_for_cpu", "the CPU's flash backend"),
        ("attention_math", "the math backend"),
    )

    checked_with: ClassVar[tuple[Distribution, ...]] = (
        "normal", "drift", "outliers", "near_constant", "x30", "uniform",
    )  # fmt: skip
    dominated: ClassVar[tuple[Distribution, ...]] = ("outliers", "x30")

    batch: int = Field(ge=1, le=65_536, title="Batch (B)")
    heads: int = Field(ge=1, le=1_024, title="Heads (H)")
    kv_heads: int = Field(
        ge=1,
        le=1_024,
        title="KV heads",
        description="Empty: as many as heads.",
        json_schema_extra={"may_be_empty": True},
    )
    seq_len: int = Field(ge=1, le=1_048_576, title="Sequence length (S)")
    head_dim: int = Field(ge=1, le=1_024, title="Head dim (D)")
    causal: bool = Field(False, title="Causal")
    scale: float = Field(
        0.0,
        ge=0,
        le=100,
        title="Scale",
        description="Factor of the scores. Empty: 1 / sqrt(D).",
        json_schema_extra={"may_be_empty": True},
    )
    window: int = Field(
        0,
        ge=0,
        le=1_048_576,
        title="Window",
        description="Keys that a query sees to either side, its own included. Empty: all.",
        json_schema_extra={"may_be_empty": True},
    )
    kv_len: int = Field(
        0,
        ge=0,
        le=1_048_576,
        title="Keys (Skv)",
        description="Length of K and V. Empty: the sequence length. With more keys, the queries are the last ones.",
        json_schema_extra={"may_be_empty": True},
    )

    @model_validator(mode="before")
    @classmethod
    def what_is_empty_has_its_default(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        values = {name: value for name, value in values.items() if name not in MAY_BE_EMPTY or value not in (None, "")}
        return {"kv_heads": values["heads"]} | values if "heads" in values else values

    @model_validator(mode="after")
    def heads_are_a_multiple_of_kv_heads(self) -> Attention:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads ({self.heads}) must be a multiple of KV heads ({self.kv_heads})")
        return self

    @model_validator(mode="after")
    def sizes_are_canonical(self) -> Attention:
        """A scale of 0 is the usual one; as many keys as queries are self-attention; a window as long as the keys hides
        nothing."""
        self.__dict__["scale"] = self.scale or self.head_dim**-0.5
        self.__dict__["kv_len"] = self.kv_len if self.kv_len != self.seq_len else 0
        if self.keys < self.seq_len and (self.causal or self.window):
            raise ValueError(
                f"a causal query, or one in a window, needs a key: {self.seq_len} queries, {self.keys} keys"
            )
        self.__dict__["window"] = self.window if self.window < self.keys else 0
        return self

    @property
    def keys(self) -> int:
        """Length of K and V."""
        return self.kv_len or self.seq_len

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that it sees, of one head."""
        s, n = self.seq_len, self.keys
        if not (self.causal or self.window):
            return s * n
        far = (self.window or n) - 1
        before = _nearest(n, far) - _nearest(n - s, far)
        return s + before + (0 if self.causal else _nearest(s, far))

    def label(self) -> str:
        grouped = f" Hkv={self.kv_heads}" if self.kv_heads != self.heads else ""
        causal = " causal" if self.causal else ""
        window = f" window={self.window}" if self.window else ""
        scale = f" scale={self.scale:.6g}" if self.scale != self.head_dim**-0.5 else ""
        keys = f" Skv={self.kv_len}" if self.kv_len else ""
        return f"B={self.batch} H={self.heads}{grouped} S={self.seq_len}{keys} D={self.head_dim}{causal}{window}{scale}"

    def flops(self) -> int:
        """2 x pairs x (Dqk + Dv) x B x H: pairs that no mask hides."""
        return 2 * self.pairs * 2 * self.head_dim * self.batch * self.heads

    def dense_flops(self) -> int:
        """4 x S x Skv x D x B x H: what a mask hides counted, too."""
        return 4 * self.seq_len * self.keys * self.head_dim * self.batch * self.heads

    def flops_formula(self) -> tuple[str, str]:
        s, w = self.seq_len, self.window
        if self.kv_len:
            pairs, numbers = self._pairs_of_two_lengths()
        elif w and self.causal:
            pairs, numbers = "(W (W + 1) / 2 + (S - W) W)", f"({w} x {w + 1} / 2 + {s - w} x {w})"
        elif w:
            pairs, numbers = "(S^2 - (S - W) (S - W + 1))", f"({s}^2 - {s - w} x {s - w + 1})"
        else:
            pairs, numbers = ("(S (S + 1) / 2)", f"({s} x {s + 1} / 2)") if self.causal else ("S^2", f"{s}^2")
        return f"4 x {pairs} x D x B x H", f"4 x {numbers} x {self.head_dim} x {self.batch} x {self.heads}"

    def _pairs_of_two_lengths(self) -> tuple[str, str]:
        """`pairs` of more or fewer keys than queries: in symbols, and in numbers."""
        s, n = self.seq_len, self.keys
        if self.window:
            return "pairs", f"{self.pairs}"
        return ("(S (S + 1) / 2 + S (Skv - S))", f"({s} x {s + 1} / 2 + {s} x {n - s})") if self.causal else (
            "S x Skv", f"{s} x {n}"
        )  # fmt: skip

    def bytes_moved(self) -> tuple[int, int]:
        """Reads q, k and v; writes out."""
        row = self.batch * self.head_dim * self.element_bytes
        of_q = row * self.heads * self.seq_len
        return of_q + 2 * row * self.kv_heads * self.keys, of_q

    def queries(self) -> int:
        """Rows of q: B x H x S."""
        return self.batch * self.heads * self.seq_len

    def heads_of(self) -> tuple[int, int]:
        return self.batch, self.heads

    def inputs(self, device: str, seed: int, distribution: Distribution = "normal") -> Inputs:
        import torch

        generator = torch.Generator(device).manual_seed(seed)
        plain = "normal" if distribution == "near_constant" else distribution
        q, k, v = (
            draw((self.batch, heads, length, self.head_dim), self.dtype, device, generator, plain)
            for heads, length in ((self.heads, self.seq_len), (self.kv_heads, self.keys), (self.kv_heads, self.keys))
        )
        if distribution in ("drift", "near_constant"):
            q += DRIFT
        if distribution == "drift":
            k[..., : self.head_dim // 2] += DRIFT
            k[..., self.head_dim // 2 :] -= DRIFT
        elif distribution == "near_constant":
            ramp = torch.arange(self.keys, device=device)
            ramp = torch.minimum(ramp, self.keys - 1 - ramp) * (RAMP / (DRIFT * self.head_dim * self.scale))
            k.mul_(NEAR).add_(ramp.to(k.dtype)[:, None])
            v[..., -1, :] *= LAST
        told = {name: getattr(self, name) for name in self.on_request if getattr(self, name)}
        return Inputs((q, k, v), {"causal": self.causal, "scale": self.scale} | told)

    def edges(self) -> list[Attention]:
        """Odd lengths; at most two KV heads, with the same group size; a window of half the length at most."""
        kv_heads = min(2, self.kv_heads)
        heads = kv_heads * (self.heads // self.kv_heads)
        fixed = {"dtype": self.dtype, "batch": 2, "heads": heads, "kv_heads": kv_heads}
        fixed |= {"head_dim": self.head_dim, "causal": self.causal, "scale": self.scale}
        return [Attention(**fixed | self._edge(size), window=min(self.window, size // 2)) for size in EDGE_SIZES]

    def _edge(self, size: int) -> dict[str, int]:
        """Lengths at an edge: of few queries against many keys it is the keys that are cut into tiles."""
        if not self.kv_len:
            return {"seq_len": size}
        if self.kv_len < self.seq_len:
            return {"seq_len": size, "kv_len": max(1, size // 2)}
        queries = min(self.seq_len, size)
        return {"seq_len": queries, "kv_len": size if size > queries else 2 * size + 1}

    def output_like(self, inputs: Inputs) -> tuple[tuple[int, ...], torch.dtype]:
        q = inputs.tensors[0]
        return tuple(q.shape), q.dtype

    @property
    def allowance(self) -> Allowance:
        """Kernels may fold the scale into q: they round q times a constant. Scores s times as large make the output s^2
        times as sensitive to such an error: the norm of weights of N(0, s^2) scores grows as exp(s^2 / 2)."""
        sensitive = max(1.0, self.scale**2 * self.head_dim)
        return Allowance(slope=max(SYSTEMATIC, DTYPES[self.dtype].folded) * sensitive + CUT_OFF * self.keys)

    def check(self, inputs: Inputs, seed: int, thorough: bool) -> Iterator[Piece]:
        import torch

        q, k, v = inputs.tensors
        if self.batch * self.heads * self.keys * self._width <= FLOAT64_SCORES:
            group = self.heads // self.kv_heads
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
            whole = Piece(..., self._exact(q, k, v, torch.float64), self._yardstick(q, k, v))
            yield whole
            yield from self._alone(whole, (...,))
            return
        rng = torch.Generator().manual_seed(seed)
        heads = torch.randperm(self.batch * self.heads, generator=rng)[:SAMPLED_HEADS]
        rows = torch.stack([self._sampled_rows(rng) for _ in heads])
        together = max(1, TOGETHER_SCORES // (self.keys * max(rows.shape[1], self.head_dim)))
        for some, of_each in zip(heads.split(together), rows.split(together), strict=True):
            b, h = (at.to(q.device) for at in (some // self.heads, some % self.heads))
            piece = self._rows_of_some(inputs, b, h, of_each.to(q.device))
            yield piece
            yield from self._alone(piece, (b, h))
        if thorough:
            yield from self._every_head(inputs)

    @property
    def _width(self) -> int:
        """Elements for each key in float64: its scores, or the key itself, if there are few queries."""
        return max(self.seq_len, self.head_dim) if self.kv_len else self.seq_len

    def _alone(self, piece: Piece, where: tuple[Any, ...]) -> Iterator[Piece]:
        """The rows of a piece of heads that are judged alone. The piece has the first and the last row."""
        if self.causal and self.seq_len > 1:
            for row, name in ALONE.items():
                yield Piece(
                    (*where, row, slice(None)), piece.reference[..., row, :], piece.yardstick[..., row, :], alone=name
                )

    def _sampled_rows(self, rng: torch.Generator) -> torch.Tensor:
        """Some query rows, the first and the last among them, in order."""
        import torch

        inner = 1 + torch.randperm(max(0, self.seq_len - 2), generator=rng)[:SAMPLED_ROWS]
        return torch.cat((torch.tensor([0, self.seq_len - 1]).unique(), inner)).sort().values

    def _rows_of_some(self, inputs: Inputs, b: torch.Tensor, h: torch.Tensor, rows: torch.Tensor) -> Piece:
        """Some query rows, (N, R), of N pairs of batch and head, in float64."""
        import torch

        q, k, v = inputs.tensors
        index, kv = (b[:, None], h[:, None], rows), h // (self.heads // self.kv_heads)
        q1, k1, v1 = q[index], k[b, kv], v[b, kv]
        return Piece(index, self._exact(q1, k1, v1, torch.float64, rows), self._yardstick(q1, k1, v1, rows))

    def _every_head(self, inputs: Inputs) -> Iterator[Piece]:
        """All rows of all heads, some heads of a batch together. float32 is exact enough for 16-bit results; float32 results
        need float64."""
        import torch

        q, k, v = inputs.tensors
        exact = torch.float64 if q.dtype == torch.float32 else torch.float32
        group, step = self.heads // self.kv_heads, max(1, TOGETHER_SCORES // (self.seq_len * self.keys))
        compared = max(step, TOGETHER_VALUES // (self.seq_len * self.head_dim))
        for b in range(self.batch):
            for heads in torch.arange(self.heads, device=q.device).split(compared):
                found: list[tuple[torch.Tensor, torch.Tensor]] = []
                for some in heads.split(step):
                    q1, k1, v1 = q[b, some], k[b, some // group], v[b, some // group]
                    found.append((self._exact(q1, k1, v1, exact), self._yardstick(q1, k1, v1)))
                right, yardstick = (torch.cat(parts) for parts in zip(*found, strict=True))
                yield Piece((b, heads), right, yardstick)

    def _exact(self, q: Any, k: Any, v: Any, dtype: Any, rows: Any = None) -> Any:
        scores = (q.to(dtype) @ k.to(dtype).mT).mul_(self.scale)
        return self._masked(scores, rows).softmax(-1) @ v.to(dtype)

    def _yardstick(self, q: Any, k: Any, v: Any, rows: Any = None) -> Any:
        """Eager PyTorch in the workload's dtype: matmuls accumulate in float32, softmax is in float32."""
        scores = yardstick_product(q, k.mT).float().mul_(self.scale)
        return yardstick_product(self._masked(scores, rows).softmax(-1).to(q.dtype), v)

    def _masked(self, scores: Any, rows: Any) -> Any:
        if not (self.causal or self.window):
            return scores
        import torch

        keys = torch.arange(self.keys, device=scores.device)
        rows = torch.arange(self.seq_len, device=scores.device) if rows is None else rows
        rows = (rows + self.keys - self.seq_len)[..., None]
        hidden = keys >= rows + (1 if self.causal else self.window)
        if self.window:
            hidden |= keys <= rows - self.window
        return scores.masked_fill_(hidden, float("-inf"))


def _nearest(count: int, far: int) -> int:
    """0 + 1 + ... over `count` terms, none above `far`: other keys that rows see on one side."""
    rising = min(count, far + 1)
    return rising * (rising - 1) // 2 + (count - rising) * far

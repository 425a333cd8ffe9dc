"""Native sparse attention, forward: each query sees the keys of some blocks, optionally those of a sliding window, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
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

NONE = -1
"""A slot of block_indices without a block."""
INDEX_BYTES = 4
EVERY, EMPTY_AT, SHORT_AT = 61, 60, 30
"""Of every 61 tokens one has no block (the last), and one half as many (in the middle)."""
DRIFT = 1.5
"""drift: mean of q; of k in the first half of the head dimension, with the other sign in the second half."""
FLOAT64_SCORES = 2**26
"""Most scores (all heads) with a complete float64 reference."""
SAMPLED_ROWS = 256
"""Above that, float64 checks this many tokens of each batch, with all their heads; the last and the first too."""
CHUNK = 2**25
"""Elements of the keys that are gathered at once: 256 MiB in float64."""
MAY_BE_EMPTY = ("groups", "scale", "window")


@operation("nsa", baseline="eager", title="Native sparse attention, forward")
class NativeSparseAttention(Operation):
    """q: (B, S, H, D); k, v: (B, S, G, D); block_indices: (B, S, G, N), int32; out: (B, S, H, D).

    G groups of H / G heads share their keys, values and blocks. Slot n of token t selects the keys from block_indices x
    block_size on, block_size of them. -1 selects none. No block is twice among the slots of a token. Causal: keys after t
    are hidden, in whichever block. A token that sees no key has the output 0.

    window > 0: the output is the sum of this attention and of one over a sliding window, each with its own softmax. Token t
    sees key j in it if |t - j| < window; causal: if 0 <= t - j < window. The published method also weighs both by learned
    gates and has a third branch over compressed keys: neither is here.
    """

    tensors: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "q": ("batch", "seq_len", "heads", "head_dim"),
        "k": ("batch", "seq_len", "groups", "head_dim"),
        "v": ("batch", "seq_len", "groups", "head_dim"),
        "block_indices": ("batch", "seq_len", "groups", "selected_blocks"),
    }
    options: ClassVar[tuple[str, ...]] = ("block_size", "causal", "scale", "window")
    on_request: ClassVar[Mapping[str, Any]] = {"window": 0}
    checked_with: ClassVar[tuple[Distribution, ...]] = ("normal", "drift", "outliers", "x30", "uniform")
    dominated: ClassVar[tuple[Distribution, ...]] = ("outliers", "x30")
    operators: ClassVar[tuple[str, ...]] = (
        "index", "matmul", "bmm", "mul", "masked_fill", "_softmax", "softmax", "nan_to_num", "add", "where",
        "scaled_dot_product_attention",
    )  # fmt: skip

    batch: int = Field(ge=1, le=65_535, title="Batch (B)")
    heads: int = Field(ge=1, le=1_024, title="Heads (H)")
    groups: int = Field(
        ge=1,
        le=1_024,
        title="Groups (G)",
        description="KV heads. Empty: as many as heads.",
        json_schema_extra={"may_be_empty": True},
    )
    seq_len: int = Field(ge=1, le=1_048_576, title="Sequence length (S)")
    head_dim: int = Field(ge=1, le=1_024, title="Head dim (D)")
    block_size: int = Field(ge=1, le=4_096, title="Block size", description="Keys of a block.")
    selected_blocks: int = Field(
        ge=1, le=1_024, title="Selected blocks (N)", description="Of each token and group, at most."
    )
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
        description="Keys of the sliding window to either side, the token's own included. Empty: no window.",
        json_schema_extra={"may_be_empty": True},
    )

    @model_validator(mode="before")
    @classmethod
    def what_is_empty_has_its_default(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        values = {name: value for name, value in values.items() if name not in MAY_BE_EMPTY or value not in (None, "")}
        return {"groups": values["heads"]} | values if "heads" in values else values

    @model_validator(mode="after")
    def heads_are_a_multiple_of_groups(self) -> NativeSparseAttention:
        if self.heads % self.groups:
            raise ValueError(f"heads ({self.heads}) must be a multiple of groups ({self.groups})")
        return self

    @model_validator(mode="after")
    def scale_and_window_are_canonical(self) -> NativeSparseAttention:
        """A scale of 0 is the usual one; a window longer than the sequence ends there."""
        self.__dict__["scale"] = self.scale or self.head_dim**-0.5
        self.__dict__["window"] = min(self.window, self.seq_len)
        return self

    def label(self) -> str:
        grouped = f" G={self.groups}" if self.groups != self.heads else ""
        causal = " causal" if self.causal else ""
        window = f" window={self.window}" if self.window else ""
        scale = f" scale={self.scale:.6g}" if self.scale != self.head_dim**-0.5 else ""
        blocks = f"{self.selected_blocks} blocks of {self.block_size}"
        return (
            f"B={self.batch} H={self.heads}{grouped} S={self.seq_len} D={self.head_dim} {blocks}{causal}{window}{scale}"
        )

    # --- work ---------------------------------------------------------------------------------------------------------

    @property
    def pairs(self) -> int:
        """Pairs of a token and a key that it sees, of one head: in selected blocks, and in the window."""
        return selected_pairs(self.seq_len, self.block_size, self.selected_blocks, self.causal) + self._window_pairs

    @property
    def _window_pairs(self) -> int:
        s, w = self.seq_len, self.window
        if not w:
            return 0
        return w * (w + 1) // 2 + (s - w) * w if self.causal else s * s - (s - w) * (s - w + 1)

    def flops(self) -> int:
        """2 x pairs x (Dqk + Dv) x B x H: pairs of a token and a key that it sees. `inputs` draws as many for every
        seed."""
        return 4 * self.pairs * self.head_dim * self.batch * self.heads

    def dense_flops(self) -> int:
        """4 x S^2 x D x B x H: attention to every key."""
        return max(4 * self.seq_len**2 * self.head_dim * self.batch * self.heads, self.flops())

    def flops_formula(self) -> tuple[str, str]:
        symbols = "4 x pairs of token and visible key x D x B x H"
        return symbols, f"4 x {self.pairs:,} x {self.head_dim} x {self.batch} x {self.heads}"

    def bytes_moved(self) -> tuple[int, int]:
        """Reads q, k, v and the indices; writes out."""
        token = self.batch * self.seq_len
        of_q, of_k = self.heads * self.head_dim * self.element_bytes, self.groups * self.head_dim * self.element_bytes
        return token * (of_q + 2 * of_k + self.groups * self.selected_blocks * INDEX_BYTES), token * of_q

    def queries(self) -> int:
        """Rows of q: B x H x S."""
        return self.batch * self.heads * self.seq_len

    def heads_of(self) -> tuple[int, int]:
        return self.batch, self.heads

    # --- inputs -------------------------------------------------------------------------------------------------------

    def inputs(self, device: str, seed: int, distribution: Distribution = "normal") -> Inputs:
        """Blocks are drawn for each token and group, without one twice, and stand in random order.

        Among them is always the block of the last key that the token may see: so every seed has the same work. Tokens that
        have too few blocks before them, and those of EMPTY_AT and SHORT_AT, have slots without a block; in a causal row
        some of these select later blocks, whose keys are hidden.
        """
        import torch

        generator = torch.Generator(device).manual_seed(seed)
        q, k, v = (
            draw((self.batch, self.seq_len, heads, self.head_dim), self.dtype, device, generator, distribution)
            for heads in (self.heads, self.groups, self.groups)
        )
        if distribution == "drift":
            q += DRIFT
            k[..., : self.head_dim // 2] += DRIFT
            k[..., self.head_dim // 2 :] -= DRIFT
        indices = torch.empty(
            (self.batch, self.seq_len, self.groups, self.selected_blocks), dtype=torch.int32, device=device
        )
        step = max(1, CHUNK // (self.batch * self.groups * max(self._blocks, self.selected_blocks)))
        for first in range(0, self.seq_len, step):
            indices[:, first : first + step] = self._drawn(first, min(first + step, self.seq_len), generator)
        return Inputs((q, k, v, indices), self._options())

    def _options(self) -> dict[str, Any]:
        window = {"window": self.window} if self.window else {}
        return {"block_size": self.block_size, "causal": self.causal, "scale": self.scale} | window

    @property
    def _blocks(self) -> int:
        """Blocks of the sequence."""
        return -(-self.seq_len // self.block_size)

    def _drawn(self, first: int, last: int, generator: torch.Generator) -> torch.Tensor:
        """block_indices of the tokens from first to last - 1: (B, last - first, G, N)."""
        import torch

        device, shape = generator.device, (self.batch, last - first, self.groups)
        token = torch.arange(first, last, device=device)[:, None, None]
        block = torch.arange(self._blocks, device=device)
        newest = token // self.block_size if self.causal else torch.full_like(token, self._blocks - 1)
        # The block of the last visible key comes first, then visible blocks in random order, then later ones.
        order = torch.rand((*shape, self._blocks), generator=generator, device=device)
        order = torch.where(block == newest, 2.0, torch.where(block < newest, order, order - 2))
        chosen = order.sort(dim=-1, descending=True, stable=True).indices[..., : self.selected_blocks]
        missing = self.selected_blocks - chosen.shape[-1]
        chosen = torch.nn.functional.pad(chosen, (0, missing), value=NONE)
        rank = torch.arange(self.selected_blocks, device=device)
        wanted = torch.full_like(token, self.selected_blocks)
        wanted[token % EVERY == SHORT_AT] = (self.selected_blocks + 1) // 2
        wanted[token % EVERY == EMPTY_AT] = 0
        later = (chosen > newest) & (token % 2 == 1)
        chosen = chosen.where((rank < wanted) & (chosen <= newest) | later, NONE)
        slots = torch.rand(chosen.shape, generator=generator, device=device).argsort(dim=-1, stable=True)
        return chosen.gather(-1, slots).int()

    def edges(self) -> list[NativeSparseAttention]:
        """Odd sequence lengths; at most two groups, of the same size; a window of half the length at most."""
        groups = min(2, self.groups)
        fixed = self.model_dump() | {"batch": 2, "groups": groups, "heads": groups * (self.heads // self.groups)}
        return [
            NativeSparseAttention(**fixed | {"seq_len": size, "window": min(self.window, size // 2)})
            for size in EDGE_SIZES
        ]

    def output_like(self, inputs: Inputs) -> tuple[tuple[int, ...], torch.dtype]:
        q = inputs.tensors[0]
        return tuple(q.shape), q.dtype

    # --- correct values -----------------------------------------------------------------------------------------------

    @property
    def allowance(self) -> Allowance:
        """Kernels may fold the scale into q: they round q times a constant (as in attention)."""
        sensitive = max(1.0, self.scale**2 * self.head_dim)
        keys = self.selected_blocks * self.block_size + self.window
        return Allowance(slope=max(SYSTEMATIC, DTYPES[self.dtype].folded) * sensitive + CUT_OFF * keys)

    def check(self, inputs: Inputs, seed: int, thorough: bool) -> Iterator[Piece]:
        """Raises ValueError if block_indices are not valid: see why_invalid."""
        import torch

        q, indices = inputs.tensors[0], inputs.tensors[3]
        if why := why_invalid(indices, self._blocks):
            raise ValueError(why)
        keys = self.selected_blocks * self.block_size + 2 * self.window
        every = torch.arange(self.seq_len, device=q.device)
        if self.batch * self.heads * self.seq_len * keys <= FLOAT64_SCORES:
            for b in range(self.batch):
                yield from self._pieces(inputs, b, every, torch.float64)
            return
        rng = torch.Generator().manual_seed(seed)
        ends = torch.tensor([0, self.seq_len - 1])
        for b in range(self.batch):
            sample = torch.cat((torch.randperm(self.seq_len, generator=rng)[:SAMPLED_ROWS], ends))
            yield from self._pieces(inputs, b, sample.unique().to(q.device), torch.float64)
        if thorough:
            # float32 is exact enough for 16-bit results; float32 results need float64.
            exact = torch.float64 if q.dtype == torch.float32 else torch.float32
            for b in range(self.batch):
                yield from self._pieces(inputs, b, every, exact)

    def _pieces(self, inputs: Inputs, b: int, tokens: torch.Tensor, exact: torch.dtype) -> Iterator[Piece]:
        """Some tokens of a batch, with all their heads."""
        keys = max(self.selected_blocks * self.block_size, 2 * self.window)
        for some in tokens.split(max(1, CHUNK // (self.groups * keys * self.head_dim))):
            seen = self._seen(inputs.tensors[3][b, some], some)
            q, k, v = (tensor[b] for tensor in inputs.tensors[:3])
            yield Piece((b, some), self._exact(q[some], k, v, seen, exact), self._yardstick(q[some], k, v, seen))

    def _seen(self, indices: torch.Tensor, tokens: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Of each branch: the positions of the keys of some tokens, and which are visible, both (tokens, G, keys).

        indices: (tokens, G, N)."""
        import torch

        here = tokens[:, None, None]
        places = indices.long()[..., None] * self.block_size + torch.arange(self.block_size, device=tokens.device)
        visible = (indices[..., None] != NONE).expand_as(places).flatten(2)
        branches = [(places.flatten(2), visible)]
        if self.window:
            reach = torch.arange(1 - self.window, 1 if self.causal else self.window, device=tokens.device)
            near = (here + reach).expand(-1, self.groups, -1)
            branches.append((near, near >= 0))
        ends = here if self.causal else self.seq_len - 1
        return [(places.clamp(0, self.seq_len - 1), visible & (places <= ends)) for places, visible in branches]

    def _gathered(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Rows of (S, G, D) at (tokens, G, keys): (tokens, G, keys, D)."""
        import torch

        return x[places, torch.arange(self.groups, device=x.device)[:, None]]

    def _grouped(self, q: torch.Tensor) -> torch.Tensor:
        """(tokens, H, D) as (tokens, G, H / G, D)."""
        return q.unflatten(1, (self.groups, self.heads // self.groups))

    def _exact(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: Any, dtype: torch.dtype) -> torch.Tensor:
        total = None
        for places, visible in seen:
            scores = (self._grouped(q).to(dtype) @ self._gathered(k, places).to(dtype).mT).mul_(self.scale)
            out = _weights(scores, visible) @ self._gathered(v, places).to(dtype)
            total = out if total is None else total + out
        assert total is not None
        return total.flatten(1, 2)

    def _yardstick(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: Any) -> torch.Tensor:
        """Eager PyTorch in the workload's dtype: products accumulate in float32, softmax is in float32."""
        total = None
        for places, visible in seen:
            scores = yardstick_product(self._grouped(q), self._gathered(k, places).mT).float().mul_(self.scale)
            out = yardstick_product(_weights(scores, visible).to(q.dtype), self._gathered(v, places))
            total = out if total is None else total + out
        assert total is not None
        return total.flatten(1, 2)


def _weights(scores: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    """Softmax over the visible keys; 0 where there is none. scores: (tokens, G, H / G, keys)."""
    scores = scores.masked_fill_(~visible[:, :, None], float("-inf"))
    return scores.softmax(-1).nan_to_num_(0.0)


@lru_cache(maxsize=256)
def selected_pairs(seq_len: int, block_size: int, selected: int, causal: bool) -> int:
    """Pairs of a token and a key that it sees in its selected blocks, of one head, in the inputs that are drawn."""
    blocks = -(-seq_len // block_size)
    total = 0
    for token in range(seq_len):
        wanted = {EMPTY_AT: 0, SHORT_AT: (selected + 1) // 2}.get(token % EVERY, selected)
        count = min(wanted, token // block_size + 1 if causal else blocks)
        of_last = token % block_size + 1 if causal else seq_len - (blocks - 1) * block_size
        total += (count - 1) * block_size + of_last if count else 0
    return total


def why_invalid(block_indices: torch.Tensor, blocks: int) -> str:
    """Why indices (B, S, G, N) are not valid, as a sentence; empty if they are. blocks: of the sequence.

    A block that is twice among the slots of a token would have twice its weight in some kernels and not in others.
    """
    ordered = block_indices.sort(-1).values
    if int(ordered[..., 0].min()) < NONE or int(ordered[..., -1].max()) >= blocks:
        return f"block_indices are from {NONE} (none) to {blocks - 1} (the last block) here"
    twice = (ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] != NONE)
    if not bool(twice.any()):
        return ""
    b, s, g, slot = twice.nonzero()[0].tolist()
    return f"block_indices[{b}, {s}, {g}] has block {int(ordered[b, s, g, slot])} twice"

"""How to measure: the protocol of a run, and its named settings."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

MOST_PROCESSES = 20
"""Fresh processes that may measure a workload."""


class Protocol(BaseModel):
    """How to measure. Times are in seconds or as named.

    paired: every arm in every round, in a balanced random order, compared within rounds (the default).
    fixed: W warm-up calls, then N timed calls of one kernel after the other, no pairing: what older suites did.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["paired", "fixed"] = "paired"
    mode: Literal["auto", "cold", "graph", "warm", "sustained", "e2e"] = "auto"
    """auto: graph below 50 us, else cold. sustained: back to back for at least 1 s. e2e: host time, dispatch included.
    On a CPU the mode is always cpu."""
    seed: int | None = Field(None, ge=0, lt=2**63)
    """Of all random numbers. None: drawn in secret, and recorded with the measurement; given here, it repeats that."""
    min_rounds: int = Field(20, ge=1, le=1000)
    max_rounds: int = Field(120, ge=1, le=1000)
    look_every: int = Field(10, ge=1, le=1000)
    precision: float = Field(0.003, gt=0, le=1)
    """Stop when the half-width of every speedup's interval is at most this."""
    budget_s: float = Field(60.0, gt=0, le=3600)
    """Time limit of the rounds of one workload, per pair. The mode sustained measures 8 rounds whatever it is."""
    processes: int = Field(1, ge=1, le=MOST_PROCESSES)
    """Fresh processes that measure each workload, one after the other. With one, every interval includes the spread
    between processes that was measured before (kernels/analysis/processes.py); with several, also what they show."""
    warmup_s: float = Field(0.5, ge=0, le=60)
    block_ms: float = Field(2.0, gt=0, le=1000)
    """Approximate length of a block (4 to 50 calls)."""
    rest: float = Field(1.0, ge=0, le=10)
    """Rest before each block, as a multiple of the block's length. 0: back to back; a GPU at its power limit then
    changes its clock, and an arm's time depends on what ran before it."""
    verify_only: bool = False
    """Check correctness only; time nothing."""
    isolated: bool = False
    """Each kernel in a process of its own, which sees neither clock nor reference: docs/instrument.md#isolated."""
    verify_seeds: int = Field(6, ge=1, le=10)
    """Number of correctness checks, each on fresh inputs: N(0, 1), then the operation's other distributions, then
    again."""
    compile_limit_s: float = Field(300.0, gt=0, le=3600)
    warmup: int = Field(200, ge=0, le=100_000)
    """fixed: untimed calls."""
    iters: int = Field(500, ge=1, le=100_000)
    """fixed: timed calls."""
    flush_l2: bool = False
    """fixed: evict L2 before every call, by reading twice its size."""

    @model_validator(mode="after")
    def rounds_are_ordered(self) -> Protocol:
        if self.max_rounds < self.min_rounds:
            raise ValueError(f"max_rounds ({self.max_rounds}) is below min_rounds ({self.min_rounds})")
        return self

    @model_validator(mode="after")
    def isolated_measures_batches(self) -> Protocol:
        if self.isolated and (self.name != "paired" or self.mode != "auto"):
            raise ValueError("isolated measures batches in pairs: it has no other protocol or mode")
        return self

    @property
    def is_wide(self) -> bool:
        """Whether its intervals may be as wide as those of *quick*."""
        return self.precision >= float(EFFORTS["quick"]["precision"])


NORMAL: dict[str, Any] = {
    name: Protocol.model_fields[name].default
    for name in ("min_rounds", "max_rounds", "precision", "budget_s", "warmup_s", "processes")
}
EFFORTS: dict[str, dict[str, Any]] = {
    "quick": NORMAL | {"min_rounds": 10, "max_rounds": 20, "precision": 0.01, "budget_s": 3.0, "warmup_s": 0.2},
    "normal": NORMAL,
    "thorough": NORMAL | {"processes": 5},
}
"""Named settings of the protocol `paired`. quick: a few seconds a workload, wide intervals. thorough: five processes,
whose results count as confirmed."""

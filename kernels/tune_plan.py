"""How to search for the best settings of a kernel: what a command, a form and an agent agree on."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

SAMPLERS = ("tpe", "random", "nsga2", "evolution")
"""The first three are Optuna's; the last is kernels/tuning/evolution.py."""


class TunePlan(BaseModel):
    """A search. Trials are screened together, `together` at a time; the best `finalists` are measured again, in new
    processes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sampler: Literal["tpe", "random", "nsga2", "evolution"] = "tpe"
    seed: int = Field(0, ge=0, lt=2**31)
    """Of the sampler: with the same results it asks for the same settings."""
    trials: int = Field(24, ge=1, le=1000)
    minutes: float | None = Field(None, gt=0, le=24 * 60)
    """Of all of it. The last part is kept for the finalists."""
    together: int = Field(4, ge=1, le=16)
    """Settings that are screened in the same rounds, about: more are tried if the kernel refuses many."""
    finalists: int = Field(3, ge=1, le=16)
    processes: int = Field(5, ge=2, le=20)
    """Fresh processes that confirm each finalist."""
    least: float = Field(1.03, gt=1, le=10)
    """Speedup over the kernel's own choice that counts as better."""
    shapes: int = Field(2, ge=1, le=100)
    """Workloads on which it must be better; of fewer workloads, all."""
    population: int = Field(8, ge=2, le=100)
    """evolution: settings drawn at random before the first mutation."""
    elites: int = Field(3, ge=1, le=100)
    """evolution: the best so far, whose settings are mutated."""

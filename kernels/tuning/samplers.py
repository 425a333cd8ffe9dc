"""Samplers by name: Optuna's, and the evolutionary loop. All are asked for settings and told how they did."""

from __future__ import annotations

from typing import Protocol

from kernels.settings import Space
from kernels.tune_plan import TunePlan
from kernels.tuning.evolution import Asked, Evolution, Known


class CannotTune(ValueError):
    """A kernel cannot be tuned here. The message is a sentence."""


class Sampler(Protocol):
    """Asked for settings, and told how they did: also of trials of an earlier part of the search."""

    def ask(self) -> Asked | None:
        """Settings that were not tried; None if all were."""

    def tell(self, known: Known) -> None: ...


def sampler_of(plan: TunePlan, space: Space) -> Sampler:
    """Raises CannotTune."""
    if plan.sampler == "evolution":
        return Evolution(space, plan.seed, plan.population, plan.elites)
    try:
        from kernels.tuning.optuna_study import Optuna
    except ModuleNotFoundError:
        why = f"the sampler {plan.sampler} needs the package optuna: pip install optuna; evolution needs none"
        raise CannotTune(why) from None
    return Optuna(plan.sampler, space, plan.seed)

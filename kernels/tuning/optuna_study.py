"""Optuna's samplers, by ask and tell. Imported late: the package takes a while, and few commands need it."""

from __future__ import annotations

import random
import warnings

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import TrialState

from kernels.settings import Settings, Space, all_of, spelled
from kernels.tuning.evolution import ATTEMPTS, Asked, Known

optuna.logging.set_verbosity(optuna.logging.WARNING)


def _optunas(name: str, seed: int) -> optuna.samplers.BaseSampler:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        match name:
            case "random":
                return optuna.samplers.RandomSampler(seed=seed)
            case "tpe":  # settings that are being measured count as bad: it then asks for others beside them
                return optuna.samplers.TPESampler(seed=seed, constant_liar=True)
            case "nsga2":
                return optuna.samplers.NSGAIISampler(seed=seed)
    raise ValueError(f"there is no sampler '{name}'")


class Optuna:
    """A study of Optuna, by ask and tell."""

    def __init__(self, name: str, space: Space, seed: int) -> None:
        self.name, self.space = name, space
        self.random = random.Random(seed)
        self.study = optuna.create_study(direction="maximize", sampler=_optunas(name, seed))
        self.values: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(values) for name, values in space.items()
        }
        self.open: dict[str, optuna.trial.Trial] = {}
        self.known: dict[str, Known | None] = {}
        """Settings as text -> how they did; None: asked, not told yet."""

    def ask(self) -> Asked | None:
        for _ in range(ATTEMPTS):
            trial = self.study.ask(self.values)
            settings: Settings = {name: trial.params[name] for name in self.space}
            text = spelled(settings)
            if text not in self.known:
                self.open[text], self.known[text] = trial, None
                return Asked(settings, self.name)
            self._tell_again(trial, self.known[text])
        left = [one for one in all_of(self.space) if spelled(one) not in self.known]
        if not left:
            return None
        self.known[spelled(found := self.random.choice(left))] = None
        return Asked(found, "drawn from what was left")

    def _tell_again(self, trial: optuna.trial.Trial, known: Known | None) -> None:
        """A sampler that asks for the same settings again learns what is known of them: they are not measured again."""
        if known is None:
            self.study.tell(trial, state=TrialState.FAIL)
        elif known.score is None:
            self.study.tell(trial, state=TrialState.PRUNED)
        else:
            self.study.tell(trial, known.score)

    def tell(self, known: Known) -> None:
        text = spelled(known.settings)
        self.known[text] = known
        if trial := self.open.pop(text, None):
            self._tell_again(trial, known)
            return
        state = TrialState.PRUNED if known.score is None else TrialState.COMPLETE
        told = optuna.trial.create_trial(
            params=known.settings, distributions=self.values, value=known.score, state=state
        )
        self.study.add_trial(told)

"""An evolutionary search: a population drawn at random, elites that pass the gates, and mutations of their settings."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from kernels.settings import Settings, Space, Value, all_of, spelled

ATTEMPTS = 50
"""Draws for settings that were not tried yet, before the rest of the space is listed."""
TWO_CHANGES = 0.3
"""Share of the mutations that change more than one setting."""
CROSSED = 0.25
"""Share of the children that have two parents."""
NEIGHBOUR = 0.7
"""Share of the changes that go to the next value, up or down: a space lists its values in order."""


@dataclass(frozen=True)
class Asked:
    """Settings to try, and where they come from."""

    settings: Settings
    origin: str


@dataclass(frozen=True)
class Known:
    """How a trial ended."""

    number: int
    settings: Settings
    score: float | None
    """None: pruned."""
    passes: bool
    """Every gate of the screening."""


class Evolution:
    """Population, mutation, elites. Nothing is tried twice; pruned settings have no children."""

    def __init__(self, space: Space, seed: int, population: int, elites: int) -> None:
        self.space, self.population, self.size = space, population, elites
        self.random = random.Random(seed)
        self.known: list[Known] = []
        self.asked: set[str] = set()

    @property
    def elites(self) -> list[Known]:
        """The best so far: those that pass the gates before those that do not."""
        alive = [one for one in self.known if one.score is not None]
        return sorted(alive, key=lambda one: (not one.passes, -(one.score or 0.0), one.number))[: self.size]

    def ask(self) -> Asked | None:
        """New settings; None if all were tried."""
        for _ in range(ATTEMPTS):
            found = self._next()
            if spelled(found.settings) not in self.asked:
                return self._noted(found)
        left = [one for one in all_of(self.space) if spelled(one) not in self.asked]
        return self._noted(Asked(self.random.choice(left), "drawn from what was left")) if left else None

    def tell(self, known: Known) -> None:
        self.asked.add(spelled(known.settings))
        self.known.append(known)

    def _noted(self, asked: Asked) -> Asked:
        self.asked.add(spelled(asked.settings))
        return asked

    def _next(self) -> Asked:
        elites = self.elites
        if len(self.asked) < self.population or not elites:
            return Asked({name: self.random.choice(values) for name, values in self.space.items()}, "drawn")
        parent = self.random.choice(elites)
        if len(elites) > 1 and self.random.random() < CROSSED:
            other = self.random.choice([one for one in elites if one is not parent])
            child = {name: self.random.choice((parent, other)).settings[name] for name in self.space}
            return Asked(self._mutated(child, 1), f"crossed from {parent.number} and {other.number}")
        changes = 2 if self.random.random() < TWO_CHANGES else 1
        return Asked(self._mutated(parent.settings, changes), f"mutated from {parent.number}")

    def _mutated(self, settings: Settings, changes: int) -> Settings:
        names = [name for name, values in self.space.items() if len(values) > 1]
        child = dict(settings)
        for name in self.random.sample(names, min(changes, len(names))):
            child[name] = self._changed(self.space[name], child[name])
        return child

    def _changed(self, values: Sequence[Value], now: Value) -> Value:
        place = next(
            number for number, one in enumerate(values) if one is now or spelled({"": one}) == spelled({"": now})
        )
        near = [number for number in (place - 1, place + 1) if 0 <= number < len(values)]
        far = [number for number in range(len(values)) if number != place]
        return values[self.random.choice(near if self.random.random() < NEIGHBOUR else far)]

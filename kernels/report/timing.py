"""Where the seconds of a run went, as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, get_args

from kernels.contract.events import Measured, Phase, Timing

SAID: dict[Phase, str] = {
    "wait": "waiting for the device",
    "start": "start of processes: Python, torch, the device",
    "calibrate": "ceilings of the device",
    "load": "loading kernels' files",
    "first call": "first calls, with compilation",
    "check": "checks before timing",
    "inputs": "input sets",
    "captures": "capturing graphs",
    "estimate": "first estimates",
    "warm-up": "warm-up",
    "rounds": "rounds: blocks of timed calls",
    "rests": "rests before blocks",
    "fresh inputs": "fresh values between rounds",
    "single calls": "single calls beside graphs",
    "check after": "checks of timed outputs",
    "probes": "probes for cached results",
    "cross-check": "cross-check",
    "host": "the parent: statistics, decisions, writing",
}


class Spent(NamedTuple):
    """Time spent on one phase."""

    phase: str
    said: str
    workloads_s: float
    """In workloads."""
    run_s: float
    """In the whole run."""
    share: float
    """Of the whole run, 0 to 1."""


def spent(measurements: Iterable[Measured], outside: Timing) -> list[Spent]:
    """The phases of a run that took time, in a run's order. Empty if nothing was recorded."""
    inside: dict[str, float] = {}
    for measured in measurements:
        for phase, seconds in measured.timing.items():
            inside[phase] = inside.get(phase, 0.0) + seconds
    whole = sum(inside.values()) + sum(outside.values())
    known = [*get_args(Phase), *sorted({*inside, *outside} - set(get_args(Phase)))]
    found = []
    for phase in known:
        run_s = inside.get(phase, 0.0) + outside.get(phase, 0.0)
        if run_s > 0:
            said = SAID.get(phase, phase)
            found.append(Spent(phase, said, inside.get(phase, 0.0), run_s, run_s / whole))
    return found


def total_s(table: Iterable[Spent]) -> float:
    return sum(one.run_s for one in table)


def as_text(table: list[Spent]) -> str:
    """For a terminal."""
    if not table:
        return "No times of phases were recorded."
    lines = [f"{'seconds':>8}  share  phase"]
    lines += [f"{one.run_s:8.2f}  {one.share:>5.1%}  {one.said}" for one in table]
    return "\n".join([*lines, f"{total_s(table):8.2f}         the whole run"])

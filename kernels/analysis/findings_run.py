"""Findings of measured results: what their status, their noise and their clock say. Alike results make one finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kernels.analysis.findings_one import Finding, Kind, Timed
from kernels.analysis.statistics import as_margin
from kernels.analysis.verdicts import is_noisy
from kernels.contract.arm_result import Status

CLOCKS_ALIKE = 0.02
"""Two arms whose median SM clocks differ by more than this ran at different clock speeds."""
THROTTLING = {
    "SwThermalSlowdown": "thermal slow-down by the driver",
    "HwThermalSlowdown": "thermal slow-down by the hardware",
    "HwSlowdown": "slow-down by the hardware",
    "HwPowerBrakeSlowdown": "power brake by the hardware",
    "SwPowerCap": "its power limit",
}
MOST_NAMED = 3
"""Workloads that a sentence names."""
KINDS = {
    Status.IMPOSSIBLE: Kind.IMPOSSIBLE, Status.SUSPECT: Kind.SUSPECT, Status.INCORRECT: Kind.INCORRECT,
    Status.CRASHED: Kind.BROKEN, Status.FAILED: Kind.BROKEN, Status.TIMED_OUT: Kind.BROKEN,
    Status.OUT_OF_MEMORY: Kind.BROKEN,
}  # fmt: skip
VERBS = {
    Status.CRASHED: "crashed",
    Status.FAILED: "failed",
    Status.TIMED_OUT: "timed out",
    Status.OUT_OF_MEMORY: "ran out of memory",
}
"""Statuses with their own verb; the others follow "is"."""


@dataclass(frozen=True)
class Observed:
    """One kernel on one workload, as a run measured it."""

    timed: Timed
    status: Status = Status.OK
    why: str = ""
    """Of a status that is not ok, as a sentence."""
    margin: float = 0.0
    noise: str = ""
    """Why nothing is decided on this workload; empty if something may be."""
    is_baseline: bool = False
    is_contended: bool = False
    mhz: float | None = None
    """Median SM clock before its blocks, and before those of the baseline in the same rounds."""
    base_mhz: float | None = None
    other_work: bool = False
    throttled: Sequence[str] = ()
    """What held the GPU back during the rounds."""

    @property
    def counts(self) -> bool:
        """Whether its time may be compared with others."""
        quiet = not self.is_contended and not is_noisy(self.margin)
        return self.status == Status.OK and self.timed.ms is not None and quiet and not self.other_work

    @property
    def label(self) -> str:
        return self.timed.workload.label


def of_observed(every: Sequence[Observed]) -> Iterator[Finding]:
    """Statuses, noise, contention and clocks."""
    for status, kind in KINDS.items():
        for kernel, alike in _by(lambda one: one.timed.kernel, [one for one in every if one.status == status]):
            said = f"{kernel} {VERBS.get(status, f'is {status}')} on {_where(alike)}{_first(alike)}"
            yield Finding(kind, said, _whys(alike), _of(alike))
    if noisy := [one for one in every if is_noisy(one.margin) and one.is_baseline]:
        lines = tuple(f"{one.label}: {one.noise or f'the margin is {as_margin(one.margin)}'}" for one in noisy)
        yield Finding(
            Kind.NOISE, f"A/A is too noisy on {_where(noisy)}: results there are undecided.", lines, _of(noisy)
        )
    busy = [one for one in every if one.is_contended and one.is_baseline]
    for gpu, alike in _by(lambda one: one.timed.gpu, busy):
        said = f"Other processes used {gpu or 'the device'} during {_where(alike)}: these results cannot be records."
        yield Finding(Kind.CONTENDED, said, (), _of(alike))
    for kernel, alike in _by(
        lambda one: one.timed.kernel, [one for one in every if _clock(one) < 1 / (1 + CLOCKS_ALIKE)]
    ):
        yield _dropped(kernel, min(alike, key=_clock), alike)
    held = [one for one in every if one.throttled and one.is_baseline]
    for reason in dict.fromkeys(reason for one in held for reason in one.throttled):
        alike = [one for one in held if reason in one.throttled]
        said = f"The GPU was throttled on {_where(alike)}: {THROTTLING.get(reason, reason)}."
        yield Finding(Kind.CLOCK, said, (), _of(alike))


def _dropped(kernel: str, worst: Observed, alike: Sequence[Observed]) -> Finding:
    said = (
        f"{kernel} ran at {worst.mhz:,.0f} MHz while the baseline in the same rounds ran at {worst.base_mhz:,.0f} MHz "
        f"({worst.label}). The clock explains part of the difference."
    )
    lines = tuple(f"{one.label}: {one.mhz:,.0f} / {one.base_mhz:,.0f} MHz = {_clock(one):.3f}" for one in alike)
    return Finding(Kind.CLOCK, said, lines, _of(alike))


def _clock(one: Observed) -> float:
    """Its clock over the baseline's; 1 if one of them is unknown, or the time does not count."""
    if not one.mhz or not one.base_mhz or one.status != Status.OK or one.is_baseline:
        return 1.0
    return one.mhz / one.base_mhz


def _by(key: Callable[[Observed], str], every: Sequence[Observed]) -> list[tuple[str, list[Observed]]]:
    groups: dict[str, list[Observed]] = {}
    for one in every:
        groups.setdefault(key(one), []).append(one)
    return list(groups.items())


def _where(alike: Sequence[Observed]) -> str:
    labels = list(dict.fromkeys(one.label for one in alike))
    return ", ".join(labels) if len(labels) <= MOST_NAMED else f"{len(labels)} workloads"


def _first(alike: Sequence[Observed]) -> str:
    why = next((one.why.rstrip(".") for one in alike if one.why), "")
    return f": {why}." if why else "."


def _whys(alike: Sequence[Observed]) -> tuple[str, ...]:
    return tuple(f"{one.label}: {one.why}" for one in alike if one.why)


def _of(alike: Sequence[Observed]) -> tuple[Timed, ...]:
    return tuple(one.timed for one in alike)

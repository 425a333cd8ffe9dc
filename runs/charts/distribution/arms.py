"""The arms of a result's charts: the baseline and the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import altair as alt
import numpy as np

from kernels.contract.arm_result import ArmResult

FENCE = 3
"""An axis ends this many interquartile ranges beyond the quartiles, as for the table's outliers, ..."""
KEPT = 5
"""... but at most this percentage of an arm's values is beyond either end."""
LEAST_IQR = 0.002
"""Least range, as a share of the median: equal values still need an axis."""
SIGNED = "datum.value ? format(datum.value, '+~g') : '0'"

Axis = tuple[float, float]
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Arm:
    """One kernel's rounds of samples, in microseconds."""

    name: str
    ink: str
    """Name of its colour in THEMES."""
    rounds: list[list[float]]
    low: float
    high: float
    """Interval of its median: low, high."""

    @cached_property
    def values(self) -> np.ndarray:
        return np.concatenate([np.asarray(ticks, dtype=float) for ticks in self.rounds])

    @cached_property
    def median(self) -> float:
        return float(np.median(self.values))

    @cached_property
    def quartiles(self) -> Axis:
        low, high = np.percentile(self.values, (25, 75))
        return float(low), float(high)

    @cached_property
    def medians(self) -> np.ndarray:
        """Median of each round."""
        return np.asarray([np.median(ticks) for ticks in self.rounds])

    @cached_property
    def off(self) -> np.ndarray:
        """Each round's median, in percent off the median of all rounds."""
        return percent_off(self.medians, float(np.median(self.medians)))

    @cached_property
    def reach(self) -> Axis:
        """The axis for this arm, including its median's interval."""
        low, high = within_fences(self.values, LEAST_IQR * self.median)
        return min(low, self.low), max(high, self.high)


def arms_of(result: ArmResult, baseline: ArmResult | None) -> list[Arm]:
    """The arms to draw: baseline, then kernel; on the baseline's page only the baseline; or none."""
    if not any(result.samples_ns or ()):
        return []
    alone = baseline is None or baseline.kernel == result.kernel
    pair = [(result, "ink")] if alone else [(baseline, "ink"), (result, "accent")]
    return [_arm(one, ink) for one, ink in pair if one and any(one.samples_ns or ())]


def _arm(result: ArmResult, ink: str) -> Arm:
    rounds = [[tick / 1e3 for tick in ticks] for ticks in result.samples_ns or () if ticks]
    middle = float(np.median([tick for ticks in rounds for tick in ticks]))
    low, high = (middle if end is None else end * 1e3 for end in (result.p50_low_ms, result.p50_high_ms))
    return Arm(result.kernel, ink, rounds, low, high)


def within_fences(values: np.ndarray, least_iqr: float) -> Axis:
    """(from, to) without values that are few, far outside the quartiles, and would lengthen the axis by half."""
    q1, q3 = np.percentile(values, (25, 75))
    reach = FENCE * max(float(q3 - q1), least_iqr)
    least, most = float(values.min()), float(values.max())
    low = min(float(q1) - reach, float(np.percentile(values, KEPT, method="higher")))
    high = max(float(q3) + reach, float(np.percentile(values, 100 - KEPT, method="lower")))
    room = (high - low) / 2
    return least if least > low - room else low, most if most < high + room else high


def percent_off(values: Any, middle: float) -> Any:
    return 100 * (values - middle) / (middle or 1)


def colour_of(arms: Sequence[Arm], colours: dict[str, str], **more: Any) -> Any:
    scale = alt.Scale(domain=[arm.name for arm in arms], range=[colours[arm.ink] for arm in arms])
    return alt.Color("kernel:N", scale=scale, **more)


def numbers(*fields: str) -> list[Any]:
    return [alt.Tooltip(f"{field}:Q", format=",.5~r", title=field.replace("_", ", ")) for field in fields]


def beyond(count: int, what: str, name: str, how_far: str) -> str:
    return f"{count:,} {what}{'s' * (count > 1)} of {name} lie{'s' * (count == 1)} beyond the axis, {how_far}."

"""One word for a result: from its status, its interval and its workload's margin. Made anew whenever it is read."""

from __future__ import annotations

import math
import typing
from typing import Any

from kernels.analysis.statistics import (
    FEW_ROUNDS_WIDER,
    FEWEST_ROUNDS,
    MIN_ROUNDS,
    WIDEST_MARGIN,
    as_margin,
    widened,
    word,
)
from kernels.contract.arm_result import ArmResult, Ratio, Status, Verdict
from kernels.contract.events import Measured

SLOWED = "with its environment the baseline is"
"""How a measurement's note begins that says by how much a kernel's variables slow the baseline down."""


class Judged(typing.Protocol):
    """What a word needs of a result: an ArmResult, or a row of several runs."""

    @property
    def kernel(self) -> str: ...
    @property
    def status(self) -> Any: ...
    @property
    def p50_ms(self) -> float | None: ...
    @property
    def speedup(self) -> float | None: ...
    @property
    def speedup_low(self) -> float | None: ...
    @property
    def speedup_high(self) -> float | None: ...
    @property
    def paired(self) -> bool: ...
    @property
    def rounds(self) -> int | None: ...
    @property
    def left_after_round(self) -> int | None: ...
    @property
    def is_checked(self) -> bool | int: ...
    @property
    def other_work(self) -> str: ...


def verdict(arm: ArmResult, measured: Measured) -> Verdict | Status:
    """The status if not ok; otherwise BASELINE, FASTER, SLOWER, SAME, UNDECIDED, or why there is no verdict."""
    if arm.status == Status.OK and arm.p50_ms is None and arm.other_work:
        return Verdict.OTHER_WORK if arm.correctness else Verdict.NONE
    if arm.status == Status.OK and arm.p50_ms is None:
        if arm.is_checked:
            return Verdict.CORRECT
        return Verdict.UNKNOWN if arm.correctness else Verdict.NONE
    if measured.isolated and arm.status == Status.OK and arm.why.startswith(Verdict.TOO_SHORT):
        return Verdict.TOO_SHORT
    return verdict_of(arm, measured.baseline, measured.margin)


def verdict_of(one: Judged, baseline: str, margin: float) -> Verdict | Status:
    """The same for a result that is timed, or not ok."""
    return judged(one, baseline, margin)[0]


def judged(one: Judged, baseline: str, margin: float) -> tuple[Verdict | Status, Ratio | None]:
    """The same with its certain ratio (`certain_ratio`)."""
    ratio = certain_ratio(one)
    if one.status != Status.OK:
        return Status(one.status), ratio
    if one.p50_ms is None:
        return Verdict.NONE, ratio
    if one.kernel == baseline:
        return Verdict.BASELINE, ratio
    if one.other_work:
        return Verdict.OTHER_WORK, ratio
    if one.speedup is not None and not one.is_checked:
        return Verdict.UNKNOWN, ratio
    if ratio is None:
        return Verdict.NEEDS_MORE if one.paired and (one.rounds or 0) < FEWEST_ROUNDS else Verdict.NONE, None
    return word(ratio.low, ratio.high, margin, enough_rounds(one), paired=one.paired), ratio


def enough_rounds(one: Judged) -> int:
    """Rounds that count for a word. Kernels far behind left after five rounds until harness 5: they have enough,
    because their interval is widened."""
    return MIN_ROUNDS if one.left_after_round else one.rounds or 0


def certain_ratio(one: Judged) -> Ratio | None:
    """The speedup with an interval that covers it in 99% of all cases; None without a speedup. The range of fewer than
    MIN_ROUNDS rounds is too narrow: it is widened."""
    speedup, low, high = one.speedup, one.speedup_low, one.speedup_high
    if speedup is None or low is None or high is None:
        return None
    ratio = Ratio(speedup, low, high)
    return ratio if (one.rounds or 0) >= MIN_ROUNDS else widened(ratio, FEW_ROUNDS_WIDER)


def is_noisy(margin: float) -> bool:
    """Whether A/A was so far off that nothing is decided."""
    return margin > WIDEST_MARGIN


def why_undecided(measured: Measured) -> str:
    """Why nothing is decided on a workload, as a sentence without its full stop; empty if something may be."""
    if is_noisy(measured.margin) and (slowed := next((note for note in measured.notes if note.startswith(SLOWED)), "")):
        return slowed
    return why_noisy(measured.aa, measured.margin, measured.is_contended if measured.of_cpu else None)


def why_noisy(aa: Ratio | tuple[float, float, float] | None, margin: float, is_busy: bool | None) -> str:
    """The same from A/A and margin. is_busy: whether others were seen to use the machine; None: unknown."""
    if not is_noisy(margin):
        return ""
    shows = aa is not None and is_noisy(max(1 - aa[1], aa[2] - 1))
    wide = as_margin(margin, 0) + (f", above {WIDEST_MARGIN:.0%}" if margin <= 1 else "")
    seen = f"A/A from {_in_decimals(aa[1])} to {_in_decimals(aa[2])}" if aa and shows else f"the margin is {wide}"
    what = "this machine was busy" if is_busy else "the baseline was noisy" if shows else ""
    return f"{what}: {seen}" if what else seen


def _in_decimals(ratio: float) -> str:
    """Two decimals; of a small ratio as many as its first digit needs: 0.003."""
    return f"{ratio:.{max(2, math.ceil(-math.log10(ratio)))}f}" if ratio > 0 else f"{ratio:.2f}"


def why_no_word(measured: Measured, arm: ArmResult) -> str:
    """Why a result that is ok has no word, or none that counts, as a clause; empty if it has one."""
    if arm.other_work:
        return f"{Verdict.OTHER_WORK}: it {arm.other_work}"
    return why_undecided(measured) if arm.speedup is not None else ""

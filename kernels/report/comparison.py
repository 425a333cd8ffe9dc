"""Comparison of two runs: each kernel's speedup over its baseline, after / before.

Samples of different runs are never compared. Each speedup comes from pairs in one process. A change is the ratio of two
speedups, with the intervals of both (statistics.change).
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernels.analysis.standing import WORDS
from kernels.analysis.statistics import MIN_ROUNDS, as_margin, change, word
from kernels.analysis.verdicts import certain_ratio, enough_rounds
from kernels.contract.arm_result import FAILURES, ArmResult, Ratio, Status, Verdict
from kernels.contract.environment import KEYED, WHERE_TOLD
from kernels.contract.events import Measured
from kernels.report.cells import as_csv as records_as_csv
from kernels.report.cells import listed, markdown, plus_minus, text, three_digits

NOT_COMPARED, NEW, GONE = "not compared", "new", "gone"
COMPARABILITY_KEYS = {"paired": "in pairs", "rest": "rests"}
"""Protocol fields that must agree for a comparison, with their names in sentences."""


class Results(typing.Protocol):
    """Results to compare: an export, or a run read from the database."""

    @property
    def environment(self) -> dict[str, Any]: ...
    @property
    def measurements(self) -> Sequence[Measured]: ...
    @property
    def contended(self) -> bool: ...


@dataclass(frozen=True)
class RunResults:
    """Results of one run, or of a session's first or last measurements."""

    environment: dict[str, Any]
    measurements: Sequence[Measured]
    contended: bool = False
    """Whether other processes used the device."""


@dataclass(frozen=True)
class Row:
    """The change of one kernel on one workload. None: unknown."""

    workload: str
    mode: str
    kernel: str
    verdict: str
    """A Verdict of WORDS, another Verdict, a Status, or NOT_COMPARED, NEW, GONE."""
    change: float | None
    """Above 1: the kernel became faster."""
    change_low: float | None
    change_high: float | None
    margin: float | None
    """The wider margin of both runs. If an unchanged kernel moved: twice its change, for the whole workload."""
    speedup_before: float | None
    speedup_before_low: float | None
    speedup_before_high: float | None
    speedup_after: float | None
    speedup_after_low: float | None
    speedup_after_high: float | None
    p50_before_ms: float | None
    p50_before_low_ms: float | None
    p50_before_high_ms: float | None
    p50_after_ms: float | None
    p50_after_low_ms: float | None
    p50_after_high_ms: float | None
    same_source: bool | None
    why: str
    baseline: str
    sha256_before: str | None
    sha256_after: str | None
    workload_key: str
    status_before: Status | None
    strayed: bool = False
    """Faster or slower, although its source is unchanged."""
    control_moved: bool = False
    """Whether an unchanged kernel's move made the margin wider."""
    contended: str = ""
    """Which of the two runs is contended: before, after, or both; empty: neither."""

    @property
    def ratio(self) -> Ratio | None:
        """The change with its interval."""
        return _whole(self.change, self.change_low, self.change_high)

    @property
    def speedups(self) -> tuple[Ratio | None, Ratio | None]:
        """Before and after, each with its interval."""
        return (
            _whole(self.speedup_before, self.speedup_before_low, self.speedup_before_high),
            _whole(self.speedup_after, self.speedup_after_low, self.speedup_after_high),
        )

    @property
    def times_us(self) -> tuple[Ratio | None, Ratio | None]:
        """The p50 before and after in microseconds, each with its interval."""
        return (
            _whole(self.p50_before_ms, self.p50_before_low_ms, self.p50_before_high_ms, 1e3),
            _whole(self.p50_after_ms, self.p50_after_low_ms, self.p50_after_high_ms, 1e3),
        )

    @property
    def is_broken(self) -> bool:
        """Whether a result is not ok that was ok, or missing, before."""
        return self.verdict in FAILURES and self.verdict != self.status_before


def _whole(value: float | None, low: float | None, high: float | None, factor: float = 1.0) -> Ratio | None:
    if value is None or low is None or high is None:
        return None
    return Ratio(value * factor, low * factor, high * factor)


NOT_IN_FILES = ("status_before", "strayed", "control_moved")
COLUMNS = tuple(name for name in Row.__dataclass_fields__ if name not in NOT_IN_FILES)


def why_not(before: Results, after: Results) -> str:
    """Why two runs cannot be compared, as a sentence; empty if they can."""
    was, now = before.environment, after.environment
    if not was or not now:
        return f"The run {'before' if not was else 'after'} has no results."
    differ = [
        f"{key} {was.get(key) or 'none'} before, {now.get(key) or 'none'} after"
        for key in (*KEYED, *WHERE_TOLD)
        if str(was.get(key, "")) != str(now.get(key, ""))
    ]
    if differ:
        return f"The two runs differ in: {'; '.join(differ)}."
    if not was.get("uuid") or not now.get("uuid"):
        return "Unknown whether both runs used the same card; cards of one model differ."
    if was["uuid"] != now["uuid"]:
        return f"The runs used two cards, {was['uuid']} and {now['uuid']}; cards of one model differ."
    if not {m.key for m in before.measurements} & {m.key for m in after.measurements}:
        return "The runs have no workload in common."
    return ""


def rows(before: Results, after: Results) -> list[Row]:
    """One row per workload and kernel of either run; rows of `after` come first."""
    earlier = {m.place: m for m in before.measurements}
    table: list[Row] = []
    for m in after.measurements:
        table += _of_one(earlier.pop(m.place, None), m, before.measurements)
    table = _widened_where_controls_moved(table)
    if before.contended or after.contended:
        which = "both" if before.contended and after.contended else "before" if before.contended else "after"
        table = [_undecided(row, which) if row.change is not None else row for row in table]
    told = {(row.workload_key, row.kernel) for row in table}
    for m in earlier.values():
        left = [arm for arm in m.results if (m.key, arm.kernel) not in told]
        table += [_row(m, _Pair(arm, None, m, None)) for arm in left]
    return table


def _undecided(row: Row, which: str) -> Row:
    """A row of two runs of which one is contended, or both: its change has no word."""
    return replace(row, contended=which, verdict=Verdict.UNDECIDED if row.verdict in WORDS else row.verdict)


def _widened_where_controls_moved(table: list[Row]) -> list[Row]:
    """Judges a workload again if an unchanged kernel moved: between runs this control is what A/A is within a run."""
    margins: dict[tuple[str, str], float] = {}
    for number, row in enumerate(table):
        if row.same_source and row.verdict in (Verdict.FASTER, Verdict.SLOWER) and row.change is not None:
            table[number] = replace(row, strayed=True)
            place, far = (row.workload_key, row.mode), max(row.change, 1 / row.change) - 1
            margins[place] = max(2 * far, margins.get(place, 0.0))
    return [_judged_again(row, margins.get((row.workload_key, row.mode), 0.0)) for row in table]


def _judged_again(row: Row, margin: float) -> Row:
    if row.verdict not in WORDS or row.margin is None or margin <= row.margin:
        return row
    return replace(
        row, margin=margin, control_moved=True, verdict=word(row.change_low, row.change_high, margin, MIN_ROUNDS)
    )


@dataclass(frozen=True)
class _Pair:
    """A kernel on one workload in two runs; None where it is missing."""

    was: ArmResult | None
    now: ArmResult | None
    earlier: Measured | None
    later: Measured | None

    @property
    def known(self) -> ArmResult:
        arm = self.now or self.was
        assert arm is not None
        return arm


def _of_one(earlier: Measured | None, m: Measured, before: Sequence[Measured]) -> Iterator[Row]:
    modes = sorted({other.mode for other in before if other.key == m.key} - {m.mode})
    was = {arm.kernel: arm for arm in (earlier.results if earlier else [])}
    for arm in m.results:
        row = _row(m, _Pair(was.pop(arm.kernel, None), arm, earlier, m))
        if row.verdict == NEW and modes:
            row = replace(row, verdict=NOT_COMPARED, why=f"mode {listed(modes)} before, {m.mode} after")
        yield row
    for arm in was.values():
        if arm.status != Status.UNSUPPORTED:  # what never ran is not gone
            yield _row(m, _Pair(arm, None, earlier, m))


def _row(at: Measured, pair: _Pair) -> Row:
    was, now = pair.was, pair.now
    hashes = [(arm.sha256 if arm else "") or None for arm in (was, now)]
    verdict, why = _why_not_compared(pair)
    moved: tuple[float | None, float | None, float | None] = (None, None, None)
    margin = None
    if not verdict:
        assert was and now and pair.earlier and pair.later
        margin = max(pair.earlier.margin, pair.later.margin)
        speedups = [certain_ratio(arm) for arm in (was, now)]
        assert speedups[0] and speedups[1]
        moved = change(speedups[0], speedups[1])
        verdict = word(moved[1], moved[2], margin, min(enough_rounds(was), enough_rounds(now)))
    return Row(
        workload=at.workload.label,
        workload_key=at.key,
        mode=at.mode,
        kernel=pair.known.kernel,
        verdict=verdict,
        why=why,
        change=moved[0],
        change_low=moved[1],
        change_high=moved[2],
        margin=margin,
        status_before=was.status if was else None,
        **_figures("before", was),
        **_figures("after", now),
        same_source=hashes[0] == hashes[1] if all(hashes) else None,
        sha256_before=hashes[0],
        sha256_after=hashes[1],
        baseline=at.baseline,
    )


def _figures(when: str, arm: ArmResult | None) -> dict[str, Any]:
    """The fields of a row with the speedup and the p50 of one run; the interval of a speedup holds in 99% of all cases."""
    ratio = certain_ratio(arm) if arm else None
    return {
        f"speedup_{when}": ratio.ratio if ratio else None,
        f"speedup_{when}_low": ratio.low if ratio else None,
        f"speedup_{when}_high": ratio.high if ratio else None,
        f"p50_{when}_ms": arm.p50_ms if arm else None,
        f"p50_{when}_low_ms": arm.p50_low_ms if arm else None,
        f"p50_{when}_high_ms": arm.p50_high_ms if arm else None,
    }


def _why_not_compared(pair: _Pair) -> tuple[str, str]:
    """(verdict, why) if the kernel cannot be compared with before; an empty verdict if it can."""
    was, now, earlier, later = pair.was, pair.now, pair.earlier, pair.later
    if now is None:
        return GONE, ""
    if now.status != Status.OK:
        return now.status, now.why
    if was is None:
        return NEW, ""
    if was.status != Status.OK:
        return now.status, f"{was.status} before"
    assert earlier and later
    if earlier.baseline != later.baseline:
        return NOT_COMPARED, f"over {earlier.baseline} before, over {later.baseline} after"
    if now.kernel == later.baseline:
        return Verdict.BASELINE, ""
    for key, what in COMPARABILITY_KEYS.items():
        old, new = (getattr(how.protocol, key) for how in (earlier, later))
        if old != new:
            return NOT_COMPARED, f"another protocol: {what} {old} before, {new} after"
    if _baseline_hash(earlier) != _baseline_hash(later):
        return NOT_COMPARED, f"the source of the baseline {later.baseline} changed"
    if was.speedup is None or now.speedup is None:
        return NOT_COMPARED, f"without a speedup {'before' if was.speedup is None else 'after'}"
    if not now.paired:
        return NOT_COMPARED, "not paired: drift could explain the difference"
    if was.other_work or now.other_work:
        return NOT_COMPARED, Verdict.OTHER_WORK
    if not (was.is_checked and now.is_checked):
        return NOT_COMPARED, f"{Verdict.UNKNOWN}: there is no reference"
    return "", ""


def _baseline_hash(m: Measured) -> str:
    return next((arm.sha256 for arm in m.results if arm.kernel == m.baseline), "")


def worse(table: Sequence[Row]) -> list[Row]:
    """Regressions: slower than before, or no longer ok."""
    return [row for row in table if row.verdict == Verdict.SLOWER or row.is_broken]


# --- in other forms ---------------------------------------------------------------------------------------------------


def as_records(table: Iterable[Row]) -> list[dict[str, Any]]:
    """The table for files."""
    return [{column: getattr(row, column) for column in COLUMNS} for row in table]


def as_csv(table: Iterable[Row]) -> str:
    return records_as_csv(as_records(table), COLUMNS)


def lines(table: Sequence[Row]) -> list[list[str]]:
    headings = [
        "workload",
        "kernel",
        "verdict",
        "change (interval)",
        "margin",
        "speedup before",
        "after",
        "p50 us before",
        "after",
    ]
    return [headings, *(_cells(row) for row in table)]


def _cells(row: Row) -> list[str]:
    moved = ""
    if row.change is not None:
        moved = f"{row.change:.3f}x ({row.change_low:.3f} to {row.change_high:.3f})"
    speedups = ["" if one is None else f"{one.ratio:.3f}x {plus_minus(one)}" for one in row.speedups]
    times = ["" if one is None else f"{three_digits(one.ratio)} {plus_minus(one)}" for one in row.times_us]
    moved += f", contended: {row.contended}" if row.contended else ""
    margin = "" if row.margin is None else as_margin(row.margin)
    return [row.workload, row.kernel, row.verdict, moved, margin, *speedups, *times]


def as_markdown(table: Sequence[Row], heading: str = "") -> str:
    return markdown(lines(table), heading)


def as_text(table: Sequence[Row]) -> str:
    return text(lines(table), [row.why for row in table])

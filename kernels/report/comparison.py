"""Comparison of two runs: each kernel's speedup over its baseline, after / before.

Samples of different runs are never compared. Each speedup comes from pairs in one process. A change is the ratio of two
speedups, with the intervals of both (statistics.change).
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernels.analysis.standing import WORDS, in_digits
from kernels.analysis.statistics import MIN_ROUNDS, change, geometric_mean, word
from kernels.analysis.verdicts import certain_ratio, enough_rounds, is_noisy
from kernels.contract.arm_result import FAILURES, ArmResult, Ratio, Status, Verdict
from kernels.contract.environment import KEYED, WHERE_TOLD
from kernels.contract.events import Measured
from kernels.report.cells import as_csv as records_as_csv
from kernels.report.cells import listed, markdown, microseconds, text
from kernels.report.summary import VERBS, Summary

NOT_COMPARED, NEW, GONE = "not compared", "new", "gone"
COMPARABILITY_KEYS = {"paired": "in pairs", "rest": "rests"}
"""Protocol fields that must agree for a comparison, with their names in sentences."""


class Results(typing.Protocol):
    """Results to compare: an export, or a run read from the database."""

    @property
    def environment(self) -> dict[str, Any]: ...
    @property
    def measurements(self) -> Sequence[Measured]: ...


@dataclass(frozen=True)
class RunResults:
    """Results of one run, or of a session's first or last measurements."""

    environment: dict[str, Any]
    measurements: Sequence[Measured]


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
    speedup_after: float | None
    p50_before_ms: float | None
    p50_after_ms: float | None
    same_source: bool | None
    why: str
    baseline: str
    sha256_before: str | None
    sha256_after: str | None
    workload_key: str
    status_before: Status | None
    strayed: bool = False
    """Faster or slower, although its source is unchanged."""

    @property
    def ratio(self) -> Ratio | None:
        """The change with its interval."""
        if self.change is None or self.change_low is None or self.change_high is None:
            return None
        return Ratio(self.change, self.change_low, self.change_high)

    @property
    def is_broken(self) -> bool:
        """Whether a result is not ok that was ok, or missing, before."""
        return self.verdict in FAILURES and self.verdict != self.status_before


NOT_IN_FILES = ("status_before", "strayed")
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
    told = {(row.workload_key, row.kernel) for row in table}
    for m in earlier.values():
        left = [arm for arm in m.results if (m.key, arm.kernel) not in told]
        table += [_row(m, _Pair(arm, None, m, None)) for arm in left]
    return table


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
    return replace(row, margin=margin, verdict=word(row.change_low, row.change_high, margin, MIN_ROUNDS))


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
        speedup_before=was.speedup if was else None,
        speedup_after=now.speedup if now else None,
        status_before=was.status if was else None,
        p50_before_ms=was.p50_ms if was else None,
        p50_after_ms=now.p50_ms if now else None,
        same_source=hashes[0] == hashes[1] if all(hashes) else None,
        sha256_before=hashes[0],
        sha256_after=hashes[1],
        baseline=at.baseline,
    )


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


# --- in sentences -----------------------------------------------------------------------------------------------------


def summary(table: Sequence[Row]) -> Summary:
    """The sentences about two runs. Kernels with the same source in both are the control: they should not change."""
    compared = [row for row in table if row.change is not None]
    edited = list(dict.fromkeys(row.kernel for row in compared if not row.same_source))
    control = [row for row in compared if row.same_source]
    sentences: list[str] = []
    strong, tone = "", "same"
    if edited:
        best = max(edited, key=lambda kernel: sum(r.kernel == kernel and r.verdict == Verdict.FASTER for r in compared))
        strong, first, tone = _about(compared, best)
        sentences += [first] if first else []
        for kernel in [other for other in edited if other != best]:
            also, more, _ = _about(compared, kernel)
            sentences.append(f"{also}. {more}".strip())
    elif control:
        strong = "No kernel source changed"
    else:
        strong = "No result can be compared"
    sentences += (_of_the_control(control) if compared else []) + _of_statuses(table)
    return Summary(strong, sentences, tone)


def _about(compared: Sequence[Row], kernel: str) -> tuple[str, str, str]:
    """(strong part, rest, tone) about a kernel."""
    mine = [row for row in compared if row.kernel == kernel]
    counts = {w.lower(): sum(row.verdict == w for row in mine) for w in WORDS}
    first, of = leading(counts), len(mine)
    if not first:
        return f"{kernel} needs more rounds for a comparison", "", "same"
    phrase = {"same": "as fast as before", "undecided": "not clearly faster or slower than before"}.get(
        first, f"{first} than before"
    )
    where = f" on {counts[first]} of {of} workloads" if of > 1 else ""
    others = [f"{w} on {counts[w]}" for w in counts if counts[w] and w != first]
    rest = " ".join(filter(None, [f"It is {', '.join(others)}." if others else "", _mean_of(mine)]))
    return f"{kernel} is {phrase}{where}", rest, first if first in ("faster", "slower") else "same"


def leading(counts: Mapping[str, int]) -> str:
    """Leading word of a kernel from its counts: faster or slower, whichever is more frequent; else same; else
    undecided; else empty."""
    if counts["faster"] or counts["slower"]:
        return "faster" if counts["faster"] >= counts["slower"] else "slower"
    return next((w for w in ("same", "undecided") if counts[w]), "")


def _mean_of(mine: Sequence[Row]) -> str:
    """The change, or the geometric mean of the changes, with its interval; without workloads that are too noisy."""
    changes = [row.ratio for row in mine if row.ratio and not is_noisy(row.margin or 0.0)]
    if (mean := geometric_mean(changes)) is None:
        return "A/A was too far from 1 for a comparison."
    if len(mine) == 1:
        return f"{mean.ratio:.3f}x, interval {mean.low:.3f} to {mean.high:.3f}."
    middle, low, high = in_digits(*mean)
    left_out = len(mine) - len(changes)
    return f"Geometric mean of the changes {middle}x over {len(changes)} ({low} to {high})" + (
        f", {left_out} left out." if left_out else "."
    )


def _of_the_control(control: Sequence[Row]) -> list[str]:
    """The sentence about unchanged kernels."""
    if not control:
        return ["No unchanged kernel was compared, so nothing controls for a difference between the two runs."]
    strayed = [row for row in control if row.strayed]
    counts = [(word, sum(row.verdict == word for row in control)) for word in (Verdict.SAME, Verdict.UNDECIDED)]
    phrases = {Verdict.SAME: "the same", Verdict.UNDECIDED: "undecided"}
    counted = listed([f"{count} {'is' if count == 1 else 'are'} {phrases[word]}" for word, count in counts if count])
    count = len(control)
    said = f"Of {count} result{'s' * (count != 1)} of unchanged kernels{', ' * bool(counted)}{counted}"
    if not strayed:
        return [f"{said}; none is faster or slower."]
    kernels = listed(list(dict.fromkeys(row.kernel for row in strayed)))
    workloads, widest = {row.workload for row in strayed}, max(row.margin or 0.0 for row in strayed)
    where = f"on {len(workloads)} workload{'s' * (len(workloads) != 1)}"
    then = "results are undecided" if is_noisy(widest) else f"changes below {widest:.0%} do not count"
    return [f"{said}, but {kernels} moved {where}: {then} there."]


def _of_statuses(table: Sequence[Row]) -> list[str]:
    sentences = []
    for status in FAILURES:
        for new in (False, True):
            rows = [r for r in table if r.verdict == status and r.is_broken and (r.status_before is None) == new]
            if rows:
                count = len(rows)
                verb = VERBS.get(status) or f"{'are' if count > 1 else 'is'} {status}"
                who = listed(list(dict.fromkeys(row.kernel for row in rows)))
                sentences.append(f"{count} {'new ' * new}result{'s' * (count > 1)} {verb}{' now' * (not new)} ({who}).")
    return sentences


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
    speedups = ["" if one is None else f"{one:.3f}x" for one in (row.speedup_before, row.speedup_after)]
    times = [microseconds(row.p50_before_ms), microseconds(row.p50_after_ms)]
    margin = "" if row.margin is None else f"{row.margin:.1%}"
    return [row.workload, row.kernel, row.verdict, moved, margin, *speedups, *times]


def as_markdown(table: Sequence[Row], heading: str = "") -> str:
    return markdown(lines(table), heading)


def as_text(table: Sequence[Row]) -> str:
    return text(lines(table), [row.why for row in table])

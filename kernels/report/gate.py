"""The gate of a change: each kernel of a run against an earlier run, in words, as Markdown and as JUnit XML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from kernels.analysis.gate import Gate, limit_of, processes_needed, whole, word_of
from kernels.analysis.standing import in_digits
from kernels.analysis.statistics import MIN_ROUNDS, as_margin
from kernels.analysis.verdicts import certain_ratio
from kernels.catalog import AT
from kernels.contract.arm_result import FAILURES, ArmResult, Ratio, Status, Verdict
from kernels.report.cells import listed, markdown, text
from kernels.report.comparison import GONE, NEW, Results, Row, rows, why_not
from kernels.report.versions import Versions

EXIT = {Gate.HOLDS: 0, Gate.FAILS: 1, Gate.UNKNOWN: 2}
LIMIT_DECIMALS = 3
"""Of a change and of its limit: with fewer, an interval could seem to end at the limit."""
ALWAYS_FAIL = (Status.INCORRECT, Status.SUSPECT)
"""Even if they were so before. What else is not ok fails if it was ok."""
NOT_XML = re.compile(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
COLUMNS = ("workload", "kernel", "gate", "change (interval)", "margin", "against", "why")


@dataclass(frozen=True)
class Line:
    """One kernel on one workload."""

    workload: str
    mode: str
    kernel: str
    word: Gate
    why: str
    """Why it fails or cannot be told, as a clause; empty if it holds."""
    change: Ratio | None
    """Speed after over speed before."""
    margin: float | None
    against: str
    """The earlier run."""
    processes: int | None = None
    """Of each run, that would decide; None: unknown, or not the reason."""

    @property
    def is_new(self) -> bool:
        return not self.against and self.word == Gate.HOLDS

    def record(self) -> dict[str, Any]:
        ratio = self.change._asdict() if self.change else None
        return {
            "workload": self.workload, "mode": self.mode, "kernel": self.kernel, "word": self.word.value, "why": self.why,
            "change": ratio, "margin": self.margin, "against": self.against, "processes": self.processes,
        }  # fmt: skip


@dataclass(frozen=True)
class Report:
    """A gate with its lines; those that do not hold come first."""

    lines: list[Line]
    most: float
    """Largest allowed regression, as a share of the time."""
    why: str = ""
    """Why nothing was compared, as a sentence."""

    @property
    def word(self) -> Gate:
        return whole([line.word for line in self.lines])

    @property
    def status(self) -> int:
        """Exit status of a command: 0 holds, 1 fails, 2 cannot tell."""
        return EXIT[self.word]

    @property
    def sentence(self) -> str:
        if not self.lines:
            return f"The gate cannot tell. {self.why or 'No kernel was measured in both runs.'}"
        if self.word == Gate.HOLDS:
            count = len(self.lines)
            results = f"{count} result{'s' * (count != 1)}"
            said = self._not_compared()
            if not any(line.change for line in self.lines):
                return f"The gate holds: {'; '.join(said)}."
            more = "".join(f"; {one}" for one in said)
            return f"The gate holds: no kernel is slower by more than {percent(self.most)} ({results}{more})."
        these = [line for line in self.lines if line.word == self.word]
        who = listed(list(dict.fromkeys(line.kernel for line in these)))
        on = f"on {len(these)} of {len(self.lines)} results"
        if self.word == Gate.FAILS:
            return f"The gate fails {on}: {who}."
        needed = [line.processes for line in these if line.processes]
        advice = f" Measure both runs with {max(needed)} processes." if needed else ""
        return f"The gate cannot tell {on}: {who}.{advice}"

    def _not_compared(self) -> list[str]:
        """What holds without a change, as clauses."""
        new, mended = (
            list(dict.fromkeys(line.kernel for line in self.lines if not line.change and line.is_new == is_new))
            for is_new in (True, False)
        )
        were = "was" if len(mended) == 1 else "were"
        said = [f"no earlier run measured {listed(new)}"] if new else []
        return said + ([f"{listed(mended)} {were} not ok before"] if mended else [])

    def record(self) -> dict[str, Any]:
        return {
            "word": self.word.value, "status": self.status, "sentence": self.sentence, "max_regression": self.most,
            "rows": [line.record() for line in self.lines],
        }  # fmt: skip


def percent(share: float) -> str:
    """ "2%", "0.5%"."""
    return f"{share * 100:.3g}%"


def gate(
    after: Results,
    earlier: Sequence[tuple[str, Results]],
    most: float,
    kernels: Iterable[str] = (),
    of_others: bool = False,
) -> Report:
    """Compares a run with earlier ones: each kernel on each workload with the earlier run in which the low end of its speedup
    is highest; a run of a busy device counts only for what no other one has. A submission is compared with earlier ones of
    its name (`Versions`). A kernel that no earlier run has holds.

    earlier: (name, run). kernels: only these; default: all. of_others: earlier runs may have kernels of other people, which
    need not be measured again.
    """
    chosen, whys, known = {name.partition(AT)[0] for name in kernels}, [], set[str]()
    comparable: list[tuple[str, Results]] = []
    for name, before in earlier:
        if why := why_not(before, after):
            whys.append(f"{name}: {why}" if len(earlier) > 1 else why)
        else:
            comparable.append((name, before))
    judged = Versions.of(after, [run for _, run in comparable])
    now = judged.shown(after)
    found: dict[tuple[str, str, str], list[tuple[bool, bool, float, Line]]] = {}
    for name, run in comparable:
        before = judged.before(run, after)
        known |= {arm.kernel for m in before.measurements for arm in m.results}
        for row in rows(before, now):
            if (chosen and row.kernel.partition(AT)[0] not in chosen) or (of_others and row.verdict == GONE):
                continue
            if line := _line(row, name, before, now, most):
                rank = (bool(line.against), not before.contended, _low_end(before, row, line), line)
                found.setdefault((row.workload_key, row.mode, row.kernel), []).append(rank)
    lines = [max(of, key=lambda one: one[:3])[3] for of in found.values()]
    lines += [line for line in _new(now, known) if not chosen or line.kernel.partition(AT)[0] in chosen]
    missing = sorted(chosen - {line.kernel.partition(AT)[0] for line in lines})
    if missing and not whys:
        whys.append(f"No result of {listed(missing)} can be compared.")
    lines += [_unknown("", "", name, "it was measured in neither run, or is the baseline") for name in missing if lines]
    order = (Gate.FAILS, Gate.UNKNOWN, Gate.HOLDS)
    return Report(sorted(lines, key=lambda line: order.index(line.word)), most, " ".join(whys))


def _new(after: Results, known: set[str]) -> list[Line]:
    """The results of kernels that no earlier run has. None, if no earlier run can be compared."""
    return [
        Line(m.workload.label, m.mode, arm.kernel, Gate.HOLDS, "new", None, None, "")
        for m in after.measurements
        for arm in m.results
        if known and arm.status == Status.OK and arm.kernel not in known | {m.baseline}
    ]


def _low_end(of: Results, row: Row, line: Line) -> float:
    """Of the kernel's speedup in an earlier run. Below 0: that run tells nothing of its speed."""
    arm = _arm(of, row)
    ratio = certain_ratio(arm) if arm and line.change else None
    return ratio.low if ratio else -1.0


def _unknown(workload: str, mode: str, kernel: str, why: str, against: str = "") -> Line:
    return Line(workload, mode, kernel, Gate.UNKNOWN, why, None, None, against)


def _line(row: Row, name: str, before: Results, after: Results, most: float) -> Line | None:
    """None: the gate says nothing of it: the baseline, what was not ok before and is not now, and what is new."""
    if row.verdict in ALWAYS_FAIL or row.is_broken:
        why = f"{row.verdict}: {row.why}" if row.why else str(row.verdict)
        known = name if _arm(before, row) else ""
        return Line(row.workload, row.mode, row.kernel, Gate.FAILS, why, None, None, known)
    if row.verdict == Status.OK:
        return Line(row.workload, row.mode, row.kernel, Gate.HOLDS, f"ok; {row.status_before} before", None, None, name)
    if row.verdict in (NEW, Verdict.BASELINE, *FAILURES):
        return None
    if row.verdict == Status.UNSUPPORTED and row.status_before != Status.OK:
        return None
    change, margin = row.ratio, row.margin
    if change is None or margin is None:
        if row.verdict == GONE:
            return _unknown(row.workload, row.mode, row.kernel, "it was not measured again", name)
        return _unknown(row.workload, row.mode, row.kernel, row.why or str(row.verdict), name)
    if why := _why_undecided(row):
        return Line(row.workload, row.mode, row.kernel, Gate.UNKNOWN, why, change, margin, name)
    word, needed, why = word_of(change, margin, most), None, ""
    if word == Gate.FAILS:
        why = f"slower by {percent(1 / change.ratio - 1)}, at least {percent(1 / change.high - 1)}"
    elif word == Gate.UNKNOWN and margin > most:
        moved = "an unchanged kernel moved" if row.strayed else "A/A or an unchanged kernel moved"
        why = f"{moved} as much: the margin is {as_margin(margin)}; measure on a quiet device"
    elif word == Gate.UNKNOWN:
        needed = processes_needed(change, most, _processes(before, row), _processes(after, row))
        why = f"the interval contains the limit of {limit_of(most):.{LIMIT_DECIMALS}f}x; " + (
            f"about {needed} processes of each run would decide" if needed else "the change is too near to the limit"
        )
    return Line(row.workload, row.mode, row.kernel, word, why, change, margin, name, needed)


def _why_undecided(row: Row) -> str:
    """Why a change says nothing, whatever its interval is; empty if it does."""
    if row.verdict == Verdict.NEEDS_MORE:
        return f"{row.verdict}: a verdict takes at least {MIN_ROUNDS} rounds"
    if not row.contended:
        return ""
    runs = "both runs" if row.contended == "both" else f"the run {row.contended}"
    return f"other processes used the device during {runs}: measure again on an idle device"


def _processes(of: Results, row: Row) -> int:
    arm = _arm(of, row)
    return len(arm.by_process or ()) or 1 if arm else 1


def _arm(of: Results, row: Row) -> ArmResult | None:
    arms = (arm for m in of.measurements if (m.key, m.mode) == (row.workload_key, row.mode) for arm in m.results)
    return next((arm for arm in arms if arm.kernel == row.kernel), None)


# --- in other forms ---------------------------------------------------------------------------------------------------


def _cells(report: Report) -> list[list[str]]:
    lines = [list(COLUMNS)]
    for one in report.lines:
        moved = ""
        if one.change:
            ratio, low, high = in_digits(*one.change, least=LIMIT_DECIMALS)
            moved = f"{ratio}x ({low} to {high})"
        margin = "" if one.margin is None else as_margin(one.margin)
        lines.append([one.workload, one.kernel, one.word.value, moved, margin, one.against, one.why])
    return lines


def as_text(report: Report) -> str:
    table = text([line[:-1] for line in _cells(report)], [one.why for one in report.lines]) if report.lines else ""
    return "\n\n".join(filter(None, [table, report.sentence]))


def as_markdown(report: Report, link: str = "") -> str:
    """For a pull request: the sentence, then the table."""
    said = f"**{report.sentence}**" if report.word != Gate.UNKNOWN else report.sentence
    below = f"Slower by more than {percent(report.most)} fails. Above 1x: faster. Intervals are 99% intervals."
    table = markdown(_cells(report), below=below) if report.lines else ""
    return "\n\n".join(filter(None, [said, table.rstrip(), link])) + "\n"


def as_junit(report: Report) -> str:
    """JUnit XML: a test case for each line. What cannot be told is an error, as nothing was shown."""
    words = [line.word for line in report.lines]
    suite = ElementTree.Element(
        "testsuite", name="benchsite gate", tests=str(max(1, len(words))), failures=str(words.count(Gate.FAILS)),
        errors=str(words.count(Gate.UNKNOWN) or int(not words)),
    )  # fmt: skip
    for line in report.lines or [_unknown("", "", "gate", report.sentence)]:
        name = " ".join(filter(None, [line.kernel, line.mode]))
        case = ElementTree.SubElement(suite, "testcase", classname=_xml(line.workload), name=_xml(name))
        if line.word != Gate.HOLDS:
            kind = "failure" if line.word == Gate.FAILS else "error"
            ElementTree.SubElement(case, kind, message=_xml(line.why), type=line.word.value)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _xml(said: str) -> str:
    return NOT_XML.sub("?", said)

"""What a line says: the sentence of its page, and the evidence below it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from django.utils import timezone

from kernels.analysis.changes import RULE, Change
from kernels.report import change_words as words
from runs.queries import history
from runs.queries.beside import Beside
from runs.queries.lines import Line, Mark


@dataclass
class Story:
    strong: str
    """A sentence without its full stop."""
    tone: str = "same"
    rest: list[str] = field(default_factory=list)
    evidence: list[tuple[str, str]] = field(default_factory=list)
    """[(name, figures)]."""


def day(at: datetime) -> str:
    return words.day(timezone.localtime(at), timezone.localtime())


def story(kernel: str, line: Line, beside: Beside) -> Story:
    change = line.newest_change
    if change and not change.acknowledged and change.index >= line.level:
        told = _changed(kernel, line, beside, change)
    else:
        told = _since(kernel, line)
    if beside.floor is not None:
        told.evidence.append(("A/A", f"±{100 * beside.floor:.1f}%"))
    newest = line.environments.get(line.points[-1].environment, {})
    told.evidence.append(("card", history.card_of(line.gpu, newest)))
    return told


def _changed(kernel: str, line: Line, beside: Beside, mark: Mark) -> Story:
    test = mark.test
    assert test.ratio and test.low and test.high and test.level_before and test.level_after
    when, why = day(line.at(mark.index)), words.cause(mark.facts)
    at = "on" if test.ratio > 1 else "since"
    strong = f"{kernel} {words.became(test.ratio)} {at} {when}{f', {why}' if why else ''}"
    went = f"It went from {words.level(test.level_before)} to {words.level(test.level_after)} µs"
    rest = [f"{went}{_stayed(line)}", *_baseline(line, beside, mark)]
    rest.append(words.certainty(mark.facts, line.elsewhere(mark)))
    evidence = [("time", words.tested(test)), ("t", f"{test.t:.0f}, the rule needs {RULE.t:g}")]
    evidence.append(("runs", f"{test.before} before, {test.after} after"))
    return Story(strong, words.STYLES[test.verdict], rest, evidence)


def _stayed(line: Line) -> str:
    """Whether it has changed since its last change."""
    since, count = line.since, len(line.points) - line.level
    if since.ratio is None:
        return f". It is too early to tell whether it stayed there: {count} of {2 * RULE.least} runs."
    if since.verdict == Change.NONE:
        return f" and stayed there: {words.tested(since)} since."
    if since.verdict == Change.UNKNOWN:
        return f". It is unknown whether it stayed there: {words.tested(since)} since."
    return (
        f". Since then it {'may have' if since.verdict == Change.SUSPICIOUS else 'has'} moved: {words.tested(since)}."
    )


def _baseline(line: Line, beside: Beside, mark: Mark) -> list[str]:
    test = beside.at(line, mark.index)
    if test is None:
        return []
    name = f"The baseline {beside.baseline}"
    if test.ratio is None:
        return [f"{name} has too few runs on one side to tell: {words.tested(test)}."]
    said = {
        Change.NONE: "did not change there",
        Change.UNKNOWN: "may or may not have changed there",
        Change.SUSPICIOUS: "may have changed there, too",
    }.get(test.verdict, "changed there, too")
    return [f"{name} {said}: {words.tested(test)}."]


def _since(kernel: str, line: Line) -> Story:
    """Of a line whose present level nobody has seen begin, or which somebody has acknowledged."""
    since, date, count = line.since, day(line.at(line.level)), len(line.points) - line.level
    if since.ratio is None:
        strong = f"Too few runs to tell: {count} of {2 * RULE.least}"
        rest = [f"The site needs {RULE.least} runs before a change and {RULE.least} after it."]
        return Story(strong, "same", rest, [("runs", str(len(line.points)))])
    strong = {
        Change.NONE: f"{kernel} has not changed since {date}",
        Change.UNKNOWN: f"It is unknown whether {kernel} has changed since {date}",
        Change.SUSPICIOUS: f"{kernel} may have changed since {date}",
    }.get(since.verdict, f"{kernel} drifted: it {words.became(since.ratio)} after {date}; no single step was found")
    rest = {
        Change.NONE: [f"The difference is below {RULE.effect:.0%}, and no step of {RULE.effect:.0%} was found."],
        Change.UNKNOWN: [f"The interval is wider than ±{RULE.effect:.0%}: the runs vary too much."],
        Change.SUSPICIOUS: [
            f"The evidence is weaker than the rule needs: t is {since.t:.1f}, and the rule needs {RULE.t:g}."
        ],
    }.get(since.verdict, [])
    tone = words.STYLES.get(since.verdict, "same")
    runs = f"newest {since.after} against the first {since.before} of {count}"
    return Story(strong, tone, rest, [("time", words.tested(since)), ("runs", runs)])

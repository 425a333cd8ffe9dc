"""The words of changes between runs: every page, chart and file says them in the same way.

Ratios are of times, after over before: 1.04 is 4% slower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

from kernels.analysis.changes import RULE, Change, Rule, Test

MINUS = "\N{MINUS SIGN}"
MOST_NAMED = 2
"""Differences named with their values in a sentence; of more, only their names."""
STYLES = {Change.REGRESSION: "slower", Change.IMPROVEMENT: "faster"}
MARKS = {Change.REGRESSION: "▼", Change.IMPROVEMENT: "▲"}
Facts = Sequence[Sequence[str]]
"""[(name, before, after), ...]: what differs between two runs in a row."""


def percent(ratio: float, sign: bool = True) -> str:
    """A ratio as a difference in percent, with one decimal: +4.1%."""
    value = round(100 * (ratio - 1), 1)
    if not value:
        return "0.0%"
    shown = f"{abs(value):.1f}%"
    return f"{'+' if value > 0 else MINUS}{shown}" if sign else shown


def reach(low: float, high: float) -> str:
    """An interval of ratios in percent: +3.9 to +4.3%."""
    return f"{percent(low).rstrip('%')} to {percent(high)}"


def level(ms: float) -> str:
    """A time in microseconds with four digits: a level is the mean of several runs."""
    us = ms * 1e3
    return f"{us:,.{max(0, 3 - math.floor(math.log10(us)))}f}"


def became(ratio: float) -> str:
    """What a change did: "got 4.1% slower". Of a faster one, its time: "25% faster" has two readings."""
    return f"got {percent(ratio, sign=False)} slower" if ratio > 1 else f"takes {percent(ratio, sign=False)} less time"


def day(at: datetime, now: datetime) -> str:
    """A date for sentences: 3 October; with its year if that is another."""
    return f"{at.day} {at:%B}" + (f" {at.year}" if at.year != now.year else "")


def cause(facts: Facts) -> str:
    """What else changed at a change: "when torch went from 2.10.0 to 2.11.0". Empty if nothing that is recorded did."""
    if not facts:
        return ""
    if len(facts) > MOST_NAMED:
        return f"when {_listed(['its source' if name == 'source' else name for name, *_ in facts])} changed"
    return f"when {_listed([_went(*fact) for fact in facts])}"


def _went(name: str, before: str, after: str) -> str:
    return (
        "its source changed" if name == "source" else f"{name} went from {before or 'unknown'} to {after or 'unknown'}"
    )


def certainty(facts: Facts, elsewhere: Sequence[str] = ()) -> str:
    """How far what else changed explains a change, in sentences. elsewhere: names of what changed between other runs of its
    two sides."""
    if len(facts) > 1:
        count = {2: "Two", 3: "Three", 4: "Four"}.get(len(facts), str(len(facts)))
        return f"{count} things changed at once, so the cause is unknown."
    said = _same(facts[0][0], elsewhere) if facts else "No other recorded fact changed at that run."
    if elsewhere:
        names = _listed(["its source" if name == "source" else name for name in elsewhere])
        said += f" Between other runs of the two sides, {names} changed."
    return said


def _same(changed: str, elsewhere: Sequence[str]) -> str:
    """What was the same, beside the one fact that changed: in all runs of both sides, or in the two runs at the change."""
    if changed == "source":
        what, is_everywhere = "Card, driver and versions were", set(elsewhere) <= {"source"}
    else:
        what, is_everywhere = "Its source was", "source" not in elsewhere
    return (
        f"{what} the same {'on both sides' if is_everywhere else 'in the last run before it and the first one after'}."
    )


def tested(test: Test, rule: Rule = RULE) -> str:
    """The effect with its interval, or why there is none: "+4.1%, +3.9 to +4.3%", "5 of 8 runs"."""
    if test.ratio is None or test.low is None or test.high is None:
        return f"{min(test.before, test.after)} of {rule.least} runs"
    return f"{percent(test.ratio)}, {reach(test.low, test.high)}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

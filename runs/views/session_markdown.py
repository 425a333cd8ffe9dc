"""The report of a session as Markdown. Names are escaped; a person's Markdown stays, its HTML shows as it was typed."""

from __future__ import annotations

from collections.abc import Iterable

from kernels.report import comparison
from kernels.report.cells import escaped, markdown
from runs.markdown import as_typed
from runs.models import TierScale
from runs.queries.figures import Figure
from runs.queries.session_report import Entry, Reached, SessionReport
from runs.session_form import in_words
from runs.templatetags.figures import duration, ratio, timespan
from runs.templatetags.session_tags import missing

NONE = "\N{EN DASH}"
Lines = list[list[str]]


def as_markdown(report: SessionReport, scale: TierScale | None, base: str) -> str:
    """base: before each address."""
    session = report.session
    parts = [f"# {_name(session.title)}", as_typed(session.objective)]
    if said := report.headline:
        parts.append(" ".join([f"**{said.strong}.**" if said.tone != "same" else f"{said.strong}.", *said.rest]))
    parts += [report.counted, *_plan(report), *_measured(report, scale, base), *_decided(report)]
    parts += [markdown(comparison.lines(report.table), "## Each kernel: first result to last")] if report.table else []
    parts += _timeline(report.entries, base)
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _name(text: str) -> str:
    return escaped(" ".join(text.split()))


def _section(title: str, lines: Lines) -> list[str]:
    """A heading with its table; nothing without rows."""
    return [f"## {title}", markdown(lines)] if len(lines) > 1 else []


def _texts(*parts: tuple[str, str]) -> list[str]:
    return [line for title, text in parts if text for line in (f"## {title}", as_typed(text))]


def _plan(report: SessionReport) -> list[str]:
    criteria = [["criterion", "answer", "why"]]
    criteria += [
        [": ".join(filter(None, [_name(one.wanted.title), _name(one.asked)])), one.answer.word, _name(one.answered)]
        for one in report.criteria
    ]
    phases = [["phase", "state", "planned", "took", "needs"]]
    phases += [
        [f"{one.number} {_name(one.title)}", _name(one.state), in_words(one.planned_min), in_words(one.actual_min),
         ", ".join(map(str, one.after))] for one in report.phases
    ]  # fmt: skip
    blockers = [["blocker", "state", "what"]]
    blockers += [[_name(one.title), _name(one.state), _line(one.text)] for one in report.session.hindrances]
    return [
        *_section("Success criteria", criteria), *_section("Phases", phases), *_section("Blockers", blockers)
    ]  # fmt: skip


def _line(text: str) -> str:
    """A person's text in a cell."""
    return as_typed(" ".join(text.split()))


def _measured(report: SessionReport, scale: TierScale | None, base: str) -> list[str]:
    found = ["## Findings", "\n".join(_findings(report, base))] if report.findings else []
    baselines = [["baseline", "workload", "p50", "TFLOP/s", "of the speed of light", "source"]]
    baselines += [
        [_struck(one, _name(one.kernel)), _place(one), _time(one), _rate(one), _share(one), _source(one, base)]
        for one in report.baselines
    ]
    rows = [
        [
            "kernel",
            "workload",
            "baseline",
            "p50",
            "speedup",
            "times slower",
            "of the speed of light",
            "verdict",
            "source",
        ]
    ]
    rows += [
        [_struck(one, _name(one.kernel)), _place(one), _time(one.base), _time(one), _speedup(one),
         _struck(one, f"{one.slowdown:.4g}") if one.slowdown else NONE, _share(one), _struck(one, str(one.verdict)),
         _source(one, base)]
        for one in report.compared
    ]  # fmt: skip
    tiers = [["workload", "kernel", "tier reached", "next", "missing"]]
    tiers += [
        [_place(one.figure), _name(one.figure.kernel), _tier(one),
         _name(one.next.label) if one.next else NONE, missing(one)] for one in report.tiers(scale)
    ]  # fmt: skip
    count = report.comparisons
    many = [f"The intervals hold for {count} comparison{'s' * (count != 1)} at once (Bonferroni)."]
    used = [f"GPU time used: {', '.join(f'{_name(gpu)} {duration(s)}' for gpu, s in report.gpu_seconds.items())}."]
    return [
        *found, *_section("Baselines", baselines), *_section("Results against their baselines", rows),
        *_section("Tiers", tiers), *(many if len(tiers) > 1 else []), *(used if report.gpu_seconds else []),
    ]  # fmt: skip


def _tier(one: Reached) -> str:
    if one.tier is None:
        return "none"
    return _name(one.tier.label) + ("" if one.figure.is_confirmed else ", unconfirmed")


def _findings(report: SessionReport, base: str) -> Iterable[str]:
    for one in report.findings:
        links = ", ".join(f"[{number}]({base}{result.link})" for number, result in enumerate(one.of, 1) if result.link)
        yield f"- {one.kind}: {escaped(one.sentence, '[]*_`<>|')}{f' Results: {links}' if links else ''}"


def _struck(one: Figure, text: str) -> str:
    return f"~~{text}~~" if one.is_withdrawn else text


def _place(one: Figure) -> str:
    return _struck(one, _name(" ".join(filter(None, [one.label, f"on {one.gpu}" if one.gpu else "", one.method]))))


def _time(one: Figure | None) -> str:
    if one is None or one.ms is None:
        return NONE
    interval = f" ({timespan(one.low_ms)} to {timespan(one.high_ms)})" if one.low_ms and one.high_ms else ""
    return _struck(one, f"{timespan(one.ms)}{interval}")


def _rate(one: Figure) -> str:
    return _struck(one, f"{one.tflops:.4g}") if one.tflops else NONE


def _share(one: Figure) -> str:
    return _struck(one, f"{one.share:.1%}") if one.share else NONE


def _speedup(one: Figure) -> str:
    if one.ratio is None:
        return NONE
    if one.is_claimed:
        return f"{ratio(one.ratio.ratio)}x, claimed"
    return _struck(one, f"{ratio(one.ratio.ratio)}x ({ratio(one.ratio.low)} to {ratio(one.ratio.high)})")


def _source(one: Figure, base: str) -> str:
    return _struck(one, f"[{one.source}]({base}{one.link})") + (" withdrawn" if one.is_withdrawn else "")


def _decided(report: SessionReport) -> list[str]:
    session = report.session
    options = [["option", "time", "what", "chosen"]]
    options += [
        [_name(one.title), in_words(one.minutes), _line(one.text), "chosen" if one.chosen else ""] for one in session.choices
    ]  # fmt: skip
    return [
        *_section("Options", options),
        *_texts(("Decision", session.decision), ("Next actions", session.next_actions), ("Learnings", session.learnings),
                ("Deliverables", session.deliverables)),
    ]  # fmt: skip


def _timeline(entries: Iterable[Entry], base: str) -> list[str]:
    lines = ["\n".join(_entry(entry, base)) for entry in entries]
    return ["## Timeline", "\n".join(line for line in lines if line)] if lines else []


def _entry(entry: Entry, base: str) -> list[str]:
    when = f"{entry.at:%Y-%m-%d %H:%M} UTC"
    if run := entry.run:
        one = entry.outcome
        best = f": {one.name} {one.sentence}" if one and one.first else ""
        best += f"; and {one.more}" if one and best and one.more else ""
        said = f"[run {run.pk}]({base}{run.get_absolute_url()}), {_name(run.title)}, {run.state}{_name(best)}"
        if run.withdrawn_at:
            return [f"- {when}: ~~{said}~~ withdrawn: {_name(run.withdrawn_why)}"]
        return [f"- {when}: {said}"]
    assert entry.note is not None
    heading = ["", f"### {_name(entry.note.phase)}", ""] if entry.note.phase else []
    text = as_typed(" ".join(entry.note.text.split()))
    return heading + ([f"- {when}: {text}"] if text else [])

"""Summary of two runs in sentences: what changed, what the control says, and what is not ok any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernels.analysis.standing import WORDS, in_digits
from kernels.analysis.statistics import geometric_mean
from kernels.analysis.verdicts import is_noisy
from kernels.contract.arm_result import FAILURES, Verdict
from kernels.report.cells import listed
from kernels.report.comparison import Row
from kernels.report.summary import VERBS, Summary

MOST_TOLD = 2
"""Edited kernels that have sentences of their own. Of more, one sentence says how many are faster and slower."""
SAID_OF_MANY = {
    "faster": ("is faster than before", "are faster than before"),
    "slower": ("is slower than before", "are slower than before"),
    "mixed": ("is faster on some workloads and slower on others", "are faster on some workloads and slower on others"),
    "same": ("is as fast as before", "are as fast as before"),
    "undecided": ("is not clearly faster or slower", "are not clearly faster or slower"),
    "": ("needs more rounds for a comparison", "need more rounds for a comparison"),
}
"""Of one kernel, and of several."""


def summary(table: Sequence[Row]) -> Summary:
    """The sentences about two runs. Kernels with the same source in both are the control: they should not change."""
    compared = [row for row in table if row.change is not None]
    edited = list(dict.fromkeys(row.kernel for row in compared if not row.same_source))
    unknown = list(dict.fromkeys(row.kernel for row in table if row.same_source is False and row.kernel not in edited))
    control = [row for row in compared if row.same_source]
    sentences: list[str] = []
    each: list[str] = []
    strong, tone = "", "same"
    if len(edited) > MOST_TOLD:
        strong, tone = _about_many(compared, edited)
        each = [f"{also}. {more}".strip() for also, more, _ in (_about(compared, kernel) for kernel in edited)]
    elif edited:
        best = max(edited, key=lambda kernel: sum(r.kernel == kernel and r.verdict == Verdict.FASTER for r in compared))
        strong, first, tone = _about(compared, best)
        sentences += [first] if first else []
        for kernel in [other for other in edited if other != best]:
            also, more, _ = _about(compared, kernel)
            sentences.append(f"{also}. {more}".strip())
    elif unknown:
        strong = _of_the_unknown(unknown)
    elif control:
        strong = "No kernel source changed"
    else:
        strong = "No result can be compared"
    sentences += [f"{_of_the_unknown(unknown)}."] if edited and unknown else []
    sentences += (_of_the_control(control) if compared else []) + _of_statuses(table)
    if which := next((row.contended for row in compared if row.contended), ""):
        runs, tone = "both runs are" if which == "both" else f"the run {which} is", "same"
        if edited:
            strong, sentences = f"No change in speed is decided: {runs} contended", ["Other processes used the device."]
            sentences += _of_statuses(table)
        else:
            sentences.insert(0, f"{runs[:1].upper()}{runs[1:]} contended: other processes used the device.")
    return Summary(strong, [*sentences, *each], tone, ranks=each)


def _of_the_unknown(kernels: Sequence[str]) -> str:
    """About edited kernels without a result that can be compared, as of one that became incorrect."""
    if len(kernels) == 1:
        return f"The source of {kernels[0]} changed, and no result of it can be compared"
    return f"The sources of {listed(kernels)} changed, and no result of them can be compared"


def _about_many(compared: Sequence[Row], edited: Sequence[str]) -> tuple[str, str]:
    """(strong part, tone) about many kernels: "5 kernels are faster than before on 31 of 40 results, eager is slower"."""
    groups: dict[str, list[str]] = {word: [] for word in SAID_OF_MANY}
    for kernel in edited:
        counts = {w.lower(): sum(row.kernel == kernel and row.verdict == w for row in compared) for w in WORDS}
        both = counts["faster"] and counts["slower"]
        groups["mixed" if both else leading(counts)].append(kernel)
    parts = []
    for word, kernels in groups.items():
        if kernels:
            mine = [row for row in compared if row.kernel in kernels]
            who = listed(kernels) if len(kernels) <= MOST_TOLD else f"{len(kernels)} kernels"
            count = sum(row.verdict == word.upper() for row in mine)
            where = f" on {count} of {len(mine)} results" if count < len(mine) and word in ("faster", "slower") else ""
            parts.append(f"{who} {SAID_OF_MANY[word][len(kernels) > 1]}{where}")
    tones = [word for word in ("faster", "slower", "mixed") if groups[word]]
    return ", ".join(parts), tones[0] if tones in (["faster"], ["slower"]) else "same"


def _about(compared: Sequence[Row], kernel: str) -> tuple[str, str, str]:
    """(strong part, rest, tone) about a kernel."""
    mine = [row for row in compared if row.kernel == kernel]
    counts = {w.lower(): sum(row.verdict == w for row in mine) for w in WORDS}
    first, of = leading(counts), len(mine)
    if not first:
        return f"{kernel} needs more rounds for a comparison", "", "same"
    mixed = counts["faster"] and counts["slower"]
    if mixed:
        strong = f"{kernel} is mixed: faster than before on {counts['faster']} of {of} workloads, slower on {counts['slower']}"
        return strong, _mean_of(mine), "same"
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
    noisy = [row for row in mine if is_noisy(row.margin or 0.0)]
    short = [row for row in mine if row.verdict == Verdict.NEEDS_MORE and row not in noisy]
    changes = [row.ratio for row in mine if row.ratio and row not in noisy and row not in short]
    if (mean := geometric_mean(changes)) is None:
        moved = (
            "The unchanged kernels moved too much" if any(row.control_moved for row in noisy) else "A/A was too noisy"
        )
        return f"{moved} for a comparison." if noisy else ""
    if len(mine) == 1:
        return f"{mean.ratio:.3f}x, interval {mean.low:.3f} to {mean.high:.3f}."
    middle, low, high = in_digits(*mean)
    least = min(changes, key=lambda one: one.ratio)
    reasons = [
        f"{len(rows)} left out: {why}" for rows, why in ((noisy, "too noisy"), (short, Verdict.NEEDS_MORE)) if rows
    ]
    over = f"Geometric mean of the changes {middle}x over {len(changes)} ({low} to {high}), least {least.ratio:.3f}x"
    return f"{'; '.join([over, *reasons])}."


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

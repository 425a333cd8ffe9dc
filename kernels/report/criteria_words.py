"""Success criteria and their answers as sentences."""

from __future__ import annotations

from kernels.analysis.criteria import Answer, Criterion, Word


def asked(one: Criterion) -> str:
    """ "v3: speedup >= 1.10 on at least 2 workloads (S=512), p90 not worse, all correct"."""
    wanted = [f"speedup \N{GREATER-THAN OR EQUAL TO} {one.speedup:.2f}"] if one.speedup is not None else []
    if one.p90:
        wanted.append("p90 not worse than the baseline's")
    if one.sm_busy is not None:
        wanted.append(f"SM busy \N{GREATER-THAN OR EQUAL TO} {one.sm_busy:.0%}")
    if one.no_spills:
        wanted.append("no bank conflicts above 5%, no spills")
    if not wanted and not one.correct:
        return ""
    where = (
        "on every workload"
        if one.at_least is None
        else f"on at least {one.at_least} workload{'s' * (one.at_least > 1)}"
    )
    where += f" ({one.workloads})" if one.workloads else ""
    parts = [*wanted, *(["all correct"] if one.correct else [])]
    if wanted:
        parts[len(wanted) - 1] += f" {where}"
    else:
        parts[-1] += f" ({one.workloads})" if one.workloads else ""
    return f"{one.kernel or 'one kernel'}: {', '.join(parts)}"


def answered(one: Answer) -> str:
    """The reason of an answer, as a sentence; what it rests on comes with it."""
    if one.word != Word.HOLDS:
        return f"{one.why[:1].upper()}{one.why[1:]}."
    held = one.held
    where = f"on {len(held)} of {one.of} {one.workloads}"
    if not one.is_about_time:
        return (
            f"{one.kernel}: {'its profile shows it' if one.is_counted else 'every output checked is correct'} {where}."
        )
    least = min((place.ratio.low for place in held if place.ratio), default=None)
    said = f"{one.kernel} {where}" + (f", at least {least:.3g}x on each" if least is not None else "")
    if one.is_confirmed:
        return f"{said}."
    return f"{said}. Unconfirmed: a record needs five processes and an isolated measurement that agree."

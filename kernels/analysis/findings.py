"""What times say by themselves: sentences with their arithmetic, whether a run measured them or a file claims them.

Nothing here is stored: findings are made when they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kernels.analysis.findings_one import Finding, Kind, Timed, of_one
from kernels.analysis.findings_run import Observed, of_observed
from kernels.analysis.findings_series import IsBaseline, factors, scaling, slow
from kernels.analysis.peaks import Reached

Known = Callable[[Timed], tuple[Sequence[Reached], Sequence[Reached]]]
"""A result -> what was measured on its GPU model: TFLOP/s of its dtype, GB/s."""


def nothing_known(one: Timed) -> tuple[Sequence[Reached], Sequence[Reached]]:
    return (), ()


def findings(results: Iterable[Timed], is_baseline: IsBaseline, known: Known = nothing_known) -> list[Finding]:
    """Every finding, in the order of `Kind`.

    known: rates measured on the models, beside those of kernels/analysis/peaks.py.
    """
    every = list(results)
    found = [finding for one in every for finding in of_one(one, *known(one))]
    return in_order([*found, *of_several(every, is_baseline)])


def of_several(every: Sequence[Timed], is_baseline: IsBaseline) -> list[Finding]:
    """What times say beside each other."""
    return [*factors(every, is_baseline), *slow(every, is_baseline), *scaling(every, is_baseline)]


def in_order(found: Iterable[Finding]) -> list[Finding]:
    """Findings in the order of `Kind`; of one kind, what rests on the most results first."""
    order = list(Kind)
    return sorted(found, key=lambda finding: (order.index(finding.kind), -len(finding.of)))


def of_runs(measured: Sequence[Observed]) -> list[Finding]:
    """Every finding of results that runs have measured. Their limits were judged when they were measured: a status says it.
    Each measurement says which of its kernels is the baseline."""
    sound = [one for one in measured if one.counts]
    baselines = {id(one.timed) for one in sound if one.is_baseline}
    return in_order(
        [*of_observed(measured), *of_several([one.timed for one in sound], lambda one: id(one) in baselines)]
    )

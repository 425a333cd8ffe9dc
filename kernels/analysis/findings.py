"""What times say by themselves: sentences with their arithmetic, whether a run measured them or a file claims them.

Nothing here is stored: findings are made when they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kernels.analysis.findings_one import Finding, Kind, Timed, of_one
from kernels.analysis.findings_series import factors, scaling, slow
from kernels.analysis.peaks import Reached

Known = Callable[[Timed], tuple[Sequence[Reached], Sequence[Reached]]]
"""A result -> what was measured on its GPU model: TFLOP/s of its dtype, GB/s."""


def nothing_known(one: Timed) -> tuple[Sequence[Reached], Sequence[Reached]]:
    return (), ()


def findings(
    results: Iterable[Timed], is_baseline: Callable[[str], bool], known: Known = nothing_known
) -> list[Finding]:
    """Every finding, in the order of `Kind`.

    is_baseline: whether a kernel of this name is what the others are compared with; known: rates measured on the models,
    beside those of kernels/analysis/peaks.py.
    """
    every = list(results)
    found = [finding for one in every for finding in of_one(one, *known(one))]
    found += [*factors(every, is_baseline), *slow(every, is_baseline), *scaling(every, is_baseline)]
    order = list(Kind)
    return sorted(found, key=lambda finding: order.index(finding.kind))

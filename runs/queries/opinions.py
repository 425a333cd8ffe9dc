"""Second opinions: what isolated measurements say of results of the shared process."""

from __future__ import annotations

from collections.abc import Iterable

from kernels.analysis.confirmation import THOROUGH, Opinion, opinion
from runs.queries import point_rows
from runs.queries.points import Point

Key = tuple[str, str]
"""Name of a kernel, and the hash of its source."""


def key_of(kernel: str, sha256: str | None) -> Key:
    return kernel, sha256 or ""


def isolated(workload: str, device: str, demo: str, kernels: Iterable[str] = ()) -> dict[Key, Point]:
    """The newest isolated, thorough result of each kernel on a workload and GPU model, of runs that nobody disturbed.

    workload: its key. demo: that of its runs. kernels: names; without them, of all.
    """
    rows = point_rows.tried(key=workload, unsupported=True).filter(
        measurement__isolated=True, measurement__protocol__processes__gte=THOROUGH, measurement__run__demo=demo,
        measurement__run__contended=False, measurement__run__environment__body__device=device,
    )  # fmt: skip
    if kernels:
        rows = rows.filter(kernel__name__in=list(kernels))
    newest: dict[Key, Point] = {}
    for point in point_rows.points(rows):
        newest.setdefault(key_of(point.kernel, point.sha256), point)
    return newest


def said(claimed_low: float | None, second: Point | None) -> Opinion:
    """What an isolated result, if there is one, says of a speedup with this low end."""
    return opinion(claimed_low, second) if second and claimed_low is not None else Opinion.NONE

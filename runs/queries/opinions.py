"""Second opinions: what isolated measurements say of results of the shared process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kernels.analysis.confirmation import THOROUGH, Opinion, opinion
from runs.queries import point_rows
from runs.queries.points import Point

Key = tuple[str, str]
"""Name of a kernel, and the hash of its source."""


def key_of(kernel: str, sha256: str | None) -> Key:
    return kernel, sha256 or ""


class Place(NamedTuple):
    """Where and with what a result was measured: its second opinion comes from the same."""

    workload: str
    """Its key."""
    gpu: int | None
    """The card."""
    fingerprint: str
    """Of device, driver, versions and harness."""
    demo: str


def isolated(place: Place, kernels: Iterable[str] = ()) -> dict[Key, Point]:
    """The newest isolated, thorough result of each kernel there, of runs that nobody disturbed. kernels: names; without
    them, of all."""
    rows = point_rows.tried(key=place.workload, unsupported=True).filter(
        measurement__isolated=True, measurement__protocol__processes__gte=THOROUGH, measurement__run__demo=place.demo,
        measurement__run__contended=False, measurement__run__gpu=place.gpu,
        measurement__run__environment__fingerprint=place.fingerprint,
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

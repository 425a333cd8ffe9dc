"""Session progress: each kernel's last result compared with its first, on equal terms.

Both are of one series (history.Terms), and each speedup comes from pairs in one process. They are compared like two
runs (kernels/report/comparison.py), with unchanged kernels as the control.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from django.urls import reverse

from kernels.contract.arm_result import Status
from kernels.contract.events import Measured
from kernels.report import comparison
from kernels.report.comparison import RunResults
from runs.models import Session
from runs.queries import history, measurements, point_rows
from runs.queries.history import Series
from runs.queries.measurements import StoredArm, StoredMeasured
from runs.queries.points import Point

Pages = dict[tuple[str, str, str], str]
Ends = dict[str, tuple[Point, Point]]


def progress(session: Session) -> tuple[list[comparison.Row], Pages]:
    """(rows, pages of the last results by workload, mode and kernel) of kernels measured more than once."""
    ends = ends_of(history.grouped(point_rows.points(point_rows.tried(session=session))))
    return compared(ends, measurements.of_results(results_of(ends)))


def ends_of(series: Iterable[Series]) -> list[tuple[Series, Ends]]:
    """On each workload and mode the newest series with a kernel that was measured more than once, and its ends."""
    places: dict[tuple[int, str, str], tuple[Series, Ends]] = {}
    for one in series:
        if len(pairs := _ends(one)) > 1:
            places.setdefault((one.terms.workload, one.terms.mode, one.terms.group), (one, pairs))
    return list(places.values())


def results_of(ends: Iterable[tuple[Series, Ends]]) -> set[int]:
    """Row ids of the results that are compared."""
    return {point.pk for _, pairs in ends for pair in pairs.values() for point in pair}


def compared(
    ends: Iterable[tuple[Series, Ends]], results: Mapping[int, tuple[StoredMeasured, StoredArm]]
) -> tuple[list[comparison.Row], Pages]:
    """The same from results that are read already."""
    before: list[Measured] = []
    after: list[Measured] = []
    pages: Pages = {}
    for one, pairs in ends:
        for index, events in enumerate((before, after)):
            events.append(_together([results[pair[index].pk] for pair in pairs.values()]))
        for kernel, (_, last) in pairs.items():
            pages[one.workload.key, one.terms.mode, kernel] = reverse("result", args=[last.run, last.pk])
    return comparison.rows(RunResults({}, before), RunResults({}, after)), pages


def _ends(one: Series) -> Ends:
    """Kernel -> its first and last result; of the baseline, and of kernels measured more than once. No time of a contended
    run is one."""
    points: dict[str, list[Point]] = {}
    for point in one.points:
        if point.contended and point.status == Status.OK:
            continue
        points.setdefault(point.kernel, []).append(point)
    base = one.terms.baseline
    several = {kernel: (mine[-1], mine[0]) for kernel, mine in points.items() if len(mine) > 1 or kernel == base}
    return several if base in points else {}


def _together(results: list[tuple[StoredMeasured, StoredArm]]) -> Measured:
    """Joins results of several measurements of a series into one, with their widest margin."""
    newest = max((measured for measured, _ in results), key=lambda measured: measured.pk)
    margin = max(measured.margin for measured, _ in results)
    return newest.model_copy(update={"margin": margin, "results": [arm for _, arm in results]})

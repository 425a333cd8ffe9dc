"""The list of submissions: those that somebody looks for, each with its newest result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db.models import Max, Q, QuerySet

from runs.models import Gpu, Submission, Workload
from runs.queries import point_rows
from runs.queries.points import Point


class Last(NamedTuple):
    """The newest result of a submission, where it was measured, and on what."""

    point: Point
    workload: str
    device: str

    def as_dict(self) -> dict[str, Any]:
        point, ratio = self.point, self.point.ratio
        return {
            "run": point.run, "workload": self.workload, "device": self.device, "verdict": str(point.verdict),
            "why": point.why, "speedup": ratio and ratio.ratio, "low": ratio and ratio.low, "high": ratio and ratio.high,
            "confirmed": bool(point.is_confirmed), "contended": point.contended,
        }  # fmt: skip


def asked(text: str = "", operation: str = "") -> QuerySet[Submission]:
    """Newest first, without their files. text: each of its words is in the name, the version, the message or the name of a
    person."""
    rows = Submission.objects.select_related("user", "parent").defer("files", "parent__files")
    if operation:
        rows = rows.filter(operation=operation.replace("\x00", ""))
    for word in text.replace("\x00", "").split():
        name, _, version = word.partition("@")
        named = Q(name__icontains=name, sha256__startswith=version.lower()) if version else Q(name__icontains=word)
        rows = rows.filter(
            named | Q(sha256__startswith=word.lower()) | Q(message__icontains=word) | Q(user__username__icontains=word)
        )
    return rows


def operations() -> list[str]:
    """Those that have submissions."""
    return list(Submission.objects.order_by("operation").values_list("operation", flat=True).distinct())


def last_results(shown: Sequence[Submission]) -> dict[int, Last]:
    """The newest result of each, by its row id; of a run that is not withdrawn. One without a result is left out. Kernels of
    other operations may have the same name."""
    mine = {(one.operation, one.kernel): one.pk for one in shown}
    rows = point_rows.tried().filter(kernel__name__in={name for _, name in mine})
    newest = rows.order_by().values_list("kernel__operation", "kernel__name").annotate(last=Max("pk"))
    last = {pk: mine[operation, name] for operation, name, pk in newest if (operation, name) in mine}
    points = point_rows.points(point_rows.at(list(last)))
    labels = {w.pk: w.label for w in Workload.objects.filter(pk__in={point.workload for point in points})}
    devices = dict(Gpu.objects.filter(pk__in={point.gpu for point in points}).values_list("pk", "name"))
    return {last[point.pk]: Last(point, labels[point.workload], devices.get(point.gpu or 0, "")) for point in points}

"""A status page as data, and the sizes of its badge."""

from __future__ import annotations

from typing import Any

from runs.queries.walls import Wall

NARROW, WIDE = frozenset("iIjl.,:;'|!()[]{}ftr "), frozenset("mwMWQO@%")
PADDING = 8


def width_of(text: str) -> int:
    """Pixels that a text takes at 11 px, about; the picture stretches it to exactly this."""
    return round(sum(4.0 if sign in NARROW else 9.5 if sign in WIDE else 6.7 for sign in text))


def badge_of(label: str, message: str) -> dict[str, Any]:
    left, right = width_of(label) + 2 * PADDING, width_of(message) + 2 * PADDING
    middles = {"label_x": left / 2, "message_x": left + right / 2}
    texts = {"label_length": left - 2 * PADDING, "message_length": right - 2 * PADDING}
    return {"label": label, "message": message, "left": left, "right": right, "width": left + right} | middles | texts


def facts_of(wall: Wall) -> dict[str, Any]:
    """Rows of each part, by kind; devices are added when they are read."""
    makers = {"targets": _target, "kernels": _kernel, "workloads": _workload, "sessions": _session}
    return {part.kind: [makers[part.kind](one) for one in part.rows] for part in wall.parts if part.kind in makers}


def _target(one: Any) -> dict[str, Any]:
    return {
        "workload": one.target.workload.label, "gpu": one.target.device, "factor": one.target.factor, "state": one.state,
        "kernel": one.point and one.point.kernel, "p50_ms": one.point and one.point.p50_ms, "goal_ms": one.goal_ms,
        "missing_ms": one.missing_ms, "confirmed": one.is_confirmed,
        "due": one.target.due.isoformat() if one.target.due else None,
    }  # fmt: skip


def _kernel(one: Any) -> dict[str, Any]:
    standing, mean = one.standing, one.standing.mean
    return {
        "kernel": one.kernel, "operation": one.operation, "gpu": one.gpu, "counts": standing.counts, "n": standing.n,
        "mean": mean and mean.ratio, "mean_low": mean and mean.low, "mean_high": mean and mean.high, "least": standing.least,
        "left_out": standing.left_out, "confirmed": one.is_confirmed,
    }  # fmt: skip


def _workload(place: Any) -> dict[str, Any]:
    record = place.shown
    ratio, point = record.best.ratio if record.best else None, None if record.names_nobody else record.point
    return {
        "workload": place.workload.label, "gpu": place.gpu, "kernel": point and point.kernel, "p50_ms": point and point.p50_ms,
        "speedup": ratio and ratio.ratio, "speedup_low": ratio and ratio.low, "speedup_high": ratio and ratio.high,
        "not_apart": [one.point.kernel for one in record.not_apart],
        "undecided": [one.point.kernel for one in record.open], "confirmed": record.is_confirmed,
        "limit_share": point and record.share,
    }  # fmt: skip


def _session(report: Any) -> dict[str, Any]:
    said = report.headline
    return {"title": report.session.title, "said": said.strong if said else "", "counted": report.counted}

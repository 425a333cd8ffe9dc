"""The leaderboard as rows of a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from runs.models import Environment
from runs.queries.leaders import CONFIRMED, UNCONFIRMED, UNDECIDED, Board, Place, Placed, Record

FIELDS = (
    "operation", "workload", "workload_key", "dtype", "gpu", "host", "state", "kernel", "not_apart", "undecided", "baseline",
    "speedup", "speedup_low", "speedup_high", "comparisons", "p50_ms", "limit_ms", "limit_share", "mode", "person",
    "measured_at", "run", "result", "sha256", "commit", "fingerprint",
)  # fmt: skip


def rows(made: Board, places: Iterable[Place]) -> Iterator[dict[str, Any]]:
    """One row of FIELDS per record; a place with both has two. Where it is undecided who is best, a row has no kernel."""
    found = [(place, record) for place in places for record in (place.record, place.rumour) if record is not None]
    ran_in = Environment.objects.filter(pk__in={record.point.environment for _, record in found})
    commits = dict(ran_in.values_list("pk", "body__commit"))
    for place, record in found:
        yield _row(made, place, record, commits.get(record.point.environment) or "")


def _row(made: Board, place: Place, record: Record, commit: str) -> dict[str, Any]:
    """commit: of the repository that the run's host had; with a + if its files had changed since."""
    point, ratio = None if record.names_nobody else record.point, record.best.ratio if record.best else None
    return {
        "operation": place.workload.operation,
        "workload": place.workload.label,
        "workload_key": place.workload.key,
        "dtype": place.workload.dtype,
        "gpu": place.gpu,
        "host": record.host,
        "state": UNDECIDED if point is None else CONFIRMED if record.is_confirmed else UNCONFIRMED,
        "kernel": point.kernel if point else "",
        "not_apart": _names(record.not_apart),
        "undecided": _names(record.open),
        "baseline": record.base.kernel,
        "speedup": ratio and ratio.ratio,
        "speedup_low": ratio and ratio.low,
        "speedup_high": ratio and ratio.high,
        "comparisons": made.comparisons,
        "p50_ms": point and point.p50_ms,
        "limit_ms": record.point.limit_ms,
        "limit_share": point and record.share,
        "mode": record.point.mode,
        "person": made.by(record) if point else "",
        "measured_at": point and (point.started_at or point.created_at).isoformat(),
        "run": point and point.run,
        "result": point and point.pk,
        "sha256": point and point.sha256,
        "commit": commit if point else "",
        "fingerprint": record.series.terms.fingerprint,
    }


def _names(placed: Iterable[Placed]) -> str:
    return " ".join(dict.fromkeys(one.point.kernel for one in placed))

"""Profiles of results: the newest of each, and the run that makes one now."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import BooleanField, ExpressionWrapper, Q

from runs.models import KernelProfile, Run


def newest_of(result: int) -> KernelProfile | None:
    """The newest profile of a result, without its trace; `has_trace` says whether there is one."""
    return _rows().filter(result=result).order_by("-pk").first()


def newest_of_each(results: Iterable[int]) -> dict[int, KernelProfile]:
    """Result -> its newest profile."""
    rows = _rows().filter(result__in=list(results)).order_by("pk")
    return {row.result_id: row for row in rows}


def _rows():  # type: ignore[no-untyped-def]
    has_trace = ExpressionWrapper(Q(trace__isnull=False), output_field=BooleanField())
    return KernelProfile.objects.defer("trace").annotate(has_trace=has_trace)


def last_run_of(result: int) -> Run | None:
    """The last run that profiles a result, or did."""
    return Run.objects.filter(profile_of=result).only("pk", "state", "message").order_by("-pk").first()

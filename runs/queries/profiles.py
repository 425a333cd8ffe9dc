"""Profiles of results: the newest of each, and the run that makes one now."""

from __future__ import annotations

from django.db.models import BooleanField, ExpressionWrapper, Q, QuerySet

from runs.models import KernelProfile, Run


def newest_of(result: int) -> KernelProfile | None:
    """The newest profile of a result."""
    return _rows().filter(result=result).order_by("-pk").first()


def _rows() -> QuerySet[KernelProfile]:
    """Without their files; `has_table` and `has_trace` say which there are."""
    has = {"has_table": ~Q(table=""), "has_trace": Q(trace__isnull=False)}
    wrapped = {name: ExpressionWrapper(one, output_field=BooleanField()) for name, one in has.items()}
    return KernelProfile.objects.defer("table", "trace").annotate(**wrapped)


def last_run_of(result: int) -> Run | None:
    """The last run that profiles a result, or did."""
    return Run.objects.filter(profile_of=result).only("pk", "state", "message").order_by("-pk").first()

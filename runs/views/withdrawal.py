"""Withdraws a run, with a reason, and takes that back."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from runs.access import own_only
from runs.models import Run
from runs.pipeline import withdrawal
from runs.views.run import get_run

LONGEST_WHY = Run._meta.get_field("withdrawn_why").max_length or 0


@require_POST
def withdraw_run(request: HttpRequest, pk: int) -> HttpResponse:
    run, why = get_run(pk), " ".join(request.POST.get("why", "").split())
    own_only(request, run, "withdraw it")
    if not why:
        messages.error(request, "Enter a reason. People who quoted this run will see it.")
    elif len(why) > LONGEST_WHY:
        messages.error(request, f"The reason has {len(why)} characters; at most {LONGEST_WHY} fit: {why}")
    elif withdrawal.withdraw(run, why, request.user):
        messages.success(request, "Withdrawn: its figures no longer count, and quotes are struck through.")
    else:
        messages.error(request, "Cancel it first: it still runs." if run.is_active else "It is withdrawn already.")
    return redirect(run)


@require_POST
def restore_run(request: HttpRequest, pk: int) -> HttpResponse:
    run = get_run(pk)
    own_only(request, run, "let it count again")
    if withdrawal.restore(run, request.user):
        messages.success(request, "This run counts again.")
    return redirect(run)

"""Adds tags to runs, and takes them off."""

from __future__ import annotations

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from runs.models import Tag
from runs.models.tag import name_of
from runs.views.run import get_run

MOST = 20
"""Tags of one run."""


@require_POST
def add_tag(request: HttpRequest, pk: int) -> HttpResponse:
    run = get_run(pk)
    try:
        name = name_of(request.POST.get("tag", "")[:200])
    except ValidationError as error:
        messages.error(request, error.messages[0])
        return redirect(run)
    if run.tags.count() >= MOST:
        messages.error(request, f"This run has {MOST} tags, the most that fit: remove one first.")
    else:
        tag, _ = Tag.objects.get_or_create(name=name)
        run.tags.add(tag)
    return redirect(run)


@require_POST
def remove_tag(request: HttpRequest, pk: int) -> HttpResponse:
    run = get_run(pk)
    if tag := run.tags.filter(name=request.POST.get("tag", "").replace("\x00", "")).first():
        run.tags.remove(tag)
        Tag.objects.filter(pk=tag.pk, runs=None).delete()
    return redirect(run)

"""What can be read of the team: how far it is, its sessions, what was imported, what it was told, and what is possible."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, Max
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from ninja import Path, Query

from runs.access import person
from runs.api import parameters, schemas
from runs.api.answers import as_json, number_of, only, tagged
from runs.api.problems import Problem
from runs.api.routes import ROUTER, answers
from runs.models import Import, MailChoice, Notice, Session, Webhook
from runs.models.notice import Event
from runs.views import imports, judge, sessions, tier_workload, tiers

Page = tuple[list[Any], str | None]


def part(rows: Any, asked: parameters.Cursor) -> Page:
    """(rows of one page, newest first; the cursor of the next)"""
    before = number_of(asked.cursor)
    rows = rows.order_by("-pk")
    page = list((rows if before is None else rows.filter(pk__lt=before))[: asked.limit + 1])
    shown = page[: asked.limit]
    return shown, str(shown[-1].pk) if len(page) > asked.limit else None


# --- tiers ------------------------------------------------------------------------------------------------------------


@ROUTER.get("/tiers", response=answers(schemas.TiersOut), tags=["team"])
def list_tiers(request: HttpRequest, asked: Query[parameters.TiersAsked]) -> HttpResponse:
    """The tiers of each workload: tiers that are reached, the next tier, and tiers that the device cannot reach."""
    only(request, asked)
    return tagged(request, tiers.tiers_json(request))


@ROUTER.get("/tiers/{slug:key}/{slug:mode}", response=answers(schemas.TiersOut), tags=["team"])
def tiers_of(
    request: HttpRequest, key: Path[str], mode: Path[str], asked: Query[parameters.TiersAsked]
) -> HttpResponse:
    """The ladder of one workload."""
    only(request, asked)
    return tagged(request, tier_workload.workload_json(request, key, mode))


# --- sessions ---------------------------------------------------------------------------------------------------------


@ROUTER.get("/sessions", response=answers(schemas.SessionsPage), tags=["team"])
def list_sessions(request: HttpRequest, asked: Query[parameters.Cursor]) -> HttpResponse:
    """Sessions, newest first, without their reports."""
    only(request, asked)
    rows = Session.objects.select_related("user").annotate(count=Count("runs"), last=Max("runs__created_at"))
    shown, more = part(rows, asked)
    lines = [
        {
            "id": one.pk, "title": one.title, "objective": one.objective, "by": one.user.get_username() if one.user else "",
            "begun_at": one.created_at.isoformat(), "ended_at": one.ended_at and one.ended_at.isoformat(),
            "runs": one.count, "last_run_at": one.last and one.last.isoformat(),
            "url": request.build_absolute_uri(one.get_absolute_url()),
        }
        for one in shown
    ]  # fmt: skip
    return as_json(request, {"sessions": lines, "next": more})


@ROUTER.get("/sessions/{id:pk}", response=answers(schemas.SessionOut), tags=["team"])
def one_session(request: HttpRequest, pk: Path[int]) -> HttpResponse:
    """A session with its plan, its criteria as they stand, its findings and its timeline."""
    return tagged(request, sessions.session_json(request, pk))


# --- imports and claims -----------------------------------------------------------------------------------------------


@ROUTER.get("/imports", response=answers(schemas.ImportsPage), tags=["results"])
def list_imports(request: HttpRequest, asked: Query[parameters.Cursor]) -> HttpResponse:
    """Imported files, newest first, without their claims."""
    only(request, asked)
    shown, more = part(Import.objects.select_related("user"), asked)
    lines = [
        {
            "id": one.pk, "name": one.name, "format": one.format, "by": one.user.get_username() if one.user else "",
            "imported_at": one.created_at.isoformat(), "outcome": imports.outcome_of(one).sentence,
            "url": request.build_absolute_uri(one.get_absolute_url()),
        }
        for one in shown
    ]  # fmt: skip
    return as_json(request, {"imports": lines, "next": more})


@ROUTER.get("/imports/{id:pk}", response=answers(schemas.ImportOut), tags=["results"])
def one_import(request: HttpRequest, pk: Path[int]) -> HttpResponse:
    """An imported file with its claims, each recomputed, and what does not follow from its sizes."""
    return tagged(request, imports.import_json(request, pk))


@ROUTER.get("/judge", response=answers(schemas.Judged), tags=["results"])
def judge_claim(request: HttpRequest, asked: Query[parameters.ClaimAsked]) -> HttpResponse:
    """Is a claimed time or rate possible? The operation's sizes are parameters, too. Without a claim: every GPU's limits."""
    answer = judge.judge_json(request)
    if answer.status_code == 422:
        name, said = next(iter(judge.form_of(request.GET).errors.items()))
        field = {} if name == "__all__" else {"field": name}
        raise Problem(422, "Wrong parameter", str(said[0]), **field)
    return tagged(request, answer)


# --- notices ----------------------------------------------------------------------------------------------------------


@ROUTER.get("/notices", response=answers(schemas.NoticesPage), tags=["team"])
def list_notices(request: HttpRequest, asked: Query[parameters.Cursor]) -> HttpResponse:
    """What happened, newest first: runs that ended, records, regressions, targets. Webhooks get the same bodies."""
    only(request, asked)
    shown, more = part(Notice.objects.exclude(event=Event.TEST), asked)
    return as_json(request, {"notices": [one.body() for one in shown], "next": more})


@ROUTER.get("/notices/mine", response=answers(schemas.Asked), tags=["team"])
def asked_for(request: HttpRequest) -> HttpResponse:
    """The notices that this account gets by mail and by webhook. A webhook's secret is not shown again."""
    user = person(request)
    choice = MailChoice.objects.filter(user=user).first() if user else None
    hooks = Webhook.objects.filter(user=user) if user else Webhook.objects.none()
    body = {
        "mail": {"address": user.email if user else "", "kinds": choice.kinds if choice else []},
        "webhooks": [{"id": one.pk, "url": one.url, "kinds": one.kinds, "stopped": one.stopped} for one in hooks],
        "page": request.build_absolute_uri(reverse("notices")),
    }
    return as_json(request, body)

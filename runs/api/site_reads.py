"""What can be read of the site itself: status pages, live links, and for admins the audit log and the accounts."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from ninja import Query

from runs.access import NEEDS
from runs.api import parameters, schemas
from runs.api.answers import as_json, only
from runs.api.problems import Problem
from runs.api.routes import ROUTER, answers
from runs.api.team_reads import part
from runs.models import Audit, Role, Share, StatusPage
from runs.models.person import may
from runs.views.people import listed_role
from runs.views.status_pages import listed

TAG = "site"


def _for_admins(request: HttpRequest) -> None:
    if not may(request.user, Role.ADMIN):
        raise Problem(403, "Only for admins", NEEDS[Role.ADMIN])


@ROUTER.get("/status", response=answers(schemas.StatusesPage), tags=[TAG])
def list_status_pages(request: HttpRequest, asked: Query[parameters.Cursor]) -> HttpResponse:
    """Status pages, newest first. What a page shows is at its `json`, which needs no token: the link is the secret."""
    only(request, asked)
    shown, more = part(StatusPage.objects.all(), asked)
    live = {share.page_id: share for share in Share.objects.live().filter(page__in=shown)}
    return as_json(request, {"pages": [_page(request, one, live.get(one.pk)) for one in shown], "next": more})


def _page(request: HttpRequest, page: StatusPage, share: Share | None) -> dict[str, Any]:
    addresses = listed(request, page, share)
    return {
        "id": page.pk, "title": page.title, "sentence": page.sentence, "names": page.names, "sources": page.sources,
        "parts": [{"kind": one.kind, "all": one.every, "chosen": list(one.chosen)} for one in page.parts],
        "url": addresses.get("link"), "badge": addresses.get("badge"), "json": addresses.get("json"),
    }  # fmt: skip


@ROUTER.get("/links", response=answers(schemas.LinksPage), tags=[TAG])
def list_links(request: HttpRequest, asked: Query[parameters.Cursor]) -> HttpResponse:
    """Live links, newest first: what can be opened without an account, and how often it was."""
    only(request, asked)
    shown, more = part(Share.objects.live().select_related("page", "user"), asked)
    lines = [
        {
            "id": one.pk, "opens": one.what, "by": one.user.get_username() if one.user else "",
            "made_at": one.created_at.isoformat(), "ends_at": one.expires_at and one.expires_at.isoformat(),
            "opened": one.opens, "opened_at": one.opened_at and one.opened_at.isoformat(),
            "url": request.build_absolute_uri(one.get_absolute_url()),
        }
        for one in shown
    ]  # fmt: skip
    return as_json(request, {"links": lines, "next": more})


@ROUTER.get("/audit", response=answers(schemas.AuditPage, 403), tags=[TAG])
def list_audit(request: HttpRequest, asked: Query[parameters.AuditAsked]) -> HttpResponse:
    """The audit log, newest first. For admins."""
    only(request, asked)
    _for_admins(request)
    rows = Audit.objects.all()
    if asked.kind and asked.kind not in Audit.Kind.values:
        said = f"kind: {asked.kind!r} is not in the log; there are {', '.join(Audit.Kind.values)}."
        raise Problem(422, "Wrong parameter", said, field="kind")
    if asked.kind:
        rows = rows.filter(kind=asked.kind)
    if asked.who:
        rows = rows.filter(name=asked.who.replace("\x00", ""))
    shown, more = part(rows, asked)
    lines = [
        {
            "id": one.pk, "at": one.at.isoformat(), "who": one.name, "kind": one.kind, "what": one.what,
            "url": request.build_absolute_uri(one.link) if one.link else None,
        }
        for one in shown
    ]  # fmt: skip
    return as_json(request, {"lines": lines, "next": more})


@ROUTER.get("/people", response=answers(schemas.PeoplePage, 403), tags=[TAG])
def list_people(request: HttpRequest, asked: Query[parameters.Cursor]) -> HttpResponse:
    """Accounts with their roles, newest first. For admins."""
    only(request, asked)
    _for_admins(request)
    shown, more = part(User.objects.select_related("person"), asked)
    lines = [
        {
            "id": one.pk, "name": one.get_username(), "role": listed_role(one).value, "active": one.is_active,
            "last_login": one.last_login and one.last_login.isoformat(),
        }
        for one in shown
    ]  # fmt: skip
    return as_json(request, {"people": lines, "next": more})

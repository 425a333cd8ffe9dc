"""Status pages for those who make them: the list with links, badges and frames, and the form."""

from __future__ import annotations

import re
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.html import escape
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from runs.models import Share, StatusPage
from runs.status_form import StatusForm

PER_PAGE = 20
SIGNS = re.compile(r"[\\`*_\[\]<>&!]")
"""What Markdown would read as its own."""


def listed(request: HttpRequest, page: StatusPage, share: Share | None) -> dict[str, Any]:
    """A status page with its addresses. share: its live link, if it has one."""
    if share is None:
        return {"page": page, "share": None}
    full = {
        name: request.build_absolute_uri(reverse(name, args=[share.token]))
        for name in ("wall", "wall_frame", "wall_svg", "wall_json")
    }
    return {
        "page": page,
        "share": share,
        "link": full["wall"],
        "badge": full["wall_svg"],
        "json": full["wall_json"],
        "markdown": f"[![{in_markdown(page.title)}]({full['wall_svg']})]({full['wall']})",
        "frame": f'<iframe src="{full["wall_frame"]}" title="{escape(page.title)}" width="640" height="420"></iframe>',
    }


def in_markdown(text: str) -> str:
    """The text as Markdown shows it."""
    return SIGNS.sub(r"\\\g<0>", text)


@never_cache
def status(request: HttpRequest) -> HttpResponse:
    pages = Paginator(StatusPage.objects.all(), PER_PAGE).get_page(request.GET.get("page"))
    live = {share.page_id: share for share in Share.objects.live().filter(page__in=list(pages))}
    return render(
        request,
        "status.html",
        {"page": "status", "pages": pages, "rows": [listed(request, one, live.get(one.pk)) for one in pages]},
    )


def edit(request: HttpRequest, pk: int | None = None) -> HttpResponse:
    """Makes or changes a page."""
    known = get_object_or_404(StatusPage, pk=pk) if pk is not None else None
    share = Share.objects.live().filter(page=known).first() if known else None
    form = StatusForm(request.POST if request.method == "POST" else None, known, share)
    if request.method == "POST" and form.is_valid():
        made = form.save(request.user)
        messages.info(request, "Saved. Everyone with its link sees it." if share else "Saved. It has a new link.")
        return redirect(f"{reverse('status')}#page-{made.page_id}")
    context = {"page": "status", "form": form, "known": known, "share": share}
    return render(request, "status_edit.html", context, status=422 if form.errors else 200)


@require_POST
def end(request: HttpRequest, pk: int) -> HttpResponse:
    """Ends the link of a page. The page stays, and editing it makes another link."""
    page = get_object_or_404(StatusPage, pk=pk)
    Share.objects.filter(page=page).end(request.user)
    messages.info(request, f"The link to “{page.title}” has ended. To create a new link, edit and save the page.")
    return redirect("status")

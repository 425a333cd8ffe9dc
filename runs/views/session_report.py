"""The report of a session: a page, Markdown, one HTML file that stands alone, and its charts. All are made when read."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import vl_convert
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.template.loader import render_to_string
from django.urls import reverse

from runs.charts import session_charts
from runs.charts.theme import STAND_INS, THEMES, in_theme
from runs.models import Session, Share, TierScale
from runs.queries.session_report import SessionReport, session_report
from runs.views.downloads import download
from runs.views.pictures import as_file, palette_of
from runs.views.run import link_of
from runs.views.session_markdown import as_markdown

ALONE = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""What the file that stands alone may do: no script, nothing from elsewhere."""
Picture = Callable[[str, str], str]


def get_session(pk: int) -> Session:
    """With `live_token`, that of its link."""
    sessions = Session.objects.select_related("user").annotate(live_token=Share.objects.all().token_of("session"))
    return get_object_or_404(sessions, pk=pk)


def _context(session: Session, shared: bool, base: str = "") -> dict[str, Any]:
    report = session_report(session)
    scale = TierScale.objects.current().first()
    return {
        "page": "sessions",
        "session": session,
        "report": report,
        "reached": report.tiers(scale),
        "scale": scale,
        "charts": session_charts.charts(report.figures),
        "shared": shared,
        "base": base,
    }


def report_page(request: HttpRequest, pk: int) -> HttpResponse:
    """The page, which also prints well."""
    session = get_session(pk)
    context = _context(session, getattr(request, "shared", False))
    link = link_of(request, reverse("session_report", args=[pk]), getattr(session, "live_token", None))
    return render(request, "session_report.html", context | {"link": link})


def report_md(request: HttpRequest, pk: int) -> HttpResponse:
    """The report as Markdown."""
    session = get_session(pk)
    scale = TierScale.objects.current().first()
    text = as_markdown(session_report(session), scale, base_of(request))
    return download(text, "text/markdown; charset=utf-8", f"session-{pk}.md")


def base_of(request: HttpRequest) -> str:
    """Before each address in a file."""
    return request.build_absolute_uri("/").rstrip("/")


def report_html(request: HttpRequest, pk: int) -> HttpResponse:
    """The report as one file: it loads nothing and runs nothing."""
    session = get_session(pk)
    context = _context(session, getattr(request, "shared", False), base_of(request))
    report: SessionReport = context["report"]
    pictures = {chart.name: _pictures(report, chart.name) for chart in context["charts"]}
    more = {"pictures": pictures, "style": stylesheet(), "policy": ALONE, "alone": True}
    text = render_to_string("session_report_file.html", context | more)
    return download(text, "text/html; charset=utf-8", f"session-{pk}.html")


def _pictures(report: SessionReport, name: str) -> dict[str, str]:
    """A chart in each theme, as an address that holds it. An image runs no script."""
    chart = session_charts.draw(name, report.figures, STAND_INS)
    svg = vl_convert.vegalite_to_svg(chart.to_dict(validate=False))
    coded = {theme: base64.b64encode(in_theme(svg, theme).encode()).decode() for theme in THEMES}
    return {theme: f"data:image/svg+xml;base64,{code}" for theme, code in coded.items()}


@lru_cache(maxsize=1)
def stylesheet() -> str:
    """The site's own, which loads nothing. A stylesheet cannot end its element."""
    return (settings.BASE_DIR / "static" / "site.css").read_text().replace("</", "<\\/")


def chart(request: HttpRequest, pk: int, name: str, kind: str) -> HttpResponse:
    theme = palette_of(request)
    figures, narrow = session_report(get_session(pk)).figures, "narrow" in request.GET
    drawn = session_charts.draw(name, figures, THEMES[theme], narrow=narrow)
    if drawn is None:
        raise Http404("there is nothing to draw")
    return as_file(drawn.to_dict(validate=False), kind, theme, f"session-{pk}-{name}")

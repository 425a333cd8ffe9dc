"""A status page as its link shows it: for a wall, in a frame of another site, as a badge, as JSON.

Everything but the devices is drawn once and kept in the cache. Who asks gets the kept drawing; if it is old, the next one
is made when the answer has been sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import vl_convert
from csp.decorators import csp_replace
from django.contrib.auth.decorators import login_not_required
from django.core.cache import cache
from django.db.models import Count
from django.db.models.fields.json import KeyTransform
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.cache import never_cache
from django.views.decorators.clickjacking import xframe_options_exempt

from kernels.analysis.changes import RULE
from kernels.analysis.statistics import WIDEST_MARGIN
from kernels.contract.arm_result import Status
from kernels.report.comparison import COMPARABILITY_KEYS
from runs.access import closed
from runs.charts import week_charts
from runs.charts.theme import THEMES
from runs.models import Change, Share, StatusPage
from runs.models.status_page import Part
from runs.queries import point_rows, walls
from runs.queries.walls import MOST, Heard, Rows, Wall
from runs.views.gpus import headline
from runs.views.overview import count
from runs.views.overview import row as change_row
from runs.views.wall_facts import badge_of, facts_of
from runs.views.week import line_of

FRESH_S, KEPT_S = 10.0, 60.0
"""An older drawing is made anew after the answer; a still older one before it."""
LONGEST_DRAWING_S = 60
COUNTED_DAYS = 90
"""A kernel that ran earlier only is not looked for in the count of those that could show a change."""


@dataclass(frozen=True)
class Drawing:
    """All of a page that is kept."""

    at: float
    said: str
    """Its answer in a sentence; empty if only the devices say one."""
    parts: list[tuple[str, str]]
    """Kind -> HTML; of devices none."""
    facts: dict[str, Any]
    warmth: dict[int, float]


class Answer(HttpResponse):
    """Does something when it has been sent."""

    afterwards: Callable[[], None] | None = None

    def close(self) -> None:
        try:
            if self.afterwards:
                self.afterwards()
        finally:
            super().close()


# --- drawing ------------------------------------------------------------------------------------------------------------


def _key(page: StatusPage, theme: str) -> str:
    return f"wall-{page.pk}-{page.changed_at.timestamp()}-{theme}"


def drawing(page: StatusPage, theme: str) -> tuple[Drawing, Callable[[], None] | None]:
    """(the kept drawing, what makes the next one, if it is time)."""
    kept: Drawing | None = cache.get(_key(page, theme))
    age = time.time() - kept.at if kept else KEPT_S
    if kept is None or age >= KEPT_S:
        return _draw(page, theme), None
    return kept, (lambda: _draw_again(page, theme)) if age >= FRESH_S else None


def _draw_again(page: StatusPage, theme: str) -> None:
    """Unless another request draws it."""
    lock = f"{_key(page, theme)}-drawn"
    if cache.add(lock, 1, LONGEST_DRAWING_S):
        try:
            _draw(page, theme)
        finally:
            cache.delete(lock)


def _draw(page: StatusPage, theme: str) -> Drawing:
    wall = walls.read(page)
    parts = [(part.kind, _html(page, part, theme)) for part in wall.parts]
    made = Drawing(time.time(), said(wall), parts, facts_of(wall), wall.warmth)
    cache.set(_key(page, theme), made, KEPT_S)
    return made


def _html(page: StatusPage, part: Rows, theme: str) -> str:
    if part.kind == "devices":
        return ""
    change = part.change and change_row(part.change) | {"chart": trend(part.change, theme)}
    context = {"wall": page, "part": part, "rows": part.shown, "moved": change}
    return render_to_string(f"wall/{part.kind}.html", context)


def trend(change: Change, theme: str) -> SafeString:
    """The runs around a change as a picture; empty if they are not among the newest."""
    try:
        line, index = line_of(change)
    except Http404:
        return SafeString("")
    chart = week_charts.trend(line, change, index, THEMES[theme])
    return mark_safe(vl_convert.vegalite_to_svg(chart.to_dict(validate=False)))


def said(wall: Wall) -> str:
    """What the page answers: its targets, else what changed."""
    if (targets := wall.part("targets")) and targets.rows:
        reached = [one for one in targets.rows if one.state == "reached"]
        confirmed = sum(one.is_confirmed for one in reached)
        said = f"{confirmed} of {len(targets.rows)} target{'s' * (len(targets.rows) != 1)}"
        loose = len(reached) - confirmed
        return f"{said} confirmed; {loose} reached, unconfirmed" if loose else f"{said} reached"
    if kernels := wall.part("kernels"):
        if kernels.change is None:
            return no_change(wall.page.part("kernels") or Part("kernels"))
        row = change_row(kernels.change)
        return f"{kernels.change.kernel.name}: {row['effect']} {row['word']} this week"
    if (sessions := wall.part("sessions")) and sessions.rows:
        return sessions.rows[0].counted or sessions.rows[0].session.title
    if (workloads := wall.part("workloads")) and workloads.rows:
        faster = [place.shown for place in workloads.rows if place.shown.best]
        pairs = len({place.gpu for place in workloads.rows}) > 1
        of = "pairs of workload and GPU model" if pairs else f"workload{'s' * (len(workloads.rows) != 1)}"
        return f"A kernel beats the baseline on {len(faster)} of {len(workloads.rows)} {of}{_unconfirmed(faster)}"
    return ""


def no_change(part: Part) -> str:
    """That none of the chosen kernels has changed, and of how many this can be known: of those with a line that has the runs
    which the rule needs. Only kernels with a run of this site in COUNTED_DAYS are counted."""
    rows = point_rows.tried().filter(status=Status.OK, p50_ms__gt=0, p50_low_ms__gt=0, p50_high_ms__gt=0)
    rows = rows.filter(measurement__run__demo="", measurement__run__gpu__isnull=False)
    rows = rows.filter(measurement__created_at__gte=timezone.now() - timedelta(days=COUNTED_DAYS))
    rows = rows.filter(measurement__run__contended=False, measurement__margin__lte=WIDEST_MARGIN)
    if not part.every:
        rows = rows.filter(kernel__in=part.chosen)
    how = {f"its_{key}": KeyTransform(key, "measurement__protocol") for key in COMPARABILITY_KEYS}
    names = [f"measurement__{name}" for name in ("workload", "run__gpu", "mode", "group", "isolated")]
    lines = rows.order_by().annotate(**how).values_list("kernel", *names, *how).annotate(Count("pk"))
    longest: dict[int, int] = {}
    for kernel, *_, runs in lines:
        longest[kernel] = max(longest.get(kernel, 0), runs)
    if not longest:
        return "No change found this week: no kernel has a run"
    enough = sum(runs >= 2 * RULE.least for runs in longest.values())
    has = "have" if len(longest) > 1 else "has"
    return f"No change found this week: {enough} of {len(longest)} kernel{'s' * (len(longest) > 1)} {has} enough runs"


def _unconfirmed(rows: Sequence[Any]) -> str:
    """ ", 2 unconfirmed": how many of these are; empty if none is."""
    loose = sum(not one.is_confirmed for one in rows)
    return f", {loose} unconfirmed" if loose else ""


# --- answering ----------------------------------------------------------------------------------------------------------


def _theme(request: HttpRequest) -> str:
    theme = request.GET.get("theme", "dark")
    if theme not in THEMES:
        raise Http404(f"there is no page in '{theme}'")
    return theme


def _opened(request: HttpRequest, token: str) -> tuple[StatusPage | None, HttpResponse | None]:
    """(the page of a live link, None), or (None, what the link says after its end). Its use is noted."""
    share = Share.objects.select_related("page").filter(token=token, page__isnull=False).first()
    if share is None or share.page is None:
        raise Http404("There is no status page at this address.")
    if not share.is_live:
        return None, closed(request, share)
    if not request.headers.get("HX-Request"):
        share.note_open()
    return share.page, None


def _context(page: StatusPage, theme: str) -> tuple[dict[str, Any], Callable[[], None] | None]:
    drawn, afterwards = drawing(page, theme)
    heard = walls.devices(page.part("devices"), drawn.warmth)
    context = {
        "wall": page,
        "theme": theme,
        "said": drawn.said or (headline([one.gpu for one in heard]) if page.part("devices") else page.title),
        "parts": [(kind, mark_safe(html)) for kind, html in drawn.parts],
        "facts": drawn.facts,
        "heard": heard,
        "devices": Rows("devices", heard, MOST["devices"]),
        "heard_in": heard_in(heard),
        "now": timezone.now(),
    }
    return context, afterwards


def heard_in(heard: list[Heard]) -> str:
    """That all devices answer, or which do not."""
    missing = [one.gpu.place for one in heard if not one.gpu.is_online]
    if not heard:
        return ""
    if not missing:
        return f"All {count(len(heard)).lower()} devices answer" if len(heard) > 1 else "The device answers"
    return f"No answer: {', '.join(missing)}"


def _answer(request: HttpRequest, token: str, template: str, **more: Any) -> HttpResponse:
    theme = _theme(request)
    page, refused = _opened(request, token)
    if page is None:
        assert refused is not None
        return refused
    context, afterwards = _context(page, theme)
    context |= more | {"token": token}
    answer = Answer(render_to_string("wall/_now.html" if request.headers.get("HX-Request") else template, context))
    answer.afterwards = afterwards
    answer.headers["X-Robots-Tag"] = "noindex"
    return answer


@login_not_required
@never_cache
def wall(request: HttpRequest, token: str) -> HttpResponse:
    """The page; for a poll, its inner part."""
    return _answer(request, token, "wall/page.html")


@login_not_required
@never_cache
@xframe_options_exempt
@csp_replace({"frame-ancestors": ["*"]})  # type: ignore[arg-type]  # its stubs know no arguments of addresses
def frame(request: HttpRequest, token: str) -> HttpResponse:
    """The page for a frame of another site. No other address may stand in one."""
    return _answer(request, token, "wall/page.html", framed=True)


def _facts(request: HttpRequest, token: str) -> tuple[dict[str, Any] | None, HttpResponse | None]:
    page, refused = _opened(request, token)
    if page is None:
        return None, refused
    context, _ = _context(page, "dark")
    return context, None


@login_not_required
@never_cache
def badge_svg(request: HttpRequest, token: str) -> HttpResponse:
    """Title and answer as a small picture."""
    context, refused = _facts(request, token)
    if context is None:
        assert refused is not None
        return refused
    answer = render(request, "wall/badge.svg", badge_of(context["wall"].title, context["said"]), "image/svg+xml")
    answer.headers["X-Robots-Tag"] = "noindex"
    return answer


@login_not_required
@never_cache
def badge_json(request: HttpRequest, token: str) -> HttpResponse:
    """The page as data; its first fields are those of a shields.io endpoint."""
    context, refused = _facts(request, token)
    if context is None:
        assert refused is not None
        return refused
    page = context["wall"]
    devices = [
        {
            "place": one.gpu.place, "name": one.gpu.name, "state": one.gpu.state, "run": one.run and one.run.pk,
            "heard_at": one.gpu.seen_at and one.gpu.seen_at.isoformat(),
        }
        for one in context["heard"]
    ]  # fmt: skip
    body = {"schemaVersion": 1, "label": page.title, "message": context["said"], "color": "blue"}
    body |= {"title": page.title, "sentence": page.sentence, "at": context["now"].isoformat(), "devices": devices}
    answer = JsonResponse(body | context["facts"])
    answer.headers["X-Robots-Tag"] = "noindex"
    return answer

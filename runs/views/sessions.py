"""Sessions: the list, and the report of one: goal, each kernel's change, runs and notes in order."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Count, Max
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST

from kernels.contract.arm_result import Verdict
from kernels.report import comparison, tables
from kernels.report.summary import Summary, headline, sentence
from runs.models import Note, Run, Session
from runs.queries.outcomes import Outcome, with_outcomes
from runs.queries.progress import progress
from runs.views import number
from runs.views.compare import by_kernel
from runs.views.downloads import download

PER_PAGE = 50


# --- all of them ------------------------------------------------------------------------------------------------------


def sessions(request: HttpRequest) -> HttpResponse:
    listed = Session.objects.select_related("user").annotate(count=Count("runs"), last=Max("runs__created_at"))
    listed = listed.order_by("-id")
    page = Paginator(listed, PER_PAGE).get_page(request.GET.get("page"))
    return render(request, "sessions.html", {"page": "sessions", "pages": page})


class SessionForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Session
        fields = ("title", "objective")
        widgets = {"objective": forms.Textarea(attrs={"rows": 4})}
        help_texts = {"objective": "Goal, and how to tell that it is met."}


def edit(request: HttpRequest, pk: int | None = None) -> HttpResponse:
    """Creates or edits a session."""
    known = get_object_or_404(Session, pk=pk) if pk is not None else None
    form = SessionForm(request.POST or None, instance=known, label_suffix="")
    if request.method == "POST" and form.is_valid():
        if known is None:
            form.instance.user = request.user
        return redirect(form.save())
    return render(request, "session_edit.html", {"page": "sessions", "form": form, "session": known})


# --- one of them ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """A run or a note with its time."""

    at: datetime
    run: Run | None = None
    outcome: Outcome | None = None
    note: Note | None = None


class NoteForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Note
        fields = ("phase", "text")
        labels = {"phase": "Phase", "text": "Note"}
        help_texts = {"phase": "Optional: start a phase."}
        widgets = {"text": forms.Textarea(attrs={"rows": 3})}

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not (self.errors or cleaned.get("phase") or cleaned.get("text")):
            self.add_error("text", "Write something, or name a phase.")
        return cleaned


def entries(session: Session) -> list[Entry]:
    """Runs and notes by time."""
    runs = with_outcomes(Run.objects.for_list().filter(session=session).order_by("pk"))
    timeline = [Entry(run.created_at, run=run, outcome=outcome) for run, outcome in runs]
    timeline += [Entry(note.created_at, note=note) for note in session.notes.select_related("user")]
    return sorted(timeline, key=lambda entry: entry.at)


def _session(pk: int) -> Session:
    return get_object_or_404(Session.objects.select_related("user"), pk=pk)


def session(request: HttpRequest, pk: int) -> HttpResponse:
    """Shows the report; POST adds a note."""
    session = _session(pk)
    form = NoteForm(request.POST or None, label_suffix="")
    if request.method == "POST" and form.is_valid():
        form.instance.session, form.instance.user = session, request.user
        form.save()
        return redirect(session)
    table, pages = progress(session)
    timeline = entries(session)
    context = {
        "page": "sessions",
        "session": session,
        "form": form,
        "entries": timeline,
        "run_count": sum(entry.run is not None for entry in timeline),
        "headline": report_headline(table, timeline),
        **by_kernel(table, pages),
    }
    return render(request, "session.html", context, status=422 if form.errors else 200)


def report_headline(table: list[comparison.Row], timeline: list[Entry]) -> Summary | None:
    """What changed in a session. If no kernel was measured twice: how the kernel of its last run stands. None: nothing
    was compared."""
    changed = comparison.summary(table) if any(row.verdict != Verdict.BASELINE for row in table) else None
    if changed:
        return changed
    newest = next((entry for entry in reversed(timeline) if entry.run and entry.outcome and entry.outcome.first), None)
    if newest is None or newest.run is None or newest.outcome is None or newest.outcome.first is None:
        return None
    strong, tone = headline(newest.outcome.first, newest.outcome.contended)
    rest = [sentence(newest.outcome.first.rest), f"This is run {newest.run.pk}: no kernel was measured twice yet."]
    return Summary(strong, rest, tone)


@require_POST
def add_run(request: HttpRequest, pk: int) -> HttpResponse:
    """Adds an existing run to the session."""
    session, asked = _session(pk), request.POST.get("run", "").strip()
    run = number(asked)
    joining = Run.objects.select_related("session").filter(pk=run).first() if run is not None else None
    if joining:
        was = joining.session if joining.session != session else None
        Run.objects.filter(pk=joining.pk).update(session=session)
        left = f' It was in "{was.title}" before.' if was else ""
        messages.success(request, f"Run {run} is now in this session.{left}")
    else:
        messages.error(request, f"There is no run {asked[:20]}." if asked else "Which run? Give its number.")
    return redirect(session)


@require_POST
def remove_run(request: HttpRequest, pk: int, run: int) -> HttpResponse:
    session = _session(pk)
    Run.objects.filter(pk=run, session=session).update(session=None)
    messages.success(request, f"Run {run} was removed from this session.")
    return redirect(session)


@require_POST
def end(request: HttpRequest, pk: int) -> HttpResponse:
    """Ends or reopens a session."""
    session = _session(pk)
    session.ended_at = None if session.ended_at else timezone.now()
    session.save(update_fields=["ended_at"])
    return redirect(session)


# --- the report in other forms ----------------------------------------------------------------------------------------


def session_json(request: HttpRequest, pk: int) -> HttpResponse:
    session = _session(pk)
    table, _ = progress(session)
    timeline = [
        {"at": entry.at.isoformat()}
        | ({"run": entry.run.pk, "title": entry.run.title, "state": entry.run.state} if entry.run else {})
        | (entry.outcome.row() if entry.outcome else {})
        | ({"phase": entry.note.phase, "note": entry.note.text} if entry.note else {})
        for entry in entries(session)
    ]
    return JsonResponse(
        {
            "title": session.title,
            "objective": session.objective,
            "begun_at": session.created_at.isoformat(),
            "ended_at": session.ended_at and session.ended_at.isoformat(),
            "timeline": timeline,
            "progress": comparison.as_records(table),
        }
    )


def without_html(text: str) -> str:
    """A person's Markdown: its markup stays, HTML shows as it was typed."""
    return tables.escaped(text, "<&")


def session_md(request: HttpRequest, pk: int) -> HttpResponse:
    """The report as Markdown."""
    session = _session(pk)
    table, _ = progress(session)
    objective = [without_html(session.objective), ""] if session.objective else []
    lines = [f"# {tables.escaped(' '.join(session.title.split()))}", "", *objective]
    timeline = entries(session)
    if said := report_headline(table, timeline):
        lines += [" ".join([f"**{said.strong}.**", *said.rest]), ""]
    if table:
        lines += [comparison.as_markdown(table, "Each kernel: first result to last"), ""]
    for entry in timeline:
        lines += _entry_lines(request, entry)
    text = "\n".join(lines).rstrip() + "\n"
    return download(text, "text/markdown; charset=utf-8", f"session-{pk}.md")


def _entry_lines(request: HttpRequest, entry: Entry) -> list[str]:
    when = f"{entry.at:%Y-%m-%d %H:%M} UTC"
    if entry.run:
        link = request.build_absolute_uri(entry.run.get_absolute_url())
        title = tables.escaped(" ".join(entry.run.title.split()))
        first = entry.outcome.first if entry.outcome else None
        best = f": {first.kernel} {first.sentence}" if first else ""
        return [f"- {when}: [run {entry.run.pk}]({link}), {title}, {entry.run.state}{best}"]
    assert entry.note is not None
    heading = ["", f"## {tables.escaped(entry.note.phase)}", ""] if entry.note.phase else []
    text = without_html(" ".join(entry.note.text.split()))
    return heading + ([f"- {when}: {text}"] if text else [])

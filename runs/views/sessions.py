"""Sessions: the list, the page of one with its plan, its runs and its notes, and what fills it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Count, Max
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST

from kernels.report import comparison
from runs.models import Note, Run, Session
from runs.queries.session_report import session_report
from runs.session_form import TEXTS, Plan
from runs.views import number
from runs.views.compare import by_kernel
from runs.views.session_report import get_session

PER_PAGE = 50


# --- all of them ------------------------------------------------------------------------------------------------------


def sessions(request: HttpRequest) -> HttpResponse:
    listed = Session.objects.select_related("user").annotate(count=Count("runs"), last=Max("runs__created_at"))
    listed = listed.order_by("-id")
    page = Paginator(listed, PER_PAGE).get_page(request.GET.get("page"))
    return render(request, "sessions.html", {"page": "sessions", "pages": page})


def edit(request: HttpRequest, pk: int | None = None) -> HttpResponse:
    """Creates or edits a session."""
    known = get_object_or_404(Session, pk=pk) if pk is not None else None
    plan = Plan(request.POST if request.method == "POST" else None, known)
    valid = request.method == "POST" and plan.is_valid()
    if valid:
        if known is None:
            plan.form.instance.user = request.user
        return redirect(plan.save())
    context = {"page": "sessions", "plan": plan, "form": plan.form, "session": known, "texts": TEXTS}
    return render(request, "session_edit.html", context, status=422 if request.method == "POST" else 200)


# --- one of them ------------------------------------------------------------------------------------------------------


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


def session(request: HttpRequest, pk: int) -> HttpResponse:
    """Shows a session; POST adds a note."""
    session = get_session(pk)
    form = NoteForm(request.POST or None, label_suffix="")
    if request.method == "POST" and form.is_valid():
        form.instance.session, form.instance.user = session, request.user
        form.save()
        return redirect(session)
    report = session_report(session)
    context = {
        "page": "sessions",
        "session": session,
        "form": form,
        "report": report,
        **by_kernel(report.table, report.pages),
    }
    return render(request, "session.html", context, status=422 if form.errors else 200)


@require_POST
def add_run(request: HttpRequest, pk: int) -> HttpResponse:
    """Adds an existing run to the session."""
    session, asked = get_session(pk), request.POST.get("run", "").strip()
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
    session = get_session(pk)
    Run.objects.filter(pk=run, session=session).update(session=None)
    messages.success(request, f"Run {run} was removed from this session.")
    return redirect(session)


@require_POST
def end(request: HttpRequest, pk: int) -> HttpResponse:
    """Ends or reopens a session."""
    session = get_session(pk)
    session.ended_at = None if session.ended_at else timezone.now()
    session.save(update_fields=["ended_at"])
    return redirect(session)


# --- in other forms ---------------------------------------------------------------------------------------------------


def session_json(request: HttpRequest, pk: int) -> HttpResponse:
    session = get_session(pk)
    report = session_report(session)
    timeline = [
        {"at": entry.at.isoformat()}
        | ({"run": entry.run.pk, "title": entry.run.title, "state": entry.run.state} if entry.run else {})
        | ({"withdrawn": entry.run.withdrawn_why or True} if entry.run and entry.run.withdrawn_at else {})
        | (entry.outcome.row() if entry.outcome else {})
        | ({"phase": entry.note.phase, "note": entry.note.text} if entry.note else {})
        for entry in report.entries
    ]
    texts = {name: getattr(session, name) for name in ("title", "objective", "phases", "blockers", "options", *TEXTS)}
    return JsonResponse(
        texts
        | {
            "begun_at": session.created_at.isoformat(),
            "ended_at": session.ended_at and session.ended_at.isoformat(),
            "criteria": [
                row | {"asked": one.asked, "answer": one.answer.word, "why": one.answered}
                for row, one in zip(session.criteria, report.criteria, strict=True)
            ],
            "findings": [
                {
                    "kind": one.kind,
                    "sentence": one.sentence,
                    "arithmetic": one.arithmetic,
                    "results": [of.link for of in one.of],
                }
                for one in report.findings
            ],
            "gpu_seconds": report.gpu_seconds,
            "timeline": timeline,
            "progress": comparison.as_records(report.table),
        }
    )

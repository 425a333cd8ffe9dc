"""Submissions: the form, the list, and the page of one with its results, ancestors and sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST

from kernels.catalog import PROBLEM, operations
from kernels.starts import start, starts
from kernels.submission import VERSION_DIGITS, Unreadable
from runs.access import person
from runs.models import Gpu, Kernel, Run, Submission
from runs.models.run import kernels_of
from runs.queries import history, point_rows, tallies
from runs.queries import submissions as listed
from runs.queries.history import Series
from runs.queries.points import Point
from runs.submission_form import File, SubmissionForm, WhereForm, as_sentence, typed_files
from runs.submitting import NotSubmitted, start_run
from runs.views.kernels import Subject
from runs.views.sources import diff

FIRST_START, FIRST_ON_CPU = "attention/triton", "attention/pytorch"
PER_PAGE = 50
LONGEST_SEARCH = 200
MOST_ANSWERS = 50


def found(version: str) -> Submission:
    """The submission of a version: some first digits of its sha256."""
    if len(version) < VERSION_DIGITS:
        raise Http404("there is no such submission")
    return get_object_or_404(Submission.objects.select_related("parent", "user"), sha256__startswith=version)


# --- the form ---------------------------------------------------------------------------------------------------------


def submit(request: HttpRequest) -> HttpResponse:
    """The form: a file to start from (?start=attention/triton), or another submission's files (?parent=VERSION)."""
    asked = request.POST.get("parent") or request.GET.get("parent")
    parent = found(asked) if asked else None
    if request.method != "POST":
        form = SubmissionForm(typed=_first_files(request, parent), uploads=[], initial=_first_source(parent))
        return _form_page(request, form, parent)
    typed = typed_files(request.POST.getlist("filename"), request.POST.getlist("source"))
    form = SubmissionForm(request.POST, typed=typed, uploads=request.FILES.getlist("dropped"))
    if not form.is_valid():
        return _form_page(request, form, parent, status=422)
    message = form.cleaned_data["message"].strip()
    told: dict[str, Any] = {"user": person(request), "message": message, "parent": parent}
    try:
        if form.source:
            one, is_new = Submission.objects.store_git(form.source, form.cleaned_data["git_operation"], **told)
        else:
            one, is_new = Submission.objects.store_read(form.sources, **told)
    except Unreadable as error:
        form.add_error(None, as_sentence(error))
        return _form_page(request, form, parent, status=422)
    if not is_new:
        kept = " Its message and its parent stay as they are." if message or parent else ""
        messages.info(request, f"This kernel is stored already, as {one.kernel}.{kept}")
    return _measure(request, form, one) or _form_page(request, form, parent, status=422)


def _first_start() -> str:
    """An example that a device here can run."""
    kinds = set(Gpu.objects.values_list("kind", flat=True))
    return FIRST_ON_CPU if kinds == {"cpu"} else FIRST_START


def _first_files(request: HttpRequest, parent: Submission | None) -> list[File]:
    if parent and (parent.files or parent.git):
        return [File(name, text) for name, text in parent.files.items()] or [File("", "")]
    chosen = start(request.GET.get("start", _first_start()))
    return [File(chosen.file_name, chosen.text)] if chosen else [File("", "")]


def _first_source(parent: Submission | None) -> dict[str, str]:
    """Where the files of a parent in a repository lie."""
    if parent is None or parent.source is None:
        return {}
    fields = {f"git_{name}": value for name, value in parent.source.model_dump().items()}
    return fields | {"git_operation": parent.operation}


def _form_page(
    request: HttpRequest, form: SubmissionForm, parent: Submission | None, status: int = 200
) -> HttpResponse:
    listed = list(starts())
    context = {
        "page": "submissions",
        "form": form,
        "parent": parent,
        "chosen": "" if parent or request.method == "POST" else request.GET.get("start", _first_start()),
        "starts": [(op.title, [one for one in listed if one.operation == op.name]) for op in operations().values()],
    }
    return render(request, "submit.html", context, status=status)


def _measure(request: HttpRequest, form: WhereForm, one: Submission) -> HttpResponse | None:
    """Starts the run that a form asks for: an answer, or None if the form has faults."""
    try:
        if (asked := form.run_of(one)) is None:
            return redirect(one)
        gpu, config = asked
        return redirect(start_run(one, gpu, config, user=person(request)))
    except NotSubmitted as error:
        if error.field not in form.errors:
            form.add_error(error.field, str(error))
        return None


# --- all of them, and one ---------------------------------------------------------------------------------------------


def submissions(request: HttpRequest) -> HttpResponse:
    """All of them (?q= words, ?operation=), newest first, each with its newest result."""
    text, operation = request.GET.get("q", "").strip()[:LONGEST_SEARCH], request.GET.get("operation", "")
    page = Paginator(listed.asked(text, operation), PER_PAGE).get_page(request.GET.get("page"))
    shown = list(page.object_list)
    last = listed.last_results(shown)
    context = {
        "page": "submissions",
        "pages": page,
        "rows": [(one, last.get(one.pk)) for one in shown],
        "asked": {"q": text, "operation": operation},
        "is_filtered": bool(text or operation),
        "operations": listed.operations(),
        "keep": urlencode({name: value for name, value in (("q", text), ("operation", operation)) if value}),
    }
    return render(request, "submissions.html", context)


def submission(request: HttpRequest, version: str) -> HttpResponse:
    return _page(request, found(version))


@require_POST
def measure(request: HttpRequest, version: str) -> HttpResponse:
    """Another run of a stored submission."""
    one = found(version)
    form = WhereForm(request.POST, operation=one.operation)
    if form.is_valid() and (answer := _measure(request, form, one)):
        return answer
    return _page(request, one, form, status=422)


def _page(request: HttpRequest, one: Submission, form: WhereForm | None = None, status: int = 200) -> HttpResponse:
    kernel = Kernel.objects.filter(operation=one.operation, name=one.kernel).first()
    rows = list(results(kernel)) if kernel else []
    shown = kernel or Kernel(operation=one.operation, name=one.kernel)
    checks = tallies.checks([row["series"].newest.pk for row in rows])
    for row in rows:
        row["check"] = checks.get(row["series"].newest.pk, "")
    place = rows[0]["series"] if rows else None
    context = {
        "page": "submissions",
        "one": one,
        "form": form or WhereForm(operation=one.operation),
        "rows": rows,
        "active": _active(one),
        "headline": Subject(shown, {}, [], series=[row["series"] for row in rows]).headline(),
        "place": place,
        "fetched": _fetched(one, rows),
        "line": list(line(one, place)),
        "diffs": list(diffs(one)),
        "children": list(one.children.defer("files")),
        "answers": answers(one),
    }
    return render(request, "submission.html", context, status=status)


def _active(one: Submission) -> list[Run]:
    """The runs that are going to measure it, or are measuring it."""
    active = Run.objects.active().select_related("gpu").order_by("pk")
    return [run for run in active if (one.operation, one.kernel) in kernels_of(run.spec)]


def _fetched(one: Submission, rows: list[dict[str, Any]]) -> str:
    """The sha256 of the files that its newest run fetched; empty if they are stored here."""
    run = max((row["series"].newest.run for row in rows), default=None) if one.git else None
    preflight = Run.objects.filter(pk=run).values_list("preflight", flat=True).first() if run else None
    return str((preflight or {}).get("fetched", {}).get(one.kernel, ""))


def results(kernel: Kernel) -> Iterator[dict[str, Any]]:
    """The newest result on each workload of each device: {"device", "series"}."""
    for device, environments in history.devices(kernel).items():
        for series in history.series(kernel, environments):
            if series.number == 1:
                yield {"device": device, "series": series}


def line(one: Submission, place: Series | None) -> Iterator[dict[str, Any]]:
    """It and its ancestors, newest first, each with its newest result at a place (workload and card)."""
    for ancestor in one.line():
        yield {"one": ancestor, "point": _result_at(ancestor, place) if place else None}


def _result_at(one: Submission, place: Series) -> Point | None:
    rows = point_rows.tried(key=place.workload.key).filter(
        kernel__operation=one.operation, kernel__name=one.kernel, measurement__run__gpu=place.newest.gpu
    )
    return next(iter(point_rows.points(rows, 1)), None)


def answers(one: Submission) -> list[str]:
    """The kernels that were measured on a problem, beside its reference; none if it is no problem."""
    if one.problem != one.kernel:
        return []
    on_it = Kernel.objects.filter(operation=PROBLEM, results__measurement__workload__sizes__problem=one.kernel)
    names = on_it.exclude(name=one.kernel).values_list("name", flat=True).distinct().order_by("-pk")
    return list(names[:MOST_ANSWERS])


def diffs(one: Submission) -> Iterator[dict[str, Any]]:
    """What changed since the parent, file by file."""
    before = one.parent.files if one.parent else {}
    if one.parent:
        for name in sorted({*before, *one.files}):
            if (was := before.get(name, "")) != (now := one.files.get(name, "")):
                yield {"name": name, "diff": diff(was, now)}

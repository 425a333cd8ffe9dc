"""Import: results that others report, as claims. A file or pasted text goes in; each claim is compared with the limits."""

from __future__ import annotations

import io
from typing import Any, TextIO

from django import forms
from django.contrib import messages
from django.core.files.uploadedfile import UploadedFile
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST

from kernels.analysis.claims import Word
from kernels.foreign.claimed import NotReadable
from runs.models import Import
from runs.pipeline.importer import Outcome, import_claims
from runs.queries.claims import COLUMNS, MOST_READ, PER_PAGE, ClaimRow, Reading
from runs.views.downloads import csv_file

LARGEST = 20 * 2**20
MOST_PASTED = 2**20
MOST_ROWS = 20_000
"""A page must answer in time; `manage.py import_results` takes any number."""
PER_LIST = 50


class ImportForm(forms.Form):
    file = forms.FileField(label="File (choose or drop)", required=False)
    text = forms.CharField(
        label="Or paste its text",
        required=False,
        max_length=MOST_PASTED,
        widget=forms.Textarea(attrs={"rows": 6, "spellcheck": "false", "class": "mono"}),
    )
    about = forms.CharField(
        label="Defaults for missing fields",
        required=False,
        max_length=300,
        help_text="Used for every row that does not say otherwise, for example: attention fp16 S=512 D=64 kernel=v3 on NVIDIA L4",
    )

    def clean_file(self) -> UploadedFile[bytes] | None:
        file: UploadedFile[bytes] | None = self.cleaned_data["file"]
        if file and (file.size or 0) > LARGEST:
            raise forms.ValidationError(
                f"It is larger than {LARGEST // 2**20} MiB. Import it with: manage.py import_results FILE"
            )
        return file

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not self.errors and not cleaned["file"] and not cleaned["text"].strip():
            self.add_error("file", "Choose a file, or paste its text.")
        elif not self.errors and cleaned["file"] and cleaned["text"].strip():
            self.add_error("text", "Give a file or a text, not both.")
        return cleaned

    def source(self) -> tuple[TextIO, str]:
        """(the rows, their name)"""
        if file := self.cleaned_data["file"]:
            return io.TextIOWrapper(file.file, encoding="utf-8", errors="replace", newline=""), file.name or "a file"
        return io.StringIO(self.cleaned_data["text"]), "pasted text"


def imports(request: HttpRequest) -> HttpResponse:
    """The list of imports, and the form."""
    form = ImportForm(request.POST, request.FILES) if request.method == "POST" else ImportForm()
    outcome = None
    if form.is_bound and form.is_valid():
        file, name = form.source()
        try:
            outcome = import_claims(file, name, about=form.cleaned_data["about"], user=request.user, most=MOST_ROWS)
        except NotReadable as error:
            form.add_error("file" if form.cleaned_data["file"] else "text", str(error))
        else:
            if target := outcome.imported or outcome.before:
                messages.success(request, outcome.sentence)
                return redirect(target)
    pages = Paginator(Import.objects.select_related("user"), PER_LIST).get_page(request.GET.get("page"))
    context = {"page": "runs", "form": form, "outcome": outcome, "pages": pages}
    return render(request, "imports.html", context, status=422 if form.errors or outcome else 200)


def imported(request: HttpRequest, pk: int) -> HttpResponse:
    """One import: what it says by itself, its claims, and what was not imported."""
    one = get_object_or_404(Import, pk=pk)
    reading = Reading(one)
    rows = reading.rows(one.claims.all()[:MOST_READ])
    pages = Paginator(one.claims.all(), PER_PAGE).get_page(request.GET.get("page"))
    first = pages.start_index() - 1 if pages.paginator.count else 0
    shown = rows[first : first + PER_PAGE] or reading.rows(pages.object_list, first)
    found = reading.findings(rows)
    context = {
        "page": "runs",
        "one": one,
        "outcome": outcome_of(one),
        "findings": found,
        "rows": shown,
        "pages": pages,
        "read": MOST_READ if pages.paginator.count > MOST_READ else 0,
        "doubts": sum(finding.doubts for finding in found),
        "cached": sum(row.word == Word.CACHED for row in rows),
    }
    return render(request, "import.html", context)


def outcome_of(one: Import) -> Outcome:
    """What became of the rows of an import, as when it was made."""
    return Outcome(one.format, one.rows, one.taken, one.known, one.refused)


def _rows(pk: int) -> list[ClaimRow]:
    one = get_object_or_404(Import, pk=pk)
    return Reading(one).rows(one.claims.all()[:MOST_ROWS])


def import_csv(request: HttpRequest, pk: int) -> HttpResponse:
    return csv_file((row.record() for row in _rows(pk)), COLUMNS, f"claims-{pk}.csv")


def import_json(request: HttpRequest, pk: int) -> JsonResponse:
    rows = _rows(pk)
    one = Import.objects.get(pk=pk)
    found = Reading(one).findings(rows[:MOST_READ])
    data = {
        "name": one.name,
        "format": one.format,
        "imported_at": one.created_at.isoformat(),
        "outcome": outcome_of(one).sentence,
        "refusals": [{"where": where, "why": why} for where, why in one.refusals],
        "findings": [
            {"kind": item.kind, "sentence": item.sentence, "arithmetic": item.arithmetic,
             "results": [result.link for result in item.of]} for item in found
        ],
        "claims": [row.record() for row in rows],
    }  # fmt: skip
    return JsonResponse(data)


@require_POST
def delete_import(request: HttpRequest, pk: int) -> HttpResponse:
    """Takes an import and its claims away."""
    one = get_object_or_404(Import, pk=pk)
    one.delete()
    messages.success(request, f"“{one.name}” and its claims are deleted.")
    return redirect("imports")

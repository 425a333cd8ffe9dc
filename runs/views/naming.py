"""The title and the note of a run, edited by whoever may start runs. Its config and results do not change."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from runs.models import Run
from runs.views.run import get_run


class NameForm(forms.Form):
    title = forms.CharField(max_length=Run._meta.get_field("title").max_length)
    note = forms.CharField(required=False, max_length=5000, widget=forms.Textarea(attrs={"rows": 4}))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.label_suffix = ""


def name_run(request: HttpRequest, pk: int) -> HttpResponse:
    run = get_run(pk)
    form = NameForm(request.POST or None, initial={"title": run.title, "note": run.note})
    if request.method == "POST" and form.is_valid():
        Run.objects.filter(pk=run.pk).update(**form.cleaned_data)  # only these: its agent reports meanwhile
        messages.success(request, "Saved.")
        return redirect(run)
    return render(request, "run_name.html", {"page": "runs", "run": run, "form": form})

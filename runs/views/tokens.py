"""The page of a person's API tokens: made here, shown once, revoked here."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from runs.access import person
from runs.models import ApiToken, Role
from runs.models.person import may

RIGHTS = [("read", "read"), ("write", "read, submit, cancel and import")]
DAYS = [("7", "a week"), ("30", "30 days"), ("90", "90 days"), ("366", "a year")]


class TokenForm(forms.Form):
    name = forms.CharField(label="What it is for", max_length=100, help_text="Such as: laptop, CI of repository x.")
    rights = forms.ChoiceField(label="Rights", choices=RIGHTS, initial="read")
    days = forms.ChoiceField(label="Valid for", choices=DAYS, initial="30")

    def offer_reading_only(self) -> None:
        self.fields["rights"] = forms.ChoiceField(label="Rights", choices=RIGHTS[:1], initial="read")


@never_cache
def tokens(request: HttpRequest) -> HttpResponse:
    """The list, and the form of a new one. A new token is in the answer to the form, and nowhere else."""
    form, text = TokenForm(request.POST or None, label_suffix=""), ""
    if not may(request.user, Role.ENGINEER):
        form.offer_reading_only()
    status = 200
    if request.method == "POST":
        if (user := person(request)) and form.is_valid():
            said = form.cleaned_data
            writes = said["rights"] == "write"
            _row, text = ApiToken.objects.make(user, said["name"], writes=writes, days=int(said["days"]))
            form = TokenForm(label_suffix="")
        else:
            status = 422
    mine = ApiToken.objects.filter(user=request.user.pk)
    context: dict[str, Any] = {"form": form, "text": text, "tokens": mine, "site": request.build_absolute_uri("/")}
    return render(request, "tokens.html", context, status=status)


@require_POST
def revoke(request: HttpRequest, pk: int) -> HttpResponse:
    get_object_or_404(ApiToken, pk=pk, user=request.user.pk).revoke()
    return redirect("tokens")

"""Tier scales: each edit makes a new version."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST

from runs.models import TierScale
from runs.models.tier_scale import Tier, parse

EXAMPLE = "Good, B, 2\nVery Good, B+, 3\nExcellent, A, 5"


class ScaleForm(forms.ModelForm):  # type: ignore[type-arg]
    """The form of a scale, one tier a line."""

    tiers = forms.CharField(
        label="Tiers",
        widget=forms.Textarea(attrs={"rows": 8, "placeholder": EXAMPLE, "spellcheck": "false"}),
        max_length=4000,
        help_text="One tier a line: name, grade, number. The grade is optional: Good,, 2",
    )

    class Meta:
        model = TierScale
        fields = ("name", "kind")
        labels = {"kind": "The numbers are"}
        error_messages = {"name": {"unique": "There is a scale with this name already."}}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.label_suffix = ""
        if self.instance.pk:
            self.fields["tiers"].initial = self.instance.text
            del self.fields["kind"]  # another kind is another scale
        else:
            self.fields["kind"].required = False

    def clean_kind(self) -> str:
        return self.cleaned_data["kind"] or TierScale.Kind.FACTOR

    def clean_name(self) -> str:
        name = self.cleaned_data["name"]
        if TierScale.objects.current().filter(name=name).exclude(pk=self.instance.pk).exists():
            raise forms.ValidationError("There is a scale with this name already.")
        return str(name)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        kind = cleaned.get("kind") or self.instance.kind
        if text := cleaned.get("tiers"):
            try:
                cleaned["tiers"] = parse(text, shares=kind == TierScale.Kind.LIGHT)
            except forms.ValidationError as error:
                self.add_error("tiers", error)
        return cleaned

    def stored(self, user: Any) -> TierScale:
        """The new scale, or the next version of the old one."""
        tiers: list[Tier] = self.cleaned_data["tiers"]
        name, body = self.cleaned_data["name"], [list(tier) for tier in tiers]
        if self.instance.pk:
            return TierScale.objects.get(pk=self.instance.pk).next_version(name, body, user)
        return TierScale.objects.create(name=name, kind=self.cleaned_data["kind"], body=body, created_by=user)

    def validate_unique(self) -> None:
        """clean_name has looked; the old version still has the name."""

    def validate_constraints(self) -> None:
        """The same."""


def scale(request: HttpRequest, pk: int | None = None) -> HttpResponse:
    """Creates a scale, or the next version of one."""
    posted = request.method == "POST"
    editable = TierScale.objects.all() if posted else TierScale.objects.current()
    opened = get_object_or_404(editable, pk=pk) if pk is not None else None
    known = opened.newest if opened else None
    form = ScaleForm(request.POST or None, instance=known)
    if posted and form.is_valid() and opened and known and opened.pk != known.pk:
        form.add_error(
            "tiers",
            f"Somebody saved version {known.version} meanwhile. Your text is below: save it as the next version.",
        )
    if posted and form.is_valid() and (saved := _saved(form, request)):
        version = f" as version {saved.version}" if saved.version > 1 else ""
        messages.success(request, f"The scale {saved.name} is saved{version}.")
        return redirect(f"{reverse('tiers')}?scale={saved.pk}")
    may_go = known is not None and TierScale.objects.current().count() > 1
    older = TierScale.objects.get(pk=known.pk).older if known else []
    context = {"page": "tiers", "form": form, "scale": known, "may_go": may_go, "older": older}
    return render(request, "tier_scale.html", context)


def _saved(form: ScaleForm, request: HttpRequest) -> TierScale | None:
    """What the form says, stored; None if another request was first: the form then says so."""
    try:
        with transaction.atomic():
            return form.stored(request.user if request.user.is_authenticated else None)
    except IntegrityError:
        form.add_error(
            "tiers", "Somebody saved a scale with this name at the same moment. Your text is below: save it again."
        )
        return None


@require_POST
def delete_scale(request: HttpRequest, pk: int) -> HttpResponse:
    """Deletes a scale with its versions, except the last one: the tiers page needs one."""
    known = get_object_or_404(TierScale.objects.current(), pk=pk)
    if TierScale.objects.current().exclude(pk=pk).exists():
        known.delete()
        messages.success(request, f"The scale {known.name} is deleted.")
    else:
        messages.error(request, f"{known.name} is the only scale and cannot be deleted.")
    return redirect("tiers")

"""How a person wants pages: time zone and theme."""

from __future__ import annotations

import zoneinfo
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render

from runs.models import Person


def zones() -> list[tuple[str, str]]:
    """Names of places, without the abbreviations that zoneinfo knows, too."""
    known = sorted(
        name for name in zoneinfo.available_timezones() if "/" in name and not name.startswith(("Etc/", "SystemV/"))
    )
    return [("", f"as the site: {settings.TIME_ZONE}"), ("UTC", "UTC"), *((name, name) for name in known)]


class SettingsForm(forms.ModelForm):  # type: ignore[type-arg]
    time_zone = forms.ChoiceField(label="Time zone", choices=zones, required=False)

    class Meta:
        model = Person
        fields = ("theme", "time_zone")
        labels = {"theme": "Theme"}

    def __init__(self, data: Any, instance: Person) -> None:
        super().__init__(data, instance=instance, label_suffix="")
        self.fields["theme"].widget = forms.Select(choices=[(one.value, one.label) for one in Person.Theme])


def account(request: HttpRequest) -> HttpResponse:
    person = get_object_or_404(Person, user=request.user.pk)
    form = SettingsForm(request.POST if request.method == "POST" else None, person)
    if request.method == "POST" and form.is_valid():
        form.save()
        messages.info(request, "Saved.")
        return redirect("settings")
    return render(request, "settings.html", {"form": form}, status=422 if form.errors else 200)

"""The form of a status page: its words, its parts in order with what is chosen of each, and when its link ends."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from runs.models import Gpu, Kernel, Newest, Session, Share, StatusPage, Target, Workload
from runs.models.status_page import EVERY, KINDS

MOST_CHOICES = 300
NEVER, KEEP = "never", "keep"
PERIODS = [(NEVER, "never"), ("1", "in a day"), ("7", "in a week"), ("30", "in 30 days"), ("90", "in 90 days"),
           ("365", "in a year")]  # fmt: skip
TITLES = {
    "targets": "Targets", "kernels": "Kernels, with the largest change of the week",
    "workloads": "Workloads, with the best kernel", "sessions": "Sessions",
    "devices": "Devices, with the time of their last report",
}  # fmt: skip
ALL = {"sessions": "every open session"}


def _some(known: QuerySet[Any], chosen: Sequence[int]) -> list[Any]:
    """Not more than fit, and all that are chosen: to save a page must not drop them."""
    rows = list(known[:MOST_CHOICES])
    missing = set(chosen) - {row.pk for row in rows}
    return rows + list(known.model._default_manager.filter(pk__in=missing))


def choices(kind: str, chosen: Sequence[int] = ()) -> list[tuple[str, str]]:
    """(row id, its name) of what may be chosen. chosen: of what is."""
    measured = Newest.objects.order_by()
    if kind == "targets":
        rows = [(one.pk, str(one)) for one in _some(Target.objects.select_related("workload"), chosen)]
    elif kind == "kernels":
        known = Kernel.objects.filter(pk__in=measured.values("result__kernel")).order_by("operation", "name")
        rows = [(one.pk, str(one)) for one in _some(known, chosen)]
    elif kind == "workloads":
        there = Workload.objects.filter(pk__in=measured.values("workload")).order_by("operation", "label")
        rows = [(one.pk, one.label) for one in _some(there, chosen)]
    elif kind == "sessions":
        rows = [(one.pk, f"{one.pk}: {one.title}") for one in _some(Session.objects.all(), chosen)]
    else:
        rows = [(one.pk, f"{one.place}, {one.name}") for one in Gpu.objects.in_order().defer("catalogue")]
    return [(EVERY, ALL.get(kind, f"every {kind[:-1]}")), *((str(pk), name) for pk, name in rows)]


class StatusForm(forms.Form):
    """For each kind: its place on the page, and what is chosen of it."""

    title = forms.CharField(max_length=100)
    sentence = forms.CharField(max_length=300, required=False, help_text="Optional: one of your own, below the title.")
    names = forms.BooleanField(label="Show names of people", required=False)
    sources = forms.BooleanField(label="Show the sources of its kernels", required=False)
    expires = forms.ChoiceField(label="Its link ends", choices=PERIODS, initial="90")

    def __init__(self, data: Any = None, page: StatusPage | None = None, share: Share | None = None) -> None:
        super().__init__(data, label_suffix="", initial=_initial(page))
        self.page, self.share = page, share
        if share is not None:
            ends = f"unchanged: {timezone.localdate(share.expires_at)}" if share.expires_at else "unchanged: never"
            self.fields["expires"] = forms.ChoiceField(
                label="Its link ends", choices=[(KEEP, ends), *PERIODS], initial=KEEP
            )
        for kind in KINDS:
            place = forms.IntegerField(label="place", min_value=1, max_value=9, required=False)
            place.widget.attrs |= {"class": "small", "aria-label": f"Place of {kind}"}
            self.fields[f"{kind}_place"] = place
            part = page.part(kind) if page else None
            self.fields[kind] = forms.MultipleChoiceField(
                label=TITLES[kind],
                choices=choices(kind, part.chosen if part else ()),
                required=False,
                widget=forms.CheckboxSelectMultiple,
            )

    @property
    def rows(self) -> list[tuple[str, Any, Any]]:
        """(title, place, choices) of each kind."""
        return [(TITLES[kind], self[f"{kind}_place"], self[kind]) for kind in KINDS]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not self.errors and not self.body(cleaned):
            raise forms.ValidationError("Choose at least one thing to show.")
        return cleaned

    @staticmethod
    def body(cleaned: dict[str, Any]) -> list[list[Any]]:
        """The parts in order. A part without a place comes after those with one."""
        chosen = [(cleaned.get(f"{kind}_place") or 99, number, kind) for number, kind in enumerate(KINDS)]
        return [
            [kind, EVERY if EVERY in cleaned[kind] else [int(pk) for pk in cleaned[kind]]]
            for _, _, kind in sorted(chosen)
            if cleaned.get(kind)
        ]

    @property
    def expires_at(self) -> datetime | None:
        asked = self.cleaned_data["expires"]
        if asked == KEEP:
            return self.share.expires_at if self.share else None
        return None if asked == NEVER else timezone.now() + timedelta(days=int(asked))

    @transaction.atomic
    def save(self, user: Any) -> Share:
        """The page's live link. One that has ended stays ended: the page gets another."""
        said = self.cleaned_data
        page = self.page or StatusPage(user=user)
        page.title, page.sentence, page.body = said["title"], said["sentence"], self.body(said)
        page.names, page.sources = said["names"], said["sources"]
        page.save()
        share = Share.objects.all().make(user, self.expires_at, page=page)
        share.expires_at = self.expires_at
        share.save(update_fields=["expires_at"])
        return share


def _initial(page: StatusPage | None) -> dict[str, Any]:
    if page is None:
        shown = {kind: [EVERY] for kind in ("targets", "kernels", "devices")}
        return shown | {f"{kind}_place": number for number, kind in enumerate(KINDS, 1)}
    parts = {part.kind: [EVERY] if part.every else [str(pk) for pk in part.chosen] for part in page.parts}
    places = {f"{part.kind}_place": number for number, part in enumerate(page.parts, 1)}
    words = {name: getattr(page, name) for name in ("title", "sentence", "names", "sources")}
    return words | parts | places

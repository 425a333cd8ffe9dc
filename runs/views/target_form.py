"""The form of a target, on the page of a workload's tiers."""

from __future__ import annotations

import math
from datetime import date
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.utils import timezone

from runs.models import Pin, Target
from runs.models.tier_scale import LARGEST_FACTOR
from runs.queries.ladder import BEYOND, Ladder
from runs.templatetags.figures import grouped

OWN = "own"


class TargetForm(forms.Form):
    """A tier of the scale, or a factor of one's own; whose it is, and until when."""

    tier = forms.ChoiceField(label="Target")
    factor = forms.FloatField(label="or a factor of your own", required=False, min_value=1, max_value=LARGEST_FACTOR)
    owner = forms.CharField(label="Owner", max_length=150)
    due = forms.DateField(label="Until", required=False, widget=forms.DateInput(attrs={"type": "date"}))

    def clean_due(self) -> date | None:
        due: date | None = self.cleaned_data["due"]
        if due and due < timezone.localdate():
            raise forms.ValidationError("Choose today or a later day.")
        return due

    def __init__(self, ladder: Ladder, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.label_suffix = ""
        self.ladder = ladder
        steps = [step for step in ladder.steps if step.state != BEYOND]
        choices = [(str(n), f"{s.tier.label}, {grouped(s.tier.factor)}x") for n, s in enumerate(steps)]
        self.fields["tier"].choices = [*choices, (OWN, "a factor of your own")]  # type: ignore[attr-defined]
        self.steps = steps
        following = ladder.next
        self.initial.setdefault("tier", str(steps.index(following)) if following and following in steps else OWN)

    def clean_owner(self) -> User:
        name = self.cleaned_data["owner"]
        found = User.objects.filter(username=name, is_active=True).first()
        if found is None:
            raise forms.ValidationError(f"There is no user {name}.")
        return found

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if cleaned.get("factor") is not None and "tier" in cleaned:
            cleaned["tier"] = OWN  # a tier is always chosen, a number is typed
        chosen, factor = cleaned.get("tier"), cleaned.get("factor")
        if chosen == OWN:
            if factor is None or not math.isfinite(factor) or factor <= 1:
                self.add_error("factor", f"A factor is a number above 1, at most {LARGEST_FACTOR:,}.")
            elif self.ladder.most is not None and factor > self.ladder.most:
                self.add_error(
                    "factor", f"The hardware limit is {grouped(self.ladder.most)}x: no kernel can reach more."
                )
        elif chosen is not None:
            cleaned["factor"] = self.steps[int(chosen)].tier.factor
        return cleaned

    def keep(self, device: str, pin: Pin | None) -> Target:
        """Stores the target of the ladder's workload on devices of this name."""
        chosen, scale = self.cleaned_data, self.ladder.scale
        tier = "" if chosen["tier"] == OWN else self.steps[int(chosen["tier"])].tier.label
        fields = {
            "factor": chosen["factor"],
            "tier": f"{tier} of {scale.name} v{scale.version}"[:60] if tier else "",
            "owner": chosen["owner"],
            "due": chosen["due"],
            "pin": pin,
        }
        place: dict[str, Any] = {"workload": self.ladder.series.workload, "device": device, "mode": self.ladder.mode}
        return Target.objects.update_or_create(**place, defaults=fields)[0]

"""The form of a session: its texts, and rows of phases, criteria, blockers and options."""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.http import QueryDict

from runs.models import Session
from runs.models.plan import MOST, BlockerState, PhaseState

SPARE = 2
"""Empty rows below those that there are."""
TIME = re.compile(
    r"(?:(?P<h>\d{1,4}(?:\.\d{1,3})?) ?h(?:ours?)?)? ?(?:(?P<m>\d{1,5}(?:\.\d{1,3})?) ?(?:m|min|minutes)?)?", re.I
)
LONGEST_MIN = 100_000


def in_words(minutes: int | None) -> str:
    """A time as people write it: 45 min, 1 h 30 min."""
    if minutes is None:
        return ""
    hours, rest = divmod(minutes, 60)
    return " ".join(filter(None, [f"{hours} h" if hours else "", f"{rest} min" if rest or not hours else ""]))


class MinutesField(forms.Field):
    """A time in minutes: 45, 45 min, 1.5 h, 1 h 30 min."""

    def prepare_value(self, value: Any) -> Any:
        return in_words(value) if isinstance(value, int) else value

    def to_python(self, value: Any) -> int | None:
        text = str(value or "").strip()
        if not text:
            return None
        found = TIME.fullmatch(text)
        if not found or not any(found.groups()):
            raise forms.ValidationError("Give a time, such as 45 min or 1.5 h.")
        minutes = round(60 * float(found["h"] or 0) + float(found["m"] or 0))
        if minutes > LONGEST_MIN:
            raise forms.ValidationError(f"At most {LONGEST_MIN:,} minutes.")
        return minutes


class PhasesField(forms.Field):
    """Numbers of phases, separated by commas."""

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value

    def to_python(self, value: Any) -> list[int]:
        parts = [part for part in re.split(r"[,\s]+", str(value or "").strip()) if part]
        if any(not part.isascii() or not part.isdecimal() or len(part) > 3 for part in parts):
            raise forms.ValidationError("Give numbers of phases, such as 5, 6.")
        return [int(part) for part in parts]


def _lines(rows: int = 1) -> forms.Textarea:
    return forms.Textarea(attrs={"rows": rows})


def _short(size: int, **more: str) -> forms.TextInput:
    return forms.TextInput(attrs={"size": size, "class": "small", **more})


class RowForm(forms.Form):
    """One row. An empty one is left out."""

    prefix_of_new = ""
    title = forms.CharField(max_length=200, required=False)

    def has_changed(self) -> bool:
        """Every row is checked; whether it is empty is decided by what it holds."""
        return True

    def is_empty(self) -> bool:
        given = (value for name, value in self.cleaned_data.items() if name not in ("DELETE", "number", "state"))
        return not any(value not in (None, "", [], False) for value in given)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not self.errors and not self.is_empty() and not cleaned.get("title") and self.needs_title():
            self.add_error("title", "Enter a title, or clear the row.")
        return cleaned

    def needs_title(self) -> bool:
        return True


class PhaseForm(RowForm):
    number = forms.IntegerField(min_value=0, max_value=999, required=False, widget=_short(3, inputmode="numeric"))
    state = forms.ChoiceField(choices=[(one, one) for one in PhaseState.values], required=False)
    planned_min = MinutesField(label="planned", required=False, widget=_short(9))
    actual_min = MinutesField(label="took", required=False, widget=_short(9))
    after = PhasesField(label="needs phases", required=False, widget=_short(7))
    text = forms.CharField(label="description", max_length=5000, required=False, widget=_lines())
    field_order = ("number", "title", "state", "planned_min", "actual_min", "after", "text")


class CriterionForm(RowForm):
    title = forms.CharField(label="name", max_length=200, required=False)
    speedup = forms.FloatField(label="minimum speedup", min_value=0.01, max_value=10_000, required=False,
                               widget=_short(6, inputmode="decimal"))  # fmt: skip
    at_least = forms.IntegerField(label="minimum workloads", min_value=1, max_value=10_000, required=False,
                                  widget=_short(4, inputmode="numeric"))  # fmt: skip
    workloads = forms.CharField(label="workload filter", max_length=500, required=False)
    kernel = forms.CharField(max_length=100, required=False)
    p90 = forms.BooleanField(label="not worse at p90", required=False)
    correct = forms.BooleanField(label="all correct", required=False)
    sm_busy = forms.FloatField(label="minimum SM busy, %", min_value=1, max_value=100, required=False,
                               widget=_short(4, inputmode="decimal"))  # fmt: skip
    no_spills = forms.BooleanField(label="no conflicts, no spills", required=False)

    def needs_title(self) -> bool:
        cleaned = self.cleaned_data
        return not any(cleaned.get(name) for name in ("speedup", "p90", "correct", "sm_busy", "no_spills"))


class BlockerForm(RowForm):
    state = forms.ChoiceField(choices=[(one, one) for one in BlockerState.values], required=False)
    text = forms.CharField(label="description and actions", max_length=5000, required=False, widget=_lines())


class OptionForm(RowForm):
    minutes = MinutesField(label="time", required=False, widget=_short(9))
    chosen = forms.BooleanField(required=False)
    text = forms.CharField(label="description and expected benefit", max_length=5000, required=False, widget=_lines())


class Rows(forms.BaseFormSet):  # type: ignore[type-arg]
    """Rows of one kind."""

    def filled(self) -> list[dict[str, Any]]:
        """The rows that are not empty, as a column holds them."""
        return [one.cleaned_data for one in self.forms if not one.is_empty()]

    def add_fields(self, form: Any, index: int | None) -> None:
        super().add_fields(form, index)
        form.use_required_attribute = False


class Phases(Rows):
    """Phases, whose dependencies must be among them and lead to no circle."""

    def filled(self) -> list[dict[str, Any]]:
        rows = super().filled()
        free = max((row["number"] for row in rows if row["number"] is not None), default=-1) + 1
        for row in rows:
            if row["number"] is None:
                row["number"], free = free, free + 1
            row["state"] = row["state"] or PhaseState.PENDING
        return rows

    def clean(self) -> None:
        if any(self.errors):
            return
        mine = [form for form in self.forms if not form.is_empty()]
        needs: dict[int, list[int]] = {}
        for form, row in zip(mine, self.filled(), strict=True):
            number = row["number"]
            if number in needs:
                form.add_error("number", f"Another phase is number {number}.")  # which takes it out of the row
            needs[number] = row["after"]
        for form in mine:
            row = form.cleaned_data
            if unknown := [number for number in row.get("after", ()) if number not in needs]:
                form.add_error("after", f"There is no phase {unknown[0]}.")
            elif row.get("number") is not None and _leads_back(row["number"], needs):
                form.add_error("after", f"Phase {row['number']} depends on itself.")


def _leads_back(start: int, needs: dict[int, list[int]]) -> bool:
    """Whether a phase needs itself, directly or through others."""
    seen: set[int] = set()
    waiting = list(needs.get(start, ()))
    while waiting:
        number = waiting.pop()
        if number == start:
            return True
        if number not in seen:
            seen.add(number)
            waiting += needs.get(number, ())
    return False


def _set(form: type[RowForm], base: type[Rows] = Rows) -> Any:
    return forms.formset_factory(
        form, formset=base, extra=SPARE, max_num=MOST, absolute_max=MOST + SPARE, validate_max=True
    )


KINDS = {
    "phases": ("Phases", _set(PhaseForm, Phases)),
    "criteria": ("Success criteria", _set(CriterionForm)),
    "blockers": ("Blockers", _set(BlockerForm)),
    "options": ("Options", _set(OptionForm)),
}
TEXTS = ("decision", "next_actions", "learnings", "deliverables")
HELP = {
    "phases": "Times such as 45 min or 1.5 h. To remove a row, clear all its fields. Saving adds two empty rows.",
    "criteria": (
        "The site evaluates the criteria from the session's runs whenever the page is read. “Workload filter”: words of a "
        "workload, such as S=512 D=64. Separate alternatives with commas. Leave it empty for every workload. Leave the "
        "kernel empty for any kernel. Profiles answer “SM busy” and “no conflicts, no spills”: at most 5% of the passes "
        "of shared memory may be bank conflicts. A person judges a criterion that has only a name."
    ),
    "blockers": "What stops the work, and what was done about it.",
    "options": "What could be done next. Mark the one that was chosen.",
}


class SessionForm(forms.ModelForm):  # type: ignore[type-arg]
    """Title and texts."""

    class Meta:
        model = Session
        fields = ("title", "objective", *TEXTS)
        widgets = {"objective": _lines(4), **dict.fromkeys(TEXTS, _lines(4))}
        help_texts = {
            "objective": "The goal, and how to check that it is reached.",
            "next_actions": "Texts are Markdown; “run 7” becomes a link.",
        }


class Plan:
    """The whole form: texts and rows. Valid if all of it is."""

    def __init__(self, data: QueryDict | None, session: Session | None) -> None:
        self.form = SessionForm(data, instance=session, label_suffix="")
        self.sets = {
            name: make(data if data and f"{name}-TOTAL_FORMS" in data else None, prefix=name,
                       initial=getattr(session, name) if session else None)
            for name, (_, make) in KINDS.items()
        }  # fmt: skip

    def is_valid(self) -> bool:
        """All parts are asked, so that all faults show at once. A part that was not sent stays as it is."""
        valid = [self.form.is_valid(), *(one.is_valid() for one in self.sets.values() if one.is_bound)]
        return all(valid)

    def save(self) -> Session:
        for name, rows in self.sets.items():
            if rows.is_bound:
                setattr(self.form.instance, name, rows.filled())
        return self.form.save()

    @property
    def parts(self) -> list[tuple[str, str, str, Any]]:
        """(name, title, help, rows) of each kind of rows."""
        return [(name, KINDS[name][0], HELP[name], rows) for name, rows in self.sets.items()]

    @property
    def errors(self) -> int:
        """Fields with a fault."""
        rows = [sum(map(len, one.errors)) + len(one.non_form_errors()) for one in self.sets.values() if one.is_bound]
        return len(self.form.errors) + sum(rows)

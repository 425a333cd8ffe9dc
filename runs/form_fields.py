"""Form fields for the sizes of an operation."""

from __future__ import annotations

import re
from typing import Any, Literal, get_args, get_origin

from django import forms
from pydantic.fields import FieldInfo

MOST_DIGITS = 20
"""Longest number: Python refuses to parse thousands of digits."""


class NumbersField(forms.Field):
    """Whole numbers, separated by commas; every combination runs."""

    def to_python(self, value: Any) -> list[int]:
        text = str(value or "").strip()
        if not text:
            return []
        parts = [part for part in re.split(r"[,\s]+", text) if part]
        if any(not part.isdecimal() for part in parts):
            raise forms.ValidationError(f"“{text}”: use whole numbers, separated by commas.")
        if any(len(part) > MOST_DIGITS or not 1 <= int(part) <= 2**20 for part in parts):
            raise forms.ValidationError("Use numbers from 1 to 1,048,576.")
        return [int(part) for part in parts]


MASK_CHOICES = [("no", "no"), ("yes", "yes"), ("both", "both")]


ALL = "all"
"""The choice of every word of a size."""


def words_of(info: FieldInfo) -> tuple[str, ...]:
    """The values of a size that is a word; empty if it is a number, or yes and no."""
    return get_args(info.annotation) if get_origin(info.annotation) is Literal else ()


def size_field(info: FieldInfo) -> forms.Field:
    """A form field for a size of an operation: numbers, or no, yes, both, or one or all of its words."""
    label, help_text = info.title or "", info.description or ""
    if words := words_of(info):
        choices = [(word, word) for word in (*words, ALL)]
        return forms.ChoiceField(label=label, choices=choices, required=False, initial=words[0], help_text=help_text)
    if info.annotation is bool:
        return forms.ChoiceField(label=label, choices=MASK_CHOICES, required=False, initial="no", help_text=help_text)
    widget = forms.TextInput(attrs={"inputmode": "numeric", "autocomplete": "off", "class": "short"})
    return NumbersField(label=label, required=False, help_text=help_text, widget=widget)


def may_be_empty(info: FieldInfo) -> bool:
    extra = info.json_schema_extra
    return isinstance(extra, dict) and bool(extra.get("may_be_empty"))

"""Form fields for the sizes of an operation."""

from __future__ import annotations

import re
from typing import Any, Literal, get_args, get_origin

from django import forms
from pydantic.fields import FieldInfo

MOST = 2**20
"""Largest size, where the operation names no other."""
MOST_DIGITS = 20
"""Longest number: Python refuses to parse thousands of digits."""


def _parts(value: Any) -> list[str]:
    """The numbers of a text that are separated by commas or blanks."""
    return [part for part in re.split(r"[,\s]+", str(value or "").strip()) if part]


class NumbersField(forms.Field):
    """Whole numbers, separated by commas; every combination runs."""

    def __init__(self, *, least: int = 1, most: int = MOST, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.least, self.most = least, most

    def to_python(self, value: Any) -> list[int]:
        text, parts = str(value or "").strip(), _parts(value)
        if any(not part.removeprefix("-").isdecimal() for part in parts):
            raise forms.ValidationError(f"“{text}”: use whole numbers, separated by commas.")
        if any(len(part) > MOST_DIGITS or not self.least <= int(part) <= self.most for part in parts):
            raise forms.ValidationError(f"Use numbers from {self.least} to {self.most:,}.")
        return [int(part) for part in parts]


DECIMAL = re.compile(r"\d{1,9}(\.\d{0,20})?|\.\d{1,20}")
"""A number that may have a fraction."""


class DecimalsField(forms.Field):
    """Numbers above 0, separated by commas; every combination runs."""

    def to_python(self, value: Any) -> list[float]:
        parts = _parts(value)
        if any(not DECIMAL.fullmatch(part) or not float(part) for part in parts):
            raise forms.ValidationError(
                f"“{str(value).strip()}”: use numbers above 0, such as 0.125, separated by commas."
            )
        return [float(part) for part in parts]


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
    decimal = info.annotation is float
    mode = "decimal" if decimal else "numeric"
    widget = forms.TextInput(attrs={"inputmode": mode, "autocomplete": "off", "class": "short"})
    shown: dict[str, Any] = {"label": label, "required": False, "help_text": help_text, "widget": widget}
    most = next((one.le for one in info.metadata if hasattr(one, "le")), MOST)
    return DecimalsField(**shown) if decimal else NumbersField(least=0 if info.default == 0 else 1, most=most, **shown)


def may_be_empty(info: FieldInfo) -> bool:
    extra = info.json_schema_extra
    return isinstance(extra, dict) and bool(extra.get("may_be_empty"))

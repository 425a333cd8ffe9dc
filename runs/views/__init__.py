"""One file per page."""

from __future__ import annotations


def number(text: str | None) -> int | None:
    """A row's number out of an address; None of what is none, or fits no column."""
    text = text or ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None

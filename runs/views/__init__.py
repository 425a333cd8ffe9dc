"""Views: one file per page."""

from __future__ import annotations


def number(text: str | None) -> int | None:
    """Integer from an address; None if it is not one or does not fit the column."""
    text = text or ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None

"""The glossary: the table of docs/README.md as a page, so that a term of another page can be looked up."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import slugify

FILE = "docs/README.md"
ROW = re.compile(r"^\| (\*\*.+?) \| (.+) \|$", re.MULTILINE)
STEPS = (
    (re.compile(r"\s*\(\[[^\]]*\]\([^)]*\)\)"), ""),  # a link in brackets leads to a file
    (re.compile(r"\[([^\]]*)\]\([^)]*\)"), r"\1"),
    (re.compile(r"\*\*(.+?)\*\*"), r"<b>\1</b>"),
    (re.compile(r"\*(.+?)\*"), r"<i>\1</i>"),
    (re.compile(r"`(.+?)`"), r"<code>\1</code>"),
)
"""What the meanings have of Markdown -> HTML."""


class Entry(NamedTuple):
    """One term."""

    name: str
    """Its place in the page's address."""
    term: SafeString
    meaning: SafeString


def _html(text: str) -> SafeString:
    shown = escape(text)
    for pattern, by in STEPS:
        shown = SafeString(pattern.sub(by, shown))
    return mark_safe(shown)


@cache
def entries() -> list[Entry]:
    """By name."""
    text = (settings.BASE_DIR / FILE).read_text(encoding="utf-8")
    found = [
        Entry(slugify(term.split(",")[0].replace("/", "")), _html(term.replace("**", "")), _html(meaning))
        for term, meaning in ROW.findall(text)
    ]
    return sorted(found, key=lambda one: one.name)


def glossary(request: HttpRequest) -> HttpResponse:
    """The page."""
    return render(request, "glossary.html", {"page": "glossary", "entries": entries()})

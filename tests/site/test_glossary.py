"""The glossary is the table of docs/README.md."""

from pathlib import Path

from django.conf import settings
from django.urls import reverse

from runs.views.glossary import entries


def test_every_term_of_the_docs_stands_there_once(owner):
    text = (Path(settings.BASE_DIR) / "docs/README.md").read_text()
    rows = [
        line for line in text.partition("## Glossary")[2].partition("\n## ")[0].splitlines() if line.startswith("| **")
    ]
    found = entries()
    assert len(found) == len(rows) > 40
    assert len({one.name for one in found}) == len(found), "each has an address"
    page = owner.get(reverse("glossary")).content.decode()
    assert '<dt id="aa">A/A</dt>' in page and "The baseline against itself. Its ratio should be 1" in page
    assert '<dt id="margin">margin</dt>' in page and "contended" in page


def test_nothing_of_the_markup_of_the_docs_is_left():
    for one in entries():
        assert not {"**", "`", "](", "[", "|"} & {
            mark for mark in ("**", "`", "](", "[", "|") if mark in one.meaning + one.term
        }
        assert "<script" not in one.meaning

"""A page as a browser shows it: white space that it does not show is gone, so that tests quote what is read."""

import re

BLOCKS = (
    "address|article|body|br|caption|dd|details|div|dl|dt|fieldset|figure|form|h1|h2|h3|head|header|html|legend|li|link|main|"
    "meta|nav|ol|optgroup|option|p|picture|script|section|select|source|summary|table|tbody|td|th|thead|title|tr|ul|"
    "circle|line|path|polyline|rect|svg|text"
)
KEPT = re.compile(r"(<pre\b.*?</pre>|<textarea\b.*?</textarea>)", re.DOTALL)
AROUND_BLOCKS = re.compile(rf"\s*(</?(?:{BLOCKS})\b[^>]*>)\s*")


def shown(page: str) -> str:
    return "".join(part if KEPT.match(part) else _collapsed(part) for part in KEPT.split(page))


def _collapsed(part: str) -> str:
    part = re.sub(r"\s+", " ", part)
    part = re.sub(r"(<[a-z][^<>]*?) (/?>)", r"\1\2", part)
    return AROUND_BLOCKS.sub(r"\1", part)


def all_figures(page):
    """The tables of a run's page that have a row for each result: what follows the first."""
    return page.split('<table class="results">', 1)[1]

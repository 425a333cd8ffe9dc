"""Markdown of people as HTML that runs nothing: no raw HTML, no image, no address but http, https and mailto."""

from __future__ import annotations

import re
from collections.abc import Mapping

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token

TAGS = {
    "p", "br", "em", "strong", "s", "code", "pre", "ul", "ol", "li", "blockquote", "a", "h3", "h4", "h5", "h6", "hr",
    "table", "thead", "tbody", "tr", "th", "td",
}  # fmt: skip
SCHEMES = {"http", "https", "mailto"}
RUN = re.compile(r"\brun (\d{1,18})\b", re.IGNORECASE)
ACTIVE = re.compile(r"(?i)(\]\(\s*\\?<?\s*|\]:\s*\\?<?\s*)(javascript|vbscript|data)(\s*\\?:)")
"""An address that a viewer of Markdown might run."""
HTML = re.compile(r"(\\*)([<&])")
READER = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])


def rendered(text: str, runs: Mapping[int, bool] | None = None, base: str = "") -> str:
    """Safe HTML. runs: number -> whether it is withdrawn, of the runs whose numbers become links: "run 7". base: of their
    addresses, in a file that stands alone."""
    tokens = READER.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"  # below the headings of a page
        if token.children:
            token.children = _with_links(token.children, runs or {}, base)
    html = READER.renderer.render(tokens, READER.options, {})
    return nh3.clean(
        html, tags=TAGS, attributes={"a": {"href"}}, url_schemes=SCHEMES, link_rel="noopener noreferrer nofollow"
    )


def _with_links(children: list[Token], runs: Mapping[int, bool], base: str) -> list[Token]:
    """The tokens of a line, where each "run 7" of a known run is a link; of a withdrawn one, struck through."""
    found, inside = [], 0
    for token in children:
        inside += token.nesting if token.type in ("link_open", "link_close") else 0
        if token.type != "text" or inside:
            found.append(token)
            continue
        begin = 0
        for match in RUN.finditer(token.content):
            number = int(match[1])
            if number not in runs:
                continue
            found.append(Token("text", "", 0, content=token.content[begin : match.start()]))
            link = Token("link_open", "a", 1, attrs={"href": f"{base}/runs/{number}/"})
            parts = [link, Token("text", "", 0, content=match[0]), Token("link_close", "a", -1)]
            if runs[number]:
                parts = [Token("s_open", "s", 1), *parts, Token("s_close", "s", -1)]
            found += parts
            begin = match.end()
        found.append(Token("text", "", 0, content=token.content[begin:]))
    return found


def as_typed(text: str) -> str:
    """A person's Markdown for a Markdown file: its markup stays, HTML shows as it was typed, no address runs anything."""
    return ACTIVE.sub(r"\1unsafe-\2\3", HTML.sub(_escaped, text))


def _escaped(found: re.Match[str]) -> str:
    """A sign of HTML behind an even number of backslashes needs one more: behind an odd number it is text already."""
    slashes, sign = found.groups()
    return f"{slashes}{sign}" if len(slashes) % 2 else f"{slashes}\\{sign}"

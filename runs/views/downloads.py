"""Pages as files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from django.http import HttpResponse, StreamingHttpResponse

from kernels.report.cells import as_csv, csv_lines


def download(content: str, kind: str, name: str) -> HttpResponse:
    """A file that the browser saves. kind: its media type."""
    return HttpResponse(content, content_type=kind, headers=saved_as(name))


def saved_as(name: str) -> dict[str, str]:
    """Headers of a file that the browser saves under this name."""
    return {"Content-Disposition": f'attachment; filename="{name}"'}


def csv_file(records: Iterable[Mapping[str, Any]], columns: Sequence[str], name: str) -> HttpResponse:
    return download(as_csv(records, columns), "text/csv; charset=utf-8", name)


def csv_stream(records: Iterable[Mapping[str, Any]], columns: Sequence[str], name: str) -> StreamingHttpResponse:
    """The same, sent line by line as it is made."""
    lines = csv_lines(records, columns)
    return StreamingHttpResponse(lines, content_type="text/csv; charset=utf-8", headers=saved_as(name))


def json_lines(records: Iterable[Mapping[str, Any]], **more: Any) -> Iterator[str]:
    """{"results": [...]} with more in front, a line for each record as it is made."""
    yield json.dumps(more | {"results": []}).removesuffix("]}")
    for number, record in enumerate(records):
        yield ("," if number else "") + "\n" + json.dumps(record)
    yield "\n]}\n"

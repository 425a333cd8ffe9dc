"""The rows of a file, one after the other, recognised by its content: JSON, JSONL, csv, a Markdown table, an export.

A file is read in pieces, so a list of a million rows needs no more memory than one of ten. Only a single JSON object, such
as an exported run, is read whole.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from kernels.contract.export import NotAnExport
from kernels.contract.merged import read_runs
from kernels.foreign.claimed import NotReadable, Record, Refused
from kernels.foreign.figures import column

PIECE = 2**16
LONGEST_ROW = 2**20
"""Characters of one row."""
LONGEST_OBJECT = 2**26
"""Characters of a file that is one JSON object."""
EXPORT, JSON, JSONL, CSV, MARKDOWN = "an exported run", "JSON rows", "JSONL", "csv", "a Markdown table"
LIST = '{["]-0123456789'
"""What follows the bracket of a JSON list; rows are objects."""
ROWS = ("rows", "results", "benchmarks", "data")
"""Names of the list of rows in a JSON object."""
FIRST_LINES = 5
"""A file whose beginning is damaged is JSONL if one of so many lines is an object."""
ABOUT = "about"
"""What holds for every row of such an object."""
Found = Iterator[Record | tuple[str, Refused]]
"""Rows, and where a row could not be taken from the file, with the reason."""


def read(file: TextIO) -> tuple[str, str, Found]:
    """(format, what the file says of all rows, its rows). The file can seek. Raises NotReadable."""
    head = file.read(PIECE).removeprefix("\ufeff").lstrip()
    file.seek(0)
    if not head:
        raise NotReadable("The file is empty.")
    if "\0" in head:
        raise NotReadable("The file is not text.")
    if head[0] == "[" and (not head[1:].strip() or head[1:].lstrip()[0] in LIST):  # and no link of Markdown
        return JSON, "", _of_list(file)
    if head[0] == "{":
        return _of_objects(file, head)
    if "|" in head and re.search(r"^\s*\|?[\s:|-]*-{2,}[\s:|-]*\|[\s:|-]*$", head, re.MULTILINE):
        return MARKDOWN, "", _of_markdown(file)
    return CSV, "", _of_csv(file, head)


# --- JSON -------------------------------------------------------------------------------------------------------------


def _of_objects(file: TextIO, head: str) -> tuple[str, str, Found]:
    """JSONL if the first line is an object and not the last, or if the whole is none and one of the first lines is; else one
    object: a run, a list of rows under a name, or a single row."""
    lines = [line for line in head.split("\n") if line.strip()][:FIRST_LINES]
    if len(lines) > 1 and _is_object(lines[0]):
        return JSONL, "", _of_lines(file)
    text = file.read(LONGEST_OBJECT + 1).removeprefix("\ufeff")
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        if any(map(_is_object, lines[1:])):
            file.seek(0)
            return JSONL, "", _of_lines(file)
        if len(text) > LONGEST_OBJECT:
            raise NotReadable(f"The file is one JSON object of more than {LONGEST_OBJECT // 2**20} MiB.") from None
        raise NotReadable(f"The file begins as a JSON object and does not end as one: {error}.") from None
    if str(whole.get("format", "")).startswith(("benchsite-run/", "benchsite-merged/")):
        return EXPORT, "", _of_export(text)
    for name in ROWS:
        if isinstance(rows := whole.get(name), list):
            return JSON, str(whole.get(ABOUT) or ""), (_record(f"row {i}", row) for i, row in enumerate(rows, 1))
    return JSON, "", iter([_record("row 1", whole)])


def _is_object(line: str) -> bool:
    """Whether a line alone is a whole JSON object."""
    text = line.strip()
    if not (text.startswith("{") and text.endswith("}")):
        return False
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _record(where: str, row: Any) -> Record | tuple[str, Refused]:
    if isinstance(row, dict):
        return Record(where, row)
    return where, Refused(f"it is not a JSON object, but {json.dumps(row)[:40]}")


def _of_list(file: TextIO) -> Found:
    """The items of a JSON list, each read as soon as it is complete."""
    decoder, text, count = json.JSONDecoder(), "", 0
    text = file.read(PIECE).removeprefix("\ufeff").lstrip()[1:]
    ended = False
    while True:
        text = text.lstrip().removeprefix(",").lstrip() if count else text.lstrip()
        if text.startswith("]"):
            return
        try:
            item, end = decoder.raw_decode(text)
            complete = ended or end < len(text)  # a number may go on in the next piece
        except ValueError:
            complete = False
        except RecursionError:
            yield f"row {count + 1}", Refused("it is nested too deeply; what follows was not read")
            return
        if complete:
            count, text = count + 1, text[end:]
            yield _record(f"row {count}", item)
            continue
        if ended or len(text) > LONGEST_ROW:
            why = "the file ends within it" if ended else "it is not JSON, or it is longer than 1 MiB"
            yield f"row {count + 1}", Refused(f"{why}; what follows was not read")
            return
        more = file.read(PIECE)
        ended, text = not more, text + more


def _of_lines(file: TextIO) -> Found:
    for number, line in _lines(file):
        where = f"line {number}"
        if isinstance(line, Refused):
            yield where, line
        elif line.strip():
            try:
                yield _record(where, json.loads(line.removeprefix("\ufeff")))
            except (ValueError, RecursionError):
                yield where, Refused("it is not a complete JSON object")


def _lines(file: TextIO) -> Iterator[tuple[int, str | Refused]]:
    """Numbered lines; of one that is too long, the refusal."""
    number = 0
    while line := file.readline(LONGEST_ROW):
        number += 1
        if len(line) < LONGEST_ROW or line.endswith("\n"):
            yield number, line
            continue
        while line and not line.endswith("\n"):
            line = file.readline(LONGEST_ROW)
        yield number, Refused("it is longer than 1 MiB")


def _of_export(text: str) -> Found:
    """The results of a run of this site, of `python -m kernels run --json`, of any version, or of a merged file."""
    try:
        runs = read_runs(text)
    except NotAnExport as error:
        raise NotReadable(f"The file says that it is an exported run: {error}.") from None
    for export in runs:
        for measured, arm in ((one, arm) for one in export.measurements for arm in one.results):
            where = f"{arm.kernel} on {measured.workload.label}"
            if arm.status != "ok" or arm.p50_ms is None:
                yield where, Refused(f"its status is {arm.status}: it has no time that counts")
                continue
            names = ("p50_ms", "mean_ms", "min_ms", "max_ms", "std_ms", "p90_ms", "p95_ms", "p99_ms", "tflops", "gb_per_s",
                     "speedup", "speedup_low", "speedup_high")  # fmt: skip
            figures = {name: value for name in names if (value := getattr(arm, name)) is not None}
            yield Record(where, {
                "operation": measured.workload.operation, "dtype": measured.workload.dtype, **measured.workload.sizes,
                "implementation": arm.kernel, "backend": arm.backend, "baseline": measured.baseline,
                "gpu": export.environment.get("device") or "", "method": f"Benchsite, mode {measured.mode}",
                "correct": bool(arm.correctness and arm.correctness.correct) or None, **figures,
            })  # fmt: skip


# --- tables -----------------------------------------------------------------------------------------------------------


def _of_csv(file: TextIO, head: str) -> Found:
    first = head.split("\n", 1)[0]
    outside = re.sub(r'\([^)]*\)|"[^"]*"', "", first)
    delimiter = max((";", "\t", ","), key=outside.count)
    if delimiter not in outside:
        raise NotReadable(
            "No rows were recognised: not JSON, JSONL, csv (commas, semicolons or tabs), a Markdown table, nor an exported run."
        )
    refused: list[tuple[int, Refused]] = []
    reader = csv.reader(_text_lines(file, refused), delimiter=delimiter)
    return _of_table(reader, refused)


def _text_lines(file: TextIO, refused: list[tuple[int, Refused]]) -> Iterator[str]:
    for number, line in _lines(file):
        if isinstance(line, Refused):
            refused.append((number, line))
            yield "\n"
        else:
            yield line.removeprefix("\ufeff").replace("\0", "\N{REPLACEMENT CHARACTER}")


def _of_table(reader: Any, refused: list[tuple[int, Refused]]) -> Found:
    headings: list[str] = []
    while True:
        before = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            cells = None
        except csv.Error as error:
            yield f"line {before}", Refused(f"it is not valid csv: {error}")
            continue
        while refused:
            number, why = refused.pop(0)
            yield f"line {number}", why
        if cells is None:
            return
        if not headings:
            headings = [cell.strip() for cell in cells]
        elif any(cell.strip() for cell in cells):
            yield _row(f"line {before}", headings, cells)


def _row(where: str, headings: list[str], cells: Iterable[str]) -> Record | tuple[str, Refused]:
    cells = [cell.strip() for cell in cells]
    if len(cells) != len(headings):
        return where, Refused(f"it has {len(cells)} cells under {len(headings)} headings")
    return Record(where, dict(zip(headings, cells, strict=True)))


def _of_markdown(file: TextIO) -> Found:
    """Every table of a text: a line of headings, a line of dashes, and rows, all with bars. The rest is prose, and
    so are tables in which no heading names a figure."""
    headings: list[str] = []
    before: list[str] = []
    for number, line in _lines(file):
        text = "" if isinstance(line, Refused) else line.strip()
        if "|" not in text:
            headings, before = [], []
            continue
        cells = [cell.strip() for cell in text.strip("|").split("|")]
        if all(re.fullmatch(r":?-{2,}:?", cell) for cell in cells):
            headings = before if any(map(column, before)) else []
        elif headings:
            yield _row(f"line {number}", headings, [cell.strip("*` ") for cell in cells])
        before = cells

"""Log lines: for people, or with LOG_FORMAT=json one JSON object a line. Both say which run a line is about.

`about(run=7, attempt=3)` adds these fields to every line that is logged within it. Needs no package.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

_about: ContextVar[dict[str, Any]] = ContextVar("about", default={})  # noqa: B039  (it is never changed, only replaced)
OWN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


@contextmanager
def about(**fields: Any) -> Iterator[None]:
    """Lines logged within say these fields, too: the run, the attempt, the request."""
    token = _about.set(_about.get() | fields)
    try:
        yield
    finally:
        _about.reset(token)


def is_json() -> bool:
    return os.environ.get("LOG_FORMAT") == "json"


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What was given as `extra`, and what the line is about; of one name, the latter."""
    return {name: value for name, value in record.__dict__.items() if name not in OWN} | _about.get()


class JsonLines(logging.Formatter):
    """One object a line: at, level, logger, process, message, and the fields of `fields_of`."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line | fields_of(record), default=str, ensure_ascii=False)


def of_part(part: str, line: str) -> str:
    """A line that a process wrote, as JSON that says which part of the site it was; what is JSON already stays so."""
    try:
        said = json.loads(line)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        said = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "message": line}
    return json.dumps({"part": part} | said, ensure_ascii=False)


class PlainLines(logging.Formatter):
    """Time, level, logger, message; then the fields, as name=value."""

    def __init__(self) -> None:
        super().__init__("{asctime} {levelname} {name}: {message}", style="{")

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in fields_of(record).items() if name in SHOWN)
        return super().formatMessage(record) + fields


SHOWN = ("run", "attempt", "request")
"""Fields in a line for people."""


def configuration() -> dict[str, Any]:
    """For logging.config.dictConfig: everything to stderr, what is ours from INFO on."""
    formatter = JsonLines if is_json() else PlainLines
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": {"()": formatter}},
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "lines"}},
        "root": {"handlers": ["console"], "level": "WARNING"},
        "loggers": {name: {"level": "INFO"} for name in ("runs", "kernels")},
    }

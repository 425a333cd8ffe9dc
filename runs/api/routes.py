"""Where the operations of the API are gathered, and which answers the document names for each."""

from __future__ import annotations

from typing import Any

from ninja import Router

from runs.api import schemas
from runs.api.access import READING

PROBLEMS = frozenset({401, 404, 422, 429})
ROUTER = Router(**READING)


def answers(schema: Any, *more: int) -> dict[Any, Any]:
    """The answers of an operation, for its document."""
    return {200: schema} | dict.fromkeys(sorted({*PROBLEMS, *more}), schemas.ProblemOut)

"""How it answers: ETags of what is read, cursors of lists, and writes that are repeated without harm."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.utils.cache import get_conditional_response
from pydantic import BaseModel

from runs.api.problems import Problem
from runs.models import Answered

KEPT = timedelta(days=1)
LONGEST_KEY = 200


def etag_of(content: str | bytes) -> str:
    raw = content.encode() if isinstance(content, str) else content
    return f'"{hashlib.sha256(raw).hexdigest()[:24]}"'


def unchanged(request: HttpRequest, etag: str) -> HttpResponse | None:
    """304 with the same ETag, if the asker has this version already."""
    fresh = HttpResponse(headers={"ETag": etag, "Cache-Control": "private, no-cache"})
    answer = get_conditional_response(request, etag=etag, response=fresh)
    return answer if isinstance(answer, HttpResponse) and answer is not fresh else None


def as_json(request: HttpRequest, body: Any, etag: str = "") -> HttpResponse:
    """A body with an ETag, by default of its content; 304 if the asker has it."""
    content = json.dumps(body)
    return tagged(request, HttpResponse(content, content_type="application/json"), etag)


def tagged(request: HttpRequest, answer: HttpResponseBase, etag: str = "") -> HttpResponse:
    """An answer of a page's twin, with an ETag. Raises Problem where the twin refuses."""
    assert isinstance(answer, HttpResponse)
    if answer.status_code == 400:
        raise Problem(422, "Wrong parameter", answer.content.decode())
    answer.headers.pop("Content-Disposition", None)
    answer.headers["ETag"] = etag = etag or etag_of(answer.content)
    answer.headers["Cache-Control"] = "private, no-cache"
    return unchanged(request, etag) or answer


def only(request: HttpRequest, asked: BaseModel) -> None:
    """Raises Problem if the address has a parameter that `asked` does not have: if it were ignored, the answer would be to
    another question."""
    known = list(type(asked).model_fields)
    if unknown := [name for name in request.GET if name not in known]:
        said = f"There is no parameter {unknown[0][:40]!r}; there are {', '.join(known)}."
        raise Problem(422, "Wrong parameter", said, field=unknown[0][:40])


def number_of(cursor: str) -> int | None:
    """The row that a cursor names; None: from the start. Raises Problem."""
    if not cursor:
        return None
    if cursor.isascii() and cursor.isdecimal() and len(cursor) < 19:
        return int(cursor)
    raise not_a_cursor()


def not_a_cursor() -> Problem:
    said = "Take `cursor` from `next` of the page before, with the same filters; leave it out for the first page."
    return Problem(422, "Wrong parameter", f"cursor: the value is not valid. {said}", field="cursor")


def once(request: HttpRequest, user: Any, do: Callable[[], tuple[int, Any]]) -> HttpResponse:
    """Does a write and answers (status, body). With the header Idempotency-Key, a repeated request gets the first answer
    and does nothing. What is refused is not kept: it may be asked again."""
    key = request.headers.get("Idempotency-Key", "").strip()
    if not key:
        with transaction.atomic():  # what is refused leaves nothing behind
            status, body = do()
        return _written(status, body)
    if len(key) > LONGEST_KEY or not key.isprintable():
        raise Problem(422, "Wrong header", f"Idempotency-Key has at most {LONGEST_KEY} printable characters.")
    said = hashlib.sha256(
        b"\n".join([(request.method or "").encode(), request.path.encode(), request.body])
    ).hexdigest()
    mine = Answered.objects.filter(user=user)
    mine.filter(created_at__lt=timezone.now() - KEPT).delete()
    try:
        with transaction.atomic():  # a second request with the key waits here until the first is done
            row = Answered.objects.create(user=user, key=key, digest=said)
            row.status, row.body = do()
            row.save(update_fields=["status", "body"])
    except IntegrityError:
        before = mine.filter(key=key).first()
        if before is None:  # the fault is of something else
            raise
        if before.digest != said:
            other = "This Idempotency-Key was used for another request: take a new one for each."
            raise Problem(409, "The key was used", other) from None
        return _written(before.status, before.body)
    return _written(row.status, row.body)


def _written(status: int, body: Any) -> HttpResponse:
    return HttpResponse(json.dumps(body), status=status, content_type="application/json")

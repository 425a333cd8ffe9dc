"""Who asks: a token, or for reading the session of the pages. And how often."""

from __future__ import annotations

import threading
import time
from typing import Any

from django.core.cache import cache
from django.http import HttpRequest
from ninja.security import HttpBearer, SessionAuth
from ninja.throttling import BaseThrottle

from runs.api.problems import Problem
from runs.models import ApiToken
from runs.models.person import Role, may


class Token(HttpBearer):
    """Authorization: Bearer bench_..."""

    def __init__(self, writes: bool = False) -> None:
        self.writes = writes
        super().__init__()

    def authenticate(self, request: HttpRequest, token: str) -> ApiToken:
        found = ApiToken.objects.used(token.strip())
        if found is None:
            said = "It is unknown, expired or revoked; the page /tokens/ makes another."
            raise Problem(401, "The token is not valid", said)
        if self.writes and not may(found.user, Role.ENGINEER):
            raise Problem(
                403,
                "Viewers have read-only access",
                "The owner of this token is a viewer. An admin can change the role to engineer.",
            )
        if self.writes and not found.writes:
            raise Problem(403, "The token is read-only", "Make a token with the right to submit and cancel: /tokens/.")
        request.user = found.user
        return found


class Session(SessionAuth):
    """The cookie of somebody who is logged in: reads only, so no form of another site can use it."""


class Rate(BaseThrottle):
    """So many requests of a token, or of a person with a session, within some seconds. All threads share one."""

    def __init__(self, scope: str, most: int, seconds: float) -> None:
        self.scope, self.most, self.seconds = scope, most, seconds
        self.local = threading.local()

    def allow_request(self, request: HttpRequest) -> bool:
        who: Any = request.auth  # type: ignore[attr-defined]
        key = f"api-{self.scope}-{'token' if isinstance(who, ApiToken) else 'person'}-{who.pk}"
        now = time.time()
        recent = [at for at in cache.get(key, []) if now - self.seconds < at <= now]
        if len(recent) >= self.most:
            self.local.wait = recent[0] + self.seconds - now
            return False
        cache.set(key, [*recent, now], self.seconds)
        return True

    def wait(self) -> float | None:
        """Seconds until the request that this thread refused may come again."""
        return getattr(self.local, "wait", None)


READS, WRITES = Rate("reads", 300, 10), Rate("writes", 60, 60)
"""Eight watchers that ask each 0.7 s send 115 in 10 s."""
READING: dict[str, Any] = {"auth": [Token(), Session()], "throttle": [READS]}
WRITING: dict[str, Any] = {"auth": [Token(writes=True)], "throttle": [WRITES]}

"""Accounts, and a limit on wrong passwords (django-axes): of one name, and of one address. Counted in Django's cache."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from axes.handlers.cache import AxesCacheHandler
from axes.helpers import get_cache_timeout, get_failure_limit
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

MOST_OF_AN_ADDRESS = 50
"""Wrong passwords from one address for all names together; AXES_FAILURE_LIMIT is that for one name."""


class Accounts(ModelBackend):
    """Reads an account with its role: one query a request."""

    def get_user(self, user_id: Any) -> User | None:
        user = User.objects.select_related("person").filter(pk=user_id).first()
        return user if user and self.user_can_authenticate(user) else None


def name_of(request: HttpRequest, credentials: dict[str, Any] | None = None) -> str:
    """The name that a login is for: Nina and nina are one."""
    known = (credentials or {}).get("username") or request.POST.get("username") or ""
    return str(known).casefold()[:150]


def address_of(request: HttpRequest) -> str:
    """The web server has looked at the proxy's header, if it trusts the proxy."""
    return str(request.META.get("REMOTE_ADDR", ""))


class Handler(AxesCacheHandler):  # type: ignore[misc]
    """Counts all wrong passwords of an address, too. The right password of one name does not begin that count anew."""

    def __init__(self) -> None:
        self.cache = cache

    def get_failures(self, request: Any, credentials: dict[str, Any] | None = None) -> int:
        named = super().get_failures(request, credentials)
        of_address = self.cache.get(_key(request), 0)
        return max(named, of_address * get_failure_limit(request, credentials) // MOST_OF_AN_ADDRESS)

    def user_login_failed(self, sender: Any, credentials: Any, request: Any = None, **more: Any) -> None:
        if (
            request is not None
            and not request.axes_locked_out
            and not self.cache.add(_key(request), 1, get_cache_timeout(request))
        ):
            self.cache.incr(_key(request))
            self.cache.touch(_key(request), get_cache_timeout(request))
        super().user_login_failed(sender, credentials, request, **more)


def _key(request: HttpRequest) -> str:
    return "login-" + sha256(address_of(request).encode()).hexdigest()


def locked_out(request: HttpRequest, answer: HttpResponse | None, credentials: Any = None) -> HttpResponse:
    """The login page, which says how long to wait."""
    return render(request, "registration/login.html", {"locked_out": True, "next": ""}, status=429)

"""Logins, with a limit on wrong passwords: of one name, and of one address. Counted in Django's cache."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.core.cache import cache
from django.core.exceptions import ValidationError

WINDOW_S = 10 * 60
MOST_OF_A_NAME, MOST_OF_AN_ADDRESS = 10, 50
"""Wrong passwords in WINDOW_S from one address: for one name, and for all names."""


class LoginForm(AuthenticationForm):
    """Does not look at a password while there are too many wrong ones."""

    def clean(self) -> dict[str, Any]:
        limits = self._limits()
        if any(cache.get(key, 0) >= most for key, most in limits.items()):
            minutes = WINDOW_S // 60
            raise ValidationError(
                f"Too many wrong passwords. Wait {minutes} minutes, then try again.", code="throttled"
            )
        try:
            cleaned = super().clean()
        except ValidationError:
            for key in limits:
                cache.set(key, cache.get(key, 0) + 1, WINDOW_S)
            raise
        cache.delete(next(iter(limits)))
        return cleaned

    def _limits(self) -> dict[str, int]:
        """Key of a counter -> the most that it may reach."""
        address = self.request.META.get("REMOTE_ADDR", "") if self.request else ""
        name = self.cleaned_data.get("username", "").casefold()
        return {_key(address, name): MOST_OF_A_NAME, _key(address): MOST_OF_AN_ADDRESS}


def _key(*of: str) -> str:
    return "login-" + sha256("\n".join(of).encode()).hexdigest()


class Login(LoginView):
    authentication_form = LoginForm

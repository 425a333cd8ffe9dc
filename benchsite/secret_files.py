"""Secrets from files: NAME_FILE names a file that holds the value of NAME. Docker and systemd hand secrets over so.

A value in a file does not show in the environment of a process, nor in `docker inspect`. Needs no package.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path
from urllib.parse import quote, urlsplit

SECRETS = ("SECRET_KEY", "BROKER_PASSWORD", "DATABASE_PASSWORD", "METRICS_TOKEN", "EMAIL_PASSWORD")
JOINED = {
    "REDIS_URL": "BROKER_PASSWORD",
    "BROKER": "BROKER_PASSWORD",
    "DATABASE_URL": "DATABASE_PASSWORD",
    "EMAIL_URL": "EMAIL_PASSWORD",
}
"""Address -> the secret that it takes, if it is written without a password and the secret came from a file."""


class UnreadableSecret(Exception):
    """A secret's file cannot be read, or is empty. The message says which, never what is in it."""


def into_environment(environ: MutableMapping[str, str] | None = None) -> None:
    """Reads each NAME_FILE into NAME, and joins passwords to the addresses that they belong to.

    Raises UnreadableSecret.
    """
    environ = os.environ if environ is None else environ
    found = {name: _read(name, file) for name in SECRETS if (file := environ.get(f"{name}_FILE"))}
    environ.update(found)
    for address, secret in JOINED.items():
        if secret in found and environ.get(address):
            environ[address] = with_password(environ[address], found[secret])


def with_password(url: str, password: str) -> str:
    """The address with this password; as it is, if it has one."""
    parts = urlsplit(url)
    if parts.password:
        return url
    user, _, place = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user.rstrip(':')}:{quote(password, safe='')}@{place}").geturl()


def _read(name: str, file: str) -> str:
    try:
        value = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise UnreadableSecret(f"{name}_FILE: {file} cannot be read: {why}") from None
    if not value:
        raise UnreadableSecret(f"{name}_FILE: {file} is empty")
    return value

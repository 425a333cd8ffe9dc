"""Setup before `make up` starts processes: settings, secrets, checks, data. Each error is one sentence."""

from __future__ import annotations

import os
import re
import secrets
import socket
from pathlib import Path

import redis

from benchsite import env_file
from benchsite.env_file import ENV_FILE

ROOT = Path(__file__).resolve().parents[2]


def write_env_file() -> None:
    """Creates .env, and its folder, with a secret key once, readable only by its owner."""
    if ENV_FILE.exists():
        return
    ENV_FILE.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(ENV_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"SECRET_KEY={secrets.token_urlsafe(48)}\nBROKER_PASSWORD={secrets.token_urlsafe(24)}\n")


def env_value(name: str) -> str:
    """A value from the environment, else from .env, else empty."""
    return os.environ.get(name) or env_file.read(ENV_FILE).get(name, "")


def remember(name: str, value: str) -> None:
    """Writes a value into .env, which is made if it is missing; replaces an earlier value."""
    os.close(os.open(ENV_FILE, os.O_WRONLY | os.O_CREAT, 0o600))
    earlier = re.compile(rf"\s*(export\s+)?{name}=")
    lines = [line for line in ENV_FILE.read_text().splitlines() if not earlier.match(line)]
    ENV_FILE.write_text("\n".join([*lines, f"{name}={value}"]) + "\n")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_ours(url: str) -> bool:
    """Whether a broker with our password already answers."""
    try:
        return bool(redis.Redis.from_url(url, socket_timeout=1, socket_connect_timeout=1).ping())
    except redis.exceptions.RedisError:
        return False


def keep_private(var: Path) -> None:
    """Takes what earlier versions made readable for others away from them: database and broker."""
    for path in (*var.glob("db.sqlite3*"), var / "broker", var / "agent", var / "cache", *var.glob("beat*")):
        if path.exists():
            path.chmod(0o700 if path.is_dir() else 0o600)

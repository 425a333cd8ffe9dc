"""Checks before start: disk space, a free port, a compiler, a broker. Each error is one sentence.

The agent imports this, too: no Django, no .env.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path
from urllib.parse import urlparse

import redis

NEEDED_DISK_BYTES = 500 * 2**20


class SetupError(Exception):
    """A setup error that a person must fix. The message says what."""


def check_disk(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise SetupError(
            f"cannot write in {folder}: {error.strerror}; choose another folder with BENCHSITE_VAR"
        ) from None
    free = shutil.disk_usage(folder).free
    if free < NEEDED_DISK_BYTES:
        raise SetupError(
            f"the disk of {folder} has {free // 2**20} MiB free; {NEEDED_DISK_BYTES // 2**20} MiB are needed"
        )


def check_compiler() -> str:
    """A warning if a compiler or Python's headers are missing: only torch.compile and Triton need them."""
    missing = []
    if not any(shutil.which(name) for name in (os.environ.get("CC") or "cc", "gcc", "clang")):
        missing.append("a C compiler (gcc)")
    if not any(shutil.which(name) for name in (os.environ.get("CXX") or "c++", "g++", "clang++")):
        missing.append("a C++ compiler (g++)")
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        missing.append("Python's headers (python3-dev)")
    if not missing:
        return ""
    return f"{' and '.join(missing)} not found: the kernel 'compiled' and Triton kernels will fail until installed"


def check_broker(url: str) -> None:
    """Raises SetupError if no broker answers at REDIS_URL. Does not show the password."""
    shown = urlparse(url)._replace(netloc=urlparse(url).netloc.rsplit("@", 1)[-1]).geturl()
    try:
        client = redis.Redis.from_url(url, socket_timeout=3, socket_connect_timeout=3)
        client.ping()
        policy = client.config_get("maxmemory-policy").get("maxmemory-policy", "noeviction")
    except ValueError as error:
        raise SetupError(
            f"REDIS_URL={shown} is not an address ({error}); write redis://:password@host:6379/0"
        ) from None
    except redis.exceptions.AuthenticationError:
        raise SetupError(f"the broker at {shown} rejects the password in REDIS_URL") from None
    except redis.exceptions.ResponseError:
        return  # a managed broker may hide its configuration
    except redis.exceptions.RedisError as error:
        raise SetupError(f"no broker answers at REDIS_URL={shown} ({error}); start it, or unset REDIS_URL") from None
    if policy != "noeviction":
        raise SetupError(f"the broker at {shown} evicts keys ({policy}); set maxmemory-policy noeviction")

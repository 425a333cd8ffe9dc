"""The file .env: NAME=value lines, as in a shell and Docker Compose. Only this module reads it.

Needs no Django; `read` needs django-environ.
"""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

ENV_FILE = Path(os.environ.get("BENCHSITE_ENV") or Path(__file__).resolve().parents[1] / ".env")
LINE = re.compile(r"""\s*((?:export\s+)?\w+=)\s*("(?:\\.|[^"\\])*"|'[^']*'|.*?)\s*(?:(?<=\s)\#.*)?""")
"""Name, value as written, and an optional comment, which django-environ would include in the value."""


def read(path: Path = ENV_FILE) -> dict[str, str]:
    """Name -> value, without quotes; empty if the file is missing or unreadable. The last line of a name counts."""
    from environ import Env

    class Found(Env):  # type: ignore[misc]
        ENVIRON: dict[str, str] = {}

    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    Found.read_env(io.StringIO("\n".join(_without_comment(line) for line in lines)))
    return Found.ENVIRON


def _without_comment(line: str) -> str:
    if not (found := LINE.fullmatch(line)):
        return line.strip()
    name, value = found.groups()
    return re.sub(r"^export\s+", "", name) + value


def into_environment() -> None:
    """Copies .env into the environment; does not overwrite."""
    for name, value in read().items():
        os.environ.setdefault(name, value)

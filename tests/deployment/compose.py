"""docker-compose.yml as Docker Compose reads it: variables filled in, merged keys in place."""

import re
import shlex
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
VARIABLE = re.compile(r"\$(?:\$|\{(?P<name>\w+)(?::(?P<kind>[-?])(?P<rest>[^}]*))?\})")


def variables():
    """Name -> default, or None if it must be given."""
    found = VARIABLE.finditer(FILE.read_text())
    return {m["name"]: None if m["kind"] == "?" else m["rest"] or "" for m in found if m["name"]}


def read(**given):
    def fill(match):
        name, kind, rest = match["name"], match["kind"], match["rest"]
        if not name:
            return "$"
        if not given.get(name) and kind == "?":
            raise KeyError(f"{name}: {rest}")
        return given.get(name) or rest or ""

    def walk(value):
        if isinstance(value, dict):
            return {key: walk(one) for key, one in value.items()}
        if isinstance(value, list):
            return [walk(one) for one in value]
        return VARIABLE.sub(fill, value) if isinstance(value, str) else value

    return walk(yaml.safe_load(FILE.read_text()))


def words(command):
    return shlex.split(command) if isinstance(command, str) else list(command)


def check_words(service):
    """The command of a service's health check."""
    kind, *rest = service["healthcheck"]["test"]
    return {"CMD": rest, "CMD-SHELL": ["sh", "-c", *rest]}[kind]


def stages():
    """Stage of the Dockerfile -> its instructions, as (name, words)."""
    found, text = {}, (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, rest = line.split(None, 1)
        if name == "FROM":
            base, _, stage = rest.partition(" AS ")
            current = found.setdefault(stage or "default", [("FROM", base)])
        else:
            current.append((name, rest))
    return found

"""Copies of the whole database, SQLite or PostgreSQL, of a living site: into a file, and back."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path

from django.db import connection
from django.db.migrations.loader import MigrationLoader

HEADS = {"sqlite": b"SQLite format 3\x00", "postgresql": b"PGDMP"}
"""How a file begins, by the database that it is a copy of."""
LOCK_S = 60
EMPTY = f"SET lock_timeout = '{LOCK_S}s'; DROP SCHEMA public CASCADE; CREATE SCHEMA public;\n"
"""Before the rows come back. A table that the copy does not know would stop the migrations after it."""


class CopyError(Exception):
    """A copy that cannot be made or read. The message says what to do."""


def save(to: Path) -> None:
    """The state at one moment, in a new file that only its owner can read."""
    if to.exists():
        raise CopyError(f"{to} exists; name another file")
    part = to.with_name(f"{to.name}.part")
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
    try:
        _copy_sqlite(part) if connection.vendor == "sqlite" else _postgres(
            "pg_dump", "--format=custom", f"--file={part}"
        )
        part.rename(to)
    finally:
        part.unlink(missing_ok=True)


def check(file: Path) -> None:
    """Raises CopyError unless this version can take the file in."""
    try:
        with open(file, "rb") as opened:
            head = opened.read(16)
    except OSError as error:
        raise CopyError(f"{file} cannot be read: {error.strerror}") from None
    of = next((vendor for vendor, begin in HEADS.items() if head.startswith(begin)), None)
    if of is None:
        raise CopyError(f"{file} is not a file that manage.py backup wrote")
    if of != connection.vendor:
        raise CopyError(f"{file} is a copy of {of}, and this site's database is {connection.vendor}")
    known = {name for app, name in MigrationLoader(None).disk_migrations if app == "runs"}
    found = _migrations_of_sqlite(file) if of == "sqlite" else _migrations_of_postgres(file)
    if newer := sorted(found - known):
        raise CopyError(f"{file} was written by a newer version, with {newer[-1]}: update this checkout first")
    if not found:
        raise CopyError(f"{file} is not a copy of a Benchsite database")


def load(file: Path) -> None:
    """Replaces every row by those of a checked file: all, or on an error none."""
    if connection.vendor != "sqlite":
        return _load_postgres(file)
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(_name(), timeout=LOCK_S)) as target:
        try:
            source.backup(target)
        except sqlite3.Error as error:
            raise CopyError(f"the database could not be replaced: {error}") from None
    return None


def _name() -> str:
    return str(connection.settings_dict["NAME"])


def _copy_sqlite(to: Path) -> None:
    """A copied file would miss what is in the WAL."""
    with closing(sqlite3.connect(_name())) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)
        target.execute("PRAGMA journal_mode=DELETE")  # one file
        if (found := target.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise CopyError(f"the copy is damaged: {found}")


def _migrations_of_sqlite(file: Path) -> set[str]:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        try:
            if (found := db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise CopyError(f"{file} is damaged: {found}")
            return {name for (name,) in db.execute("SELECT name FROM django_migrations WHERE app='runs'")}
        except sqlite3.Error as error:
            raise CopyError(f"{file} is damaged: {error}") from None


def _migrations_of_postgres(file: Path) -> set[str]:
    text = _run("pg_restore", "--data-only", "--table=django_migrations", "--file=-", str(file))
    rows = (line.split("\t") for line in text.splitlines())
    return {row[2] for row in rows if len(row) > 3 and row[1] == "runs"}


def _load_postgres(file: Path) -> None:
    """In one transaction: pg_restore writes the statements, psql executes them."""
    with tempfile.TemporaryDirectory() as folder:
        before, rows = Path(folder) / "before.sql", Path(folder) / "rows.sql"
        before.write_text(EMPTY)
        _run("pg_restore", "--no-owner", "--no-privileges", f"--file={rows}", str(file))
        options = ["--no-psqlrc", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1"]
        _postgres("psql", *options, f"--file={before}", f"--file={rows}")


def _postgres(*command: str) -> str:
    """A client program of PostgreSQL, with this site's database."""
    names = {"PGHOST": "HOST", "PGPORT": "PORT", "PGUSER": "USER", "PGPASSWORD": "PASSWORD", "PGDATABASE": "NAME"}
    settings = connection.settings_dict
    return _run(*command, **{name: str(settings[of]) for name, of in names.items() if settings.get(of)})


def _run(program: str, *arguments: str, **env: str) -> str:
    if not shutil.which(program):
        raise CopyError(f"{program} is not on the PATH; install the PostgreSQL client of your server's version")
    done = subprocess.run([program, *arguments], env=os.environ | env, capture_output=True, text=True)
    if done.returncode:
        raise CopyError(done.stderr.strip() or f"{program} ended with status {done.returncode}")
    return done.stdout

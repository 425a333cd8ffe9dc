"""manage.py backup FILE: a copy of the database of a living site, complete to the newest run."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection


class Command(BaseCommand):
    help = __doc__
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="a new file; SQLite: a database, PostgreSQL: for pg_restore")

    def handle(self, *args: Any, **options: Any) -> None:
        file: Path = options["file"]
        if file.exists():
            raise CommandError(f"{file} exists; name another file")
        part = file.with_name(f"{file.name}.part")
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        try:
            copy_sqlite(part) if connection.vendor == "sqlite" else dump_postgres(part)
            part.rename(file)
        finally:
            part.unlink(missing_ok=True)
        self.stdout.write(f"{file}: {file.stat().st_size / 2**20:.1f} MiB")


def copy_sqlite(to: Path) -> None:
    """The state at one moment, although the site writes meanwhile: a copied file would miss what is in the WAL."""
    with closing(sqlite3.connect(connection.settings_dict["NAME"])) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)
        target.execute("PRAGMA journal_mode=DELETE")  # one file
        if (found := target.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise CommandError(f"the copy is damaged: {found}")


def dump_postgres(to: Path) -> None:
    if not shutil.which("pg_dump"):
        raise CommandError("pg_dump is not on the PATH; install the PostgreSQL client of your server's version")
    settings = connection.settings_dict
    names = {"PGHOST": "HOST", "PGPORT": "PORT", "PGUSER": "USER", "PGPASSWORD": "PASSWORD", "PGDATABASE": "NAME"}
    env = os.environ | {name: str(settings[of]) for name, of in names.items() if settings.get(of)}
    done = subprocess.run(["pg_dump", "--format=custom", f"--file={to}"], env=env, capture_output=True, text=True)
    if done.returncode:
        raise CommandError(done.stderr.strip())

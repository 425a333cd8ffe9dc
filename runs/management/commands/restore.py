"""manage.py restore FILE: replaces the database by a backup. What was there is kept in a file beside it.

The site may run meanwhile. A backup of an earlier version is updated. Runs that were in progress when the backup was
made are measured on: their agents take them for new attempts, and what is stored is not measured again.
"""

from __future__ import annotations

import secrets
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection, transaction

from runs.hosting import copies
from runs.models import Run
from runs.models.run import ATTEMPTS


class Command(BaseCommand):
    help = __doc__
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="what manage.py backup wrote; - reads standard input")

    def handle(self, *args: Any, **options: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file: Path = options["file"]
            if str(file) == "-":
                file = Path(folder) / "copy"
                with open(file, "wb") as copy:
                    shutil.copyfileobj(sys.stdin.buffer, copy)
            try:
                self.restore(file)
            except copies.CopyError as error:
                raise CommandError(str(error)) from None

    def restore(self, file: Path) -> None:
        copies.check(file)
        if connection.introspection.table_names():
            self.stdout.write(f"the previous database was saved to {self.keep_what_is_there()}")
        connection.close()
        copies.load(file)
        call_command("migrate", verbosity=0)
        going = go_on()
        more = f"; {going} in progress continue" if going else ""
        self.stdout.write(f"{file}: {Run.objects.count()} runs restored{more}")

    def keep_what_is_there(self) -> Path:
        folder = settings.VAR_DIR / "backups"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        kept = folder / f"before-restore-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"
        copies.save(kept)
        return kept


@transaction.atomic
def go_on() -> int:
    """Gives each run in progress attempts of new numbers. Returns how many there are.

    Agents know what came after the backup: an attempt of an old number would be a duplicate to them, and be ignored.
    """
    active = list(Run.objects.active())
    for run in active:
        fresh = secrets.randbelow(2**20) * ATTEMPTS + bool(run.sent_at)
        Run.objects.filter(pk=run.pk).update(attempt=fresh, seq=0, attempts_without_progress=0)
    return len(active)

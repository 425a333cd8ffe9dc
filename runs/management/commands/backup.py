"""manage.py backup FILE: a copy of the database of a living site, complete to the newest run."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from runs.hosting import copies


class Command(BaseCommand):
    help = __doc__
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="a new file, for manage.py restore; - writes to standard output")

    def handle(self, *args: Any, **options: Any) -> None:
        file: Path = options["file"]
        try:
            if str(file) == "-":
                self._to_stdout()
                return
            copies.save(file)
        except copies.CopyError as error:
            raise CommandError(str(error)) from None
        self.stdout.write(f"{file}: {file.stat().st_size / 2**20:.1f} MiB")

    def _to_stdout(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            copies.save(whole := Path(folder) / "copy")
            with open(whole, "rb") as copy:
                shutil.copyfileobj(copy, sys.stdout.buffer)

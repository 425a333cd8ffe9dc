"""manage.py prune: deletes now what KEEP_SAMPLES_DAYS and KEEP_SHARES_DAYS say. A running site does so every hour."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import connection

from runs.pipeline.keeping import prune


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--vacuum", action="store_true", help="also release free space to the disk; blocks the site meanwhile"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        deleted = prune(sys.maxsize)
        for what, count in deleted.items():
            self.stdout.write(f"{what}: {count} deleted")
        if options["vacuum"]:
            with connection.cursor() as cursor:
                cursor.execute("VACUUM" if connection.vendor == "sqlite" else "VACUUM FULL")

"""Imports results that another tool wrote, as claims: manage.py import_results FILE --about "attention fp16 on NVIDIA L4"

Exit status: 0: every row is here now; 1: some rows were refused; 2: the file cannot be read.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from benchsite.priority import give_way
from kernels.foreign.claimed import NotReadable
from runs.pipeline.importer import import_claims

MOST_SHOWN = 20


class Command(BaseCommand):
    help = (
        "Imports results that another tool wrote (JSON rows, JSONL, csv, a Markdown table, an exported run), as claims."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--about", default="", help='values that rows omit: "attention fp16 D=64 on NVIDIA L4"')

    def handle(self, *args: Any, **options: Any) -> None:
        if getattr(self, "_called_from_command_line", False):
            give_way()
        try:
            with options["file"].open(encoding="utf-8", errors="replace", newline="") as file:
                outcome = import_claims(file, options["file"].name, about=options["about"])
        except (NotReadable, OSError) as error:
            self.stderr.write(f"import_results: {error}")
            sys.exit(2)
        self.stdout.write(f"{outcome.format}: {outcome.sentence}")
        for where, why in outcome.refusals[:MOST_SHOWN]:
            self.stdout.write(f"  {where}: {why}")
        if len(outcome.refusals) > MOST_SHOWN:
            self.stdout.write("  and more")
        if target := outcome.imported or outcome.before:
            self.stdout.write(f"Page: {target.get_absolute_url()}")
        if outcome.refused or not outcome.rows:
            sys.exit(1)

"""Charts of exported runs as files: manage.py charts FILE... -o DIR

Exit status: 0: written; 2: a file cannot be read, or there is nothing to draw.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from kernels.catalog import get_operation
from kernels.contract.export import Export, NotAnExport
from kernels.contract.merged import read_runs
from kernels.report import tables
from runs.charts import side_by_side
from runs.charts.pictures import image
from runs.charts.side_by_side import SHAPES, Picture
from runs.charts.theme import THEMES


class Command(BaseCommand):
    help = (
        "Draws speedup, latency and throughput of each operation of exported runs and merged files, a mark for each run, "
        "without a database."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="what `run --json` or `merge` wrote")
        parser.add_argument(
            "-o", "--output", required=True, type=Path, metavar="DIR", help="where the charts are written"
        )
        parser.add_argument("--kind", choices=("png", "svg"), default="png")
        parser.add_argument("--theme", choices=tuple(THEMES), default="light")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            runs = [(_name(path, run), run) for path in options["files"] for run in read_runs(path.read_bytes())]
        except (OSError, NotAnExport) as error:
            self._refuse(str(error))
        if len(runs) > len(SHAPES):
            self._refuse(f"{len(runs)} runs do not fit into one chart: at most {len(SHAPES)}")
        found = side_by_side.pictures([tables.rows(run.measurements) for _, run in runs])
        if not found:
            self._refuse("no result of these files has a time")
        options["output"].mkdir(parents=True, exist_ok=True)
        for one in found:
            names = _told_apart([name for name, _ in runs])
            drawn = side_by_side.draw(one, names, options["theme"], title=_title(one))
            path = options["output"] / f"{one.operation}-{one.name}.{options['kind']}"
            path.write_bytes(image(drawn.to_dict(validate=False), options["kind"], options["theme"]))
            self.stdout.write(f"{path}: {len(one.drawn)} of {len(one.workloads)} workloads")

    def _refuse(self, why: str) -> None:
        self.stderr.write(f"charts: {why}")
        sys.exit(2)


def _title(one: Picture) -> str:
    """What a picture shows, which has no page around it; and how much it leaves out."""
    left_out = len(one.workloads) - len(one.drawn)
    some = f", {len(one.drawn)} of {len(one.workloads)} workloads" if left_out else ""
    return f"{get_operation(one.operation).title}: {one.title[0].lower()}{one.title[1:]}{some}"


def _name(path: Path, run: Export) -> str:
    return f"{path.stem}: {run.environment.get('device') or 'an unknown device'}"


def _told_apart(names: list[str]) -> list[str]:
    """The names, numbered where they are equal."""
    return [f"{name} ({n})" if names.count(name) > 1 else name for n, name in enumerate(names, 1)]

"""What a run has measured so far: collected from its events, written after each workload."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from kernels.cli.files import is_replaceable, replace_file
from kernels.cli.progress import Progress
from kernels.contract.events import CrossChecked, Event, Measured, Timing
from kernels.contract.export import Export
from kernels.parent.stopwatch import added
from kernels.report import formats, measures, tables
from kernels.report.cells import as_csv
from kernels.report.measures import Measure
from kernels.workload import Config

RUNNING, DONE, INTERRUPTED, FAILED = "running", "done", "interrupted", "failed"
"""States of a run in its file."""


class Collector:
    """The export of one run, and its files. resumed: the export of an earlier part of the same run."""

    def __init__(
        self,
        config: Config,
        paths: dict[str, Path],
        progress: Progress,
        resumed: Export | None,
        asked: Sequence[Measure] = (),
        form: str = "",
    ) -> None:
        title = config.title or config.name
        new = Export(title=title, config=config, measured_at=datetime.now(UTC).replace(microsecond=0))
        self.export = (resumed or new).model_copy(update={"state": RUNNING})
        self.timing_before = self.export.timing
        self.table = tables.rows(self.export.measurements, self.export.contended)
        self.paths, self.progress = paths, progress
        self.asked = asked
        """Measures that the table and its files have; none: the usual ones."""
        self.form = form
        """Rows of another benchmark that .jsonl has (kernels/report/formats.py); empty: the measures."""
        self.has_news = False
        """Whether something was measured that the resumed file does not have."""
        self.trouble: OSError | None = None
        """Why the last write failed."""

    def emit(self, event: Event) -> None:
        """Takes an event of the supervisor. A workload that is measured is on disk when this returns."""
        self.export = self.export.with_event(event)
        self.has_news |= isinstance(event, Measured | CrossChecked)
        if isinstance(event, Measured):
            rows = tables.rows([event], self.export.contended)
            self.table += rows
            self._write(self._replaceable())
            self.progress.measured(self.export.progress, rows, event.took_s)
        elif isinstance(event, CrossChecked):
            self.table = tables.rows(self.export.measurements, self.export.contended)

    def finish(self, state: str, outside: Timing) -> None:
        """Writes every file, if something was measured. `trouble` then says whether that failed.

        outside: seconds by phase outside the workloads.
        """
        timing = added(self.timing_before, outside)
        self.export = self.export.model_copy(update={"state": state, "timing": timing})
        self.table = tables.rows(self.export.measurements, self.export.contended)  # by a later workload, too
        self.progress.end()
        if self.table and self.has_news:
            self.write()

    def write(self) -> None:
        """Writes every file."""
        self._write(self.paths)

    def _replaceable(self) -> dict[str, Path]:
        """Files that can be written again and again; a pipe gets the end only."""
        return {name: path for name, path in self.paths.items() if is_replaceable(path)}

    def _write(self, paths: dict[str, Path]) -> None:
        """A disk that is full now may have room at the end: the first failure is said, and the run goes on."""
        before, self.trouble = self.trouble, None
        for name, path in paths.items():
            try:
                replace_file(path, self._content(name))
            except OSError as error:
                self.trouble = error
        if self.trouble and not before:
            self.progress.say(f"cannot write yet: {self.trouble}; it is tried again after each workload")

    def _content(self, name: str) -> str:
        match name:
            case "json":
                return self.export.as_json(table=tables.as_records(self.table))
            case "csv":
                return as_csv(measures.as_records(self.table, self.asked), measures.fields(self.asked))
            case "jsonl" if self.form:
                found = formats.records(self.form, self.export.measurements, self.export.environment)
                return "".join(f"{json.dumps(row)}\n" for row in found)
            case "jsonl":
                return "".join(measures.as_jsonl(self.table, self.asked))
        title = ", ".join(filter(None, [self.export.title, self.export.partial]))
        return tables.as_markdown(self.table, tables.heading(title, self.export.environment), self.lines)

    def lines(self, table: Sequence[tables.Row]) -> list[list[str]]:
        """Headings and cells of the rows of one operation."""
        return measures.lines(table, self.asked)

"""A run as a file: what `python -m kernels run --json` and the site write, and both read."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import AwareDatetime, ValidationError

from kernels.contract.arm_result import Model
from kernels.contract.events import (
    Calibrated,
    Confirmed,
    CrossChecked,
    Event,
    Examined,
    Finished,
    Measured,
    Preflight,
    Started,
    Timing,
    Tried,
)
from kernels.contract.profile import Profile
from kernels.contract.upgrade import FORMAT, FORMAT_1, upgrade
from kernels.workload import Ceilings, Config, sentence


class NotAnExport(ValueError):
    """The file is not an exported run. The message says why."""


COMPLETE = ("", "done")
"""States of a run that has ended by itself. Files that name no state come from complete runs."""


class Export(Model):
    """One run with all its results. The file also has a `table` and `partial`, derived from the others and ignored on
    reading."""

    format: Literal["benchsite-run/2"] = FORMAT
    title: str = ""
    config: Config
    measured_at: AwareDatetime
    environment: dict[str, Any] = {}
    fingerprint: str = ""
    preflight: Preflight = Preflight()
    driver: str = ""
    ceilings: Ceilings | None = None
    """Measured by this run, if it calibrated its device."""
    ceilings_refused: str = ""
    """Why its last calibration was refused, if it was."""
    state: str = ""
    """State of the run on its site, or in its terminal: running, done, interrupted, failed, ..."""
    timing: Timing = {}
    """Where the seconds outside the measurements went: see CrossChecked."""
    samples_deleted_at: AwareDatetime | None = None
    """When its site deleted the raw samples; None if it did not."""
    measurements: list[Measured] = []
    profiles: list[Profile] = []
    """Why its kernels are slow, if that was asked for."""

    @property
    def contended(self) -> bool:
        """Whether other processes used the device, as far as the run knows."""
        return bool(self.preflight.others) or any(m.is_contended for m in self.measurements)

    @property
    def progress(self) -> str:
        """ "3 of 8 measured": workloads."""
        keys = {workload.key for workload in self.config.workloads}
        return f"{len(keys & {m.key for m in self.measurements})} of {len(keys)} measured"

    @property
    def partial(self) -> str:
        """What the run lacks, as a sentence without its full stop; empty if it is complete."""
        missing = {workload.key for workload in self.config.workloads} - {m.key for m in self.measurements}
        if missing:
            return self.progress
        return "" if self.state in COMPLETE else "all measured, not cross-checked"

    def with_event(self, event: Event) -> Export:
        """The export with the data of an event added."""
        match event:
            case Started():
                told = ("environment", "fingerprint", "preflight")
                return self.model_copy(update={name: getattr(event, name) for name in told})
            case Calibrated():
                found = {"ceilings": event.ceilings or self.ceilings, "ceilings_refused": event.refused}
                return self.model_copy(update={"driver": event.driver} | found)
            case Measured():
                return self.model_copy(update={"measurements": [*self.measurements, event]})
            case CrossChecked():
                seen = list(event.added_to(self.measurements))
                return self.model_copy(update={"measurements": seen, "timing": event.timing})
            case Tried() | Confirmed():
                return self  # a search has a file of its own: kernels/contract/search.py
            case Examined():
                return self.model_copy(update={"profiles": [*self.profiles, event.profile]})
            case Finished():
                return self.model_copy(update={"state": str(event.state)})

    def as_json(self, table: list[dict[str, Any]]) -> str:
        """Text of the file. table: the results as rows, for example for pandas."""
        body = self.model_dump_json(by_alias=True)
        return f'{body[:-1]},"partial":{json.dumps(self.partial)},"table":{json.dumps(table)}}}'


def read_export(text: str | bytes) -> Export:
    """An export of this version or an earlier one. Raises NotAnExport."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise NotAnExport(f"not JSON: {error}") from None
    return export_of(data)


def export_of(data: Any) -> Export:
    """An export from its parsed JSON. Raises NotAnExport."""
    if not isinstance(data, dict) or data.get("format") not in (FORMAT, FORMAT_1):
        raise NotAnExport(f"not an exported run (expected format {FORMAT} or {FORMAT_1})")
    try:
        return Export.model_validate(upgrade(data))
    except (ValidationError, AttributeError, TypeError) as error:
        why = sentence(error) if isinstance(error, ValidationError) else repr(error)
        raise NotAnExport(f"the file is not valid: {why}") from None

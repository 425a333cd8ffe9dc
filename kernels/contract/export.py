"""A run as a file: what `python -m kernels run --json` and the site write, and both read."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import AwareDatetime, ValidationError

from kernels.contract.events import Calibrated, CrossChecked, Event, Finished, Measured, Model, Preflight, Started
from kernels.contract.upgrade import FORMAT, FORMAT_1, upgrade
from kernels.workload import Ceilings, Config, sentence


class NotAnExport(ValueError):
    """This is no exported run; the message says why."""


class Export(Model):
    """One run with all that it measured. A file has a `table` beside it, which is made of the measurements and not read."""

    format: Literal["benchsite-run/2"] = FORMAT
    title: str = ""
    config: Config
    measured_at: AwareDatetime
    environment: dict[str, Any] = {}
    fingerprint: str = ""
    preflight: Preflight = Preflight()
    driver: str = ""
    ceilings: Ceilings | None = None
    """What the run measured of its device, if it did."""
    state: str = ""
    """Of the run on its site."""
    measurements: list[Measured] = []

    def with_event(self, event: Event) -> Export:
        """The export with what an event tells."""
        match event:
            case Started():
                told = ("environment", "fingerprint", "preflight")
                return self.model_copy(update={name: getattr(event, name) for name in told})
            case Calibrated():
                return self.model_copy(update={"driver": event.driver, "ceilings": event.ceilings})
            case Measured():
                return self.model_copy(update={"measurements": [*self.measurements, event]})
            case CrossChecked():
                return self.model_copy(update={"measurements": list(event.added_to(self.measurements))})
            case Finished():
                return self.model_copy(update={"state": str(event.state)})

    def as_json(self, table: list[dict[str, Any]]) -> str:
        """The file. table: the same as rows, for people who read it with pandas."""
        return json.dumps(self.model_dump(mode="json", by_alias=True) | {"table": table})


def read_export(text: str | bytes) -> Export:
    """An export of this version or an earlier one. Raises NotAnExport."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise NotAnExport(f"it is not JSON: {error}") from None
    if not isinstance(data, dict) or data.get("format") not in (FORMAT, FORMAT_1):
        raise NotAnExport(f"it is not an exported run (of the format {FORMAT} or {FORMAT_1})")
    try:
        return Export.model_validate(upgrade(data))
    except (ValidationError, AttributeError, TypeError) as error:
        why = sentence(error) if isinstance(error, ValidationError) else repr(error)
        raise NotAnExport(f"something is missing in it, or is not what it should be: {why}") from None

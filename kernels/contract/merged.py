"""Several runs in one file, each result at most once: what `python -m kernels merge` writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from kernels.contract.arm_result import ArmResult, Model, Status
from kernels.contract.events import Measured
from kernels.contract.export import Export, NotAnExport, read_export
from kernels.contract.upgrade import upgrade
from kernels.workload import sentence

FORMAT: Literal["benchsite-merged/1"] = "benchsite-merged/1"
Key = tuple[str, str, str, str]
"""Workload, kernel, GPU and fingerprint."""


class Merged(Model):
    """Runs, each with its own device, versions and protocol. A run has only those of its results that no newer run has."""

    format: Literal["benchsite-merged/1"] = FORMAT
    runs: list[Export]

    def as_json(self, table: list[dict[str, Any]]) -> str:
        """Text of the file. table: the results as rows."""
        return f'{self.model_dump_json(by_alias=True)[:-1]},"table":{json.dumps(table)}}}'


@dataclass(frozen=True)
class Dropped:
    """A result that another run has, too."""

    measured: Measured
    arm: ArmResult
    run: Export
    by: Export
    """The run whose result stays."""


def read_runs(text: str | bytes) -> list[Export]:
    """The runs of an exported run or of a merged file. Raises NotAnExport."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise NotAnExport(f"not JSON: {error}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        return [read_export(text)]
    try:
        return Merged.model_validate(data | {"runs": [upgrade(run) for run in data["runs"]]}).runs
    except (ValidationError, AttributeError, KeyError, TypeError) as error:
        why = sentence(error) if isinstance(error, ValidationError) else repr(error)
        raise NotAnExport(f"the file is not valid: {why}") from None


def device_of(run: Export) -> str:
    """The card of a run: its UUID, or its name in older files."""
    return run.environment.get("uuid") or run.environment.get("device", "")


def merge(runs: Sequence[Export]) -> tuple[Merged, list[Dropped]]:
    """One result for each workload, kernel, GPU and fingerprint: the newest. Of equally new ones the later in `runs`.

    A result that was timed, or failed, is never replaced by one that was only checked, or is unsupported. A baseline stays as
    long as a result that was compared with it: no ratio is left without its baseline. A run without a result is left out.
    """
    newest: dict[Key, tuple[tuple[bool, Any, int], Export]] = {}
    for position, run in enumerate(runs):
        for measured in run.measurements:
            for arm in measured.results:
                rank = (_tells(measured, arm), run.measured_at, position)
                key = _key(run, measured, arm)
                if key not in newest or newest[key][0] <= rank:
                    newest[key] = rank, run
    kept, dropped = [], []
    for run in runs:
        measurements = []
        for measured in run.measurements:
            stays = {arm.kernel: newest[_key(run, measured, arm)][1] for arm in measured.results}
            mine = {name for name, of in stays.items() if of is run}
            mine |= {measured.baseline} if mine else set()
            results = [arm for arm in measured.results if arm.kernel in mine]
            gone = [arm for arm in measured.results if arm.kernel not in mine]
            dropped += [Dropped(measured, arm, run, stays[arm.kernel]) for arm in gone]
            if results:
                measurements.append(measured.model_copy(update={"results": results}) if gone else measured)
        if measurements:
            kept.append(run.model_copy(update={"measurements": measurements}))
    return Merged(runs=kept), dropped


def _key(run: Export, measured: Measured, arm: ArmResult) -> Key:
    return measured.key, arm.kernel, device_of(run), run.fingerprint


def _tells(measured: Measured, arm: ArmResult) -> bool:
    return arm.status != Status.UNSUPPORTED and measured.mode != "verify"

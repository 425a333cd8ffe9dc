"""merge: results of several hosts or runs in one file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from kernels.cli.files import replace_file
from kernels.config_files import ConfigError
from kernels.contract.export import Export, NotAnExport
from kernels.contract.merged import Dropped, device_of, merge, read_runs
from kernels.report import tables


def do_merge(arguments: argparse.Namespace) -> int:
    """Writes the merged file, and says on stderr what was dropped."""
    runs: list[Export] = []
    named: dict[int, str] = {}
    for path in arguments.files:
        for run in _runs(path):
            runs.append(run)
            named[id(run)] = path.name
    merged, dropped = merge(runs)
    table = [row for run in merged.runs for row in _records(run)]
    replace_file(arguments.output, merged.as_json(table))
    for one in dropped:
        print(_said(one, named), file=sys.stderr)
    gone = f"{len(dropped)} older or repeated results dropped" if dropped else "nothing dropped"
    print(f"{arguments.output.name}: {len(merged.runs)} runs with {len(table)} results; {gone}")
    return 0


def _runs(path: Path) -> list[Export]:
    try:
        return read_runs(path.read_bytes())
    except NotAnExport as error:
        raise ConfigError(f"{path}: {error}") from None


def _records(run: Export) -> list[dict[str, Any]]:
    """The rows of a run, each with its device and fingerprint."""
    where = {"device": run.environment.get("device", ""), "uuid": device_of(run), "fingerprint": run.fingerprint}
    where |= {"host": run.environment.get("host", ""), "measured_at": run.measured_at.isoformat()}
    return [where | row for row in tables.as_records(tables.rows(run.measurements, run.contended))]


def _said(one: Dropped, named: dict[int, str]) -> str:
    device = one.run.environment.get("device", "an unknown device")
    return (
        f"dropped: {one.arm.kernel} on {one.measured.workload.label}, {device}, of {one.run.measured_at:%Y-%m-%d %H:%M:%S} in "
        f"{named[id(one.run)]}: {named[id(one.by)]} has that of {one.by.measured_at:%Y-%m-%d %H:%M:%S}"
    )

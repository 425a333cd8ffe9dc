"""What a command line chooses: a config with its changes, and the files to write."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kernels import catalog
from kernels.analysis.processes import export_with_process
from kernels.config_files import ConfigError, check_kernels, load_config
from kernels.contract.export import Export, NotAnExport, read_export
from kernels.protocol import EFFORTS
from kernels.report import measures
from kernels.report.measures import Measure
from kernels.sweep import split, with_sizes
from kernels.workload import Config, sentence

PLANS = ("processes", "rest", "warmup", "iters", "flush_l2", "seed", "verify_seeds")
"""Fields of a protocol with a command-line option."""
OF_FIXED = {
    "warmup": "paired has its own warm-up",
    "iters": "paired measures until the interval is narrow",
    "flush_l2": "paired evicts L2 before its timed calls anyway",
}
"""Options that only the protocol fixed reads, and what paired does instead."""


def chosen(arguments: argparse.Namespace, resumed: Config | None = None) -> Config:
    """The requested config with the changes of the command line. resumed: the config of the run to resume, used if no
    other is named."""
    config = resumed if resumed and not arguments.config else load_config(arguments.config)
    values = config.model_dump()
    values |= _with_kernels(config, arguments)
    values["protocol"] |= EFFORTS.get(arguments.effort, {})
    changes = {"name": arguments.protocol, "mode": arguments.mode} | {name: getattr(arguments, name) for name in PLANS}
    values["protocol"] |= {name: value for name, value in changes.items() if value is not None}
    values["protocol"]["verify_only"] |= arguments.verify
    values["protocol"]["isolated"] |= arguments.isolated
    values |= with_sizes(config.name, values["workloads"], arguments.sweep or ())
    try:
        config = Config(**values)
    except ValidationError as error:
        raise ConfigError(sentence(error)) from None
    if config.protocol.name != "fixed" and (
        given := [name for name in OF_FIXED if getattr(arguments, name) is not None]
    ):
        option = f"--{given[0].replace('_', '-')}"
        raise ConfigError(f"{option} is for --protocol fixed; {OF_FIXED[given[0]]}")
    check_kernels(config)
    return config


def _with_kernels(config: Config, arguments: argparse.Namespace) -> dict[str, Any]:
    """{"kernels", "workloads"} of a config with other kernels, and of those only the ones of these backends.

    Of several operations, a name without its operation means every kernel of that name; an operation without any of
    them is left out.
    """
    names, backends = split(arguments.kernels or ""), split(arguments.backends or "")
    known = {info.full_name: info.backend for name in config.operations for info in catalog.kernels(name)}
    if arguments.kernels and not names:
        raise ConfigError("--kernels names no kernel")
    if unknown := [one for one in backends if one not in known.values()]:
        there_are = ", ".join(sorted(set(known.values())))
        raise ConfigError(
            f"no kernel of {', '.join(config.operations)} has the backend '{unknown[0]}'; there are: {there_are}"
        )
    kernels: list[str] = []
    left: list[str] = []
    for operation in config.operations:
        mine = [name.removeprefix(f"{operation}/") for name in names] or config.kernels_of(operation)
        if not config.operation:
            mine = [name for name in mine if f"{operation}/{name}" in known]
        if mine and backends:
            mine = [name for name in mine if known.get(f"{operation}/{name}") in backends] or [
                config.baseline_of(operation)
            ]
        if mine:
            left.append(operation)
            named = dict.fromkeys([config.baseline_of(operation), *mine])
            kernels += [name if config.operation else f"{operation}/{name}" for name in named]
    if not left:
        raise ConfigError(f"{config.name} has no kernel {' or '.join(names)} in any of its operations")
    return {"kernels": kernels, "workloads": [w for w in config.workloads if w.operation in left]}


def columns(arguments: argparse.Namespace) -> list[Measure]:
    """The measures of --columns; none without it."""
    try:
        return measures.chosen([arguments.columns], "") if arguments.columns else []
    except measures.UnknownMeasure as error:
        raise ConfigError(str(error)) from None


def outputs(arguments: argparse.Namespace) -> dict[str, Path]:
    """Output files: {"json" | "csv" | "jsonl" | "md": path}. A resumed run continues its own file, if no other is named.

    Raises ConfigError now, not after measuring.
    """
    paths = {name: path for name in ("json", "csv", "jsonl") if (path := getattr(arguments, name))}
    if folder := arguments.output_dir:
        folder.mkdir(parents=True, exist_ok=True)
        paths = {"json": folder / "run.json", "csv": folder / "table.csv", "md": folder / "table.md"} | paths
    if arguments.resume:
        paths = {"json": arguments.resume} | paths
    if arguments.format and "jsonl" not in paths:
        raise ConfigError(f"--format {arguments.format} needs --jsonl FILE")
    for path in paths.values():
        if not path.parent.is_dir():
            raise ConfigError(f"there is no folder {path.parent} to write {path.name} in")
        if path.is_dir():
            raise ConfigError(f"{path} is a folder, not a file")
    return paths


def exported(path: Path) -> Export:
    """Reads an export of `run --json` or of the site. Intervals of older ones get the spread between processes."""
    try:
        return export_with_process(read_export(path.read_bytes()))
    except NotAnExport as error:
        raise ConfigError(f"{path}: {error}") from None

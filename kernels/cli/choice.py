"""What a command line chooses: a config with its changes, and the files to write."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kernels import catalog
from kernels.analysis.processes import with_process
from kernels.contract.export import Export, NotAnExport, read_export
from kernels.workload import EFFORTS, Config, ConfigError, check_kernels, load_config, sentence

PLANS = ("processes", "rest", "warmup", "iters")
"""Protocol numbers with a command-line option."""


def chosen(arguments: argparse.Namespace, resumed: Config | None = None) -> Config:
    """The requested config with the changes of the command line. resumed: the config of the run to resume, used if no
    other is named."""
    config = resumed if resumed and not arguments.config else load_config(arguments.config)
    values = config.model_dump()
    if arguments.kernels:
        values["kernels"] = split(arguments.kernels)
    if arguments.backends:
        backends = {info.name: info.backend for info in catalog.kernels(config.operation)}
        if unknown := [one for one in split(arguments.backends) if one not in backends.values()]:
            known = ", ".join(sorted(set(backends.values())))
            raise ConfigError(f"no kernel of {config.operation} has the backend '{unknown[0]}'; there are: {known}")
        values["kernels"] = [name for name in values["kernels"] if backends.get(name) in split(arguments.backends)]
        values["kernels"] = values["kernels"] or [config.baseline]
    values["protocol"] |= EFFORTS.get(arguments.effort, {})
    changes = {"name": arguments.protocol, "mode": arguments.mode} | {name: getattr(arguments, name) for name in PLANS}
    values["protocol"] |= {name: value for name, value in changes.items() if value is not None}
    values["protocol"]["verify_only"] = arguments.verify or (config is resumed and config.protocol.verify_only)
    values["protocol"]["isolated"] |= arguments.isolated
    if arguments.sweep:
        values["workloads"] = [w.brief_sizes | {"dtype": w.dtype} | swept(arguments.sweep) for w in config.workloads]
        values["title"] = f"{config.name}, {', '.join(arguments.sweep)}"  # its own title names other sizes
    try:
        config = Config(**values)
    except ValidationError as error:
        raise ConfigError(sentence(error)) from None
    check_kernels(config)
    return config


def split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def swept(sweeps: list[str]) -> dict[str, list[Any]]:
    """["seq_len=512,1024"] -> {"seq_len": [512, 1024]}"""
    found: dict[str, list[Any]] = {}
    for text in sweeps:
        name, _, values = text.partition("=")
        if not values:
            raise ConfigError(f"--sweep wants SIZE=A,B, such as seq_len=512,1024, not '{text}'")
        found[name.strip()] = [
            int(v) if v.isdecimal() else {"true": True, "false": False}.get(v, v) for v in split(values)
        ]
    return found


def outputs(arguments: argparse.Namespace) -> dict[str, Path]:
    """Output files: {"json" | "csv" | "md": path}. A resumed run continues its own file, if no other is named.

    Raises ConfigError now, not after measuring.
    """
    paths = {name: path for name in ("json", "csv") if (path := getattr(arguments, name))}
    if folder := arguments.output_dir:
        folder.mkdir(parents=True, exist_ok=True)
        paths = {"json": folder / "run.json", "csv": folder / "table.csv", "md": folder / "table.md"} | paths
    if arguments.resume:
        paths = {"json": arguments.resume} | paths
    for path in paths.values():
        if not path.parent.is_dir():
            raise ConfigError(f"there is no folder {path.parent} to write {path.name} in")
        if path.is_dir():
            raise ConfigError(f"{path} is a folder, not a file")
    return paths


def exported(path: Path) -> Export:
    """Reads an export of `run --json` or of the site. Intervals of older ones get the spread between processes."""
    try:
        export = read_export(path.read_bytes())
    except NotAnExport as error:
        raise ConfigError(f"{path}: {error}") from None
    device = export.environment.get("device", "")
    return export.model_copy(update={"measurements": [with_process(m, device) for m in export.measurements]})

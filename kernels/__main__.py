"""python -m kernels: the library without the site.

Exit codes: 0: every result ok or unsupported; 1: a result is not ok; 2: the command failed; 130: interrupted.
`judge`: 1 unless the claim is plausible. `calibrate`: 1 if the device was busy. `compare`: 1 if a kernel is slower or
not ok; 2 if the runs cannot be compared.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kernels import catalog
from kernels.analysis import claims
from kernels.analysis.peaks import PEAKS, peak_of
from kernels.contract.environment import fingerprint
from kernels.contract.events import Event
from kernels.contract.export import Export, NotAnExport, read_export
from kernels.host import telemetry
from kernels.host.device import WAITS, NoSuchDevice, devices, find_device, locked, print_changes
from kernels.host.environment import commit
from kernels.parent.calibration import calibrate
from kernels.parent.child_process import Cancelled, Child, ChildDied
from kernels.parent.supervisor import Supervisor
from kernels.report import comparison, tables
from kernels.report.summary import summary
from kernels.workload import Ceilings, Config, ConfigError, RunSpec, Workload, check_kernels, load_config, sentence

PLANS = ("rest", "warmup", "iters")
"""Protocol numbers with a command-line option."""
BAR = 24
"""Width of the progress bar in characters."""


def main(argv: list[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    try:
        return arguments.do(arguments)
    except (ConfigError, NoSuchDevice, catalog.UnknownName, ChildDied, OSError) as error:
        print(f"kernels: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, Cancelled):
        print("interrupted", file=sys.stderr)
        return 130


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m kernels",
        description="Measure GPU kernels, without the site.",
        epilog="exit codes: 0 every result ok or unsupported here, 1 a result is not ok (judge: the claim is not plausible; "
        "calibrate: the device was busy; compare: something is slower), 2 the command could not be done, 130 interrupted",
    )
    commands = top.add_subparsers(required=True, metavar="list | env | run | check | compare | calibrate | judge")
    listing = commands.add_parser("list", help="list kernels, and why some cannot run here")
    listing.add_argument("--json", action="store_true", help="as JSON")
    listing.add_argument("--device", help="cuda:0, cpu or a UUID (default: the first GPU, else the CPU)")
    listing.set_defaults(do=do_list)
    env = commands.add_parser("env", help="this host's devices and the environment of one")
    env.add_argument("--device")
    env.set_defaults(do=do_env)
    calibrating = commands.add_parser(
        "calibrate", help="measure a device's ceilings: copy, matrix products, empty kernel"
    )
    calibrating.add_argument("--device", help="cuda:0, cpu or a UUID (default: the first GPU, else the CPU)")
    calibrating.add_argument("--json", action="store_true", help="as JSON")
    calibrating.set_defaults(do=do_calibrate)
    judging = commands.add_parser("judge", help="is a claimed time or rate possible on a GPU?")
    judging.add_argument("operation", help="attention, gemm, ...")
    judging.add_argument(
        "sizes", nargs="+", metavar="SIZE=N", help="such as batch=16 seq_len=4096 causal=true dtype=float16"
    )
    judging.add_argument("--ms", type=float, help="the time of one call in milliseconds")
    judging.add_argument("--tflops", type=float, help="the rate, instead of the time or beside it")
    judging.add_argument("--gpu", required=True, help="the GPU's name as its driver gives it, such as 'NVIDIA H200'")
    judging.set_defaults(do=do_judge)
    comparing = commands.add_parser("compare", help="compare two runs on one device")
    comparing.add_argument("before", type=Path, help="an export of `run --json` or of the site")
    comparing.add_argument("after", type=Path, help="an export of a later run")
    comparing.add_argument("--csv", metavar="FILE", type=Path, help="write the table to FILE")
    comparing.add_argument("--md", metavar="FILE", type=Path, help="write the table to FILE, as Markdown")
    comparing.set_defaults(do=do_compare)
    run = commands.add_parser("run", help="measure a config and print the table")
    check = commands.add_parser("check", help="check a config's kernels for correctness, without timing them")
    for command in (run, check):
        command.add_argument("config", help="a name in kernels/configs/, or the path of a .yaml file")
        command.add_argument("--device", help="cuda:0, cpu or a UUID (default: the first GPU, else the CPU)")
        command.add_argument("--kernels", help="names separated by commas, instead of the config's")
        command.add_argument(
            "--backends", help="only kernels of these backends, separated by commas; the baseline stays"
        )
        command.add_argument(
            "--sweep",
            action="append",
            default=[],
            metavar="SIZE=A,B",
            help="sizes instead of the config's; every combination runs",
        )
        command.add_argument("--json", metavar="FILE", type=Path, help="write everything that was measured to FILE")
        command.add_argument("--csv", metavar="FILE", type=Path, help="write the table to FILE")
        command.add_argument(
            "--output-dir", metavar="DIR", type=Path, help="write run.json, table.csv and table.md there"
        )
        command.set_defaults(do=do_run, verify=command is check, protocol=None, mode=None, **dict.fromkeys(PLANS))
    run.add_argument("--verify", action="store_true", help="check correctness only (same as `check`)")
    run.add_argument("--protocol", choices=("paired", "fixed"), help="instead of the config's")
    run.add_argument(
        "--mode", choices=("auto", "cold", "graph", "warm", "sustained", "e2e"), help="instead of the config's"
    )
    run.add_argument(
        "--rest", type=float, help="rest before each block, as a multiple of the block's length (default 1; 0: never)"
    )
    run.add_argument("--warmup", type=int, help="untimed calls of the protocol fixed (200)")
    run.add_argument("--iters", type=int, help="timed calls of the protocol fixed (500)")
    return top


def do_list(arguments: argparse.Namespace) -> int:
    device = find_device(arguments.device)
    known = catalog.kernels()
    if arguments.json:
        print(
            json.dumps(
                [k.as_json() | {"why_not": k.why_not_on(device.kind, device.capability)} for k in known], indent=1
            )
        )
        return 0
    print(f"kernels for {device.name} ({device.label}):")
    for info in known:
        mark = " (baseline)" if info.name == catalog.get_operation(info.operation).baseline else ""
        why = info.why_not_on(device.kind, device.capability)
        print(f"  {info.full_name + mark:36} {info.backend:10} {info.doc}{f'  [{why}]' if why else ''}")
    return 0


def do_env(arguments: argparse.Namespace) -> int:
    device = find_device(arguments.device)
    child = Child(device)
    try:
        found = child.wait_ready() | {"driver": device.driver, "commit": commit(), "max_sm_mhz": device.max_sm_mhz}
    finally:
        child.close()
    listed = [d.as_json() for d in devices()]
    print(json.dumps({"devices": listed, "environment": found, "fingerprint": fingerprint(found)}, indent=1))
    return 0


def chosen(arguments: argparse.Namespace) -> Config:
    """The requested config with the changes of the command line."""
    config = load_config(arguments.config)
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
    changes = {"name": arguments.protocol, "mode": arguments.mode} | {name: getattr(arguments, name) for name in PLANS}
    values["protocol"] |= {name: value for name, value in changes.items() if value is not None}
    values["protocol"]["verify_only"] = arguments.verify
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


def do_calibrate(arguments: argparse.Namespace) -> int:
    """Measures a device's ceilings and prints them with their intervals; 1 if the device was busy."""
    device = find_device(arguments.device)
    child = Child(device)
    try:
        child.wait_ready()
        with locked(device, on_wait=print_changes()), telemetry.watching(device) as watch:
            event = calibrate(child, device, watch)
    finally:
        child.close()
    found = event.ceilings
    if arguments.json:
        known = {"device": device.name, "uuid": device.uuid, "driver": device.driver, "refused": event.refused}
        print(json.dumps(known | {"ceilings": found.model_dump() if found else None}, indent=1))
    elif found is None:
        print(f"{device.name}: refused, {event.refused}; try again when it is quiet")
    else:
        print(f"{device.name}, medians with 99% intervals")
        print("\n".join(f"  {line}" for line in aligned(ceilings_table(found))))
    return 0 if found else 1


def ceilings_table(found: Ceilings) -> list[list[str]]:
    figures = [
        ("copy", found.copy_gb_per_s, "copy_gb_per_s", "GB/s", "read and written bytes together"),
        ("read", found.read_gb_per_s, "read_gb_per_s", "GB/s", ""),
        *(("matmul", rate, dtype, "TFLOP/s", dtype) for dtype, rate in found.matmul_tflops.items()),
        *(("empty", us, mode, "us", mode) for mode, us in found.empty_us.items()),
    ]
    return [
        [what, f"{value:.4g} {unit}", "{:.4g} to {:.4g}".format(*found.intervals[key]), more]
        for what, value, key, unit, more in figures
    ]


def do_judge(arguments: argparse.Namespace) -> int:
    """Judges a claimed time or rate, and prints the arithmetic."""
    claim = claimed(arguments)
    found = claims.judge(claim)
    print(f"{claim.workload.label} on {claim.peak.model}: {found.word}")
    print(f"{found.why}\n")
    for line in aligned([[step.what, step.result, step.arithmetic, step.source] for step in found.steps]):
        print(f"  {line}")
    for note in found.notes:
        print(f"  {note}")
    return 0 if found.stands else 1


def aligned(table: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


def claimed(arguments: argparse.Namespace) -> claims.Claim:
    """The claim of the command line. Raises ConfigError."""
    peak = peak_of(arguments.gpu)
    if peak is None:
        known = ", ".join(name for p in PEAKS for name in p.names)
        raise ConfigError(f"no peak is known for a GPU named '{arguments.gpu}'; there are: {known}")
    if arguments.ms is None and arguments.tflops is None:
        raise ConfigError("judge wants --ms or --tflops")
    for option, value in (("--ms", arguments.ms), ("--tflops", arguments.tflops)):
        if value is not None and not 0 < value < math.inf:
            raise ConfigError(f"{option} wants a number above 0, not {value:g}")
    given = swept(arguments.sizes)
    if several := [name for name, values in given.items() if len(values) > 1]:
        raise ConfigError(f"{several[0]} has several values; give one workload")
    sizes = {name: values[0] for name, values in given.items()}
    dtype = str(sizes.pop("dtype", "float16"))
    try:
        workload = Workload(operation=arguments.operation, dtype=dtype, sizes=sizes)
    except ValidationError as error:
        raise ConfigError(sentence(error)) from None
    return claims.Claim(workload, peak, arguments.ms, arguments.tflops)


def do_compare(arguments: argparse.Namespace) -> int:
    before, after = exported(arguments.before), exported(arguments.after)
    if why := comparison.why_not(before, after):
        raise ConfigError(f"these runs cannot be compared. {why}")
    table = comparison.rows(before, after)
    print(comparison.as_text(table))
    print(f"\n{comparison.summary(table)}")
    if arguments.csv:
        arguments.csv.write_text(comparison.as_csv(table))
    if arguments.md:
        heading = tables.heading(f"{arguments.before.name} to {arguments.after.name}", after.environment)
        arguments.md.write_text(comparison.as_markdown(table, heading))
    return 1 if comparison.worse(table) else 0


def exported(path: Path) -> Export:
    """Reads an export of `run --json` or of the site."""
    try:
        return read_export(path.read_bytes())
    except NotAnExport as error:
        raise ConfigError(f"{path}: {error}") from None


def outputs(arguments: argparse.Namespace) -> dict[str, Path]:
    """Output files: {"json" | "csv" | "md": path}. Raises ConfigError now, not after measuring."""
    paths = {name: path for name in ("json", "csv") if (path := getattr(arguments, name))}
    if folder := arguments.output_dir:
        folder.mkdir(parents=True, exist_ok=True)
        paths = {"json": folder / "run.json", "csv": folder / "table.csv", "md": folder / "table.md"} | paths
    for path in paths.values():
        if not path.parent.is_dir():
            raise ConfigError(f"there is no folder {path.parent} to write {path.name} in")
    return paths


def do_run(arguments: argparse.Namespace) -> int:
    config, device = chosen(arguments), find_device(arguments.device)
    paths, collected = outputs(arguments), Collector(config, device.name)
    supervisor = Supervisor(RunSpec.of(config, device.uuid), device, collected.emit, collected.live)
    try:
        supervisor.run()
    finally:
        collected.clear()
        table = tables.rows(collected.export.measurements)
        if table:
            collected.write(paths, table)
    print(tables.as_text(table))
    print(f"\n{summary(table, config.operation)}")
    return 1 if tables.failures(table) else 0


class Collector:
    """Collects a supervisor's events into an export."""

    def __init__(self, config: Config, device_name: str) -> None:
        title = config.title or config.name
        self.export = Export(title=title, config=config, measured_at=datetime.now(UTC).replace(microsecond=0))
        self.has_said_wait = False
        print(f"{title} on {device_name}", file=sys.stderr)

    def emit(self, event: Event) -> None:
        self.export = self.export.with_event(event)

    def live(self, state: dict[str, Any]) -> None:
        if sys.stderr.isatty():
            done, total = state["position"], state["total"]
            bar = "#" * round(BAR * done / total)
            what = f"{state['kernel']} on {state['workload']}: {state['step']}" if state["kernel"] else state["step"]
            text = f"[{bar:.<{BAR}}] {done + 1} of {total}, {what}"
            print(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}", end="", file=sys.stderr, flush=True)
        elif state["step"].startswith(WAITS) and not self.has_said_wait:
            self.has_said_wait = True
            print(state["step"], file=sys.stderr, flush=True)

    def write(self, paths: dict[str, Path], table: list[tables.Row]) -> None:
        """Writes the results so far, also of an interrupted run."""
        heading = tables.heading(self.export.title, self.export.environment)
        content = {
            "json": lambda: self.export.as_json(table=tables.as_records(table)),
            "csv": lambda: tables.as_csv(tables.as_records(table)),
            "md": lambda: tables.as_markdown(table, heading),
        }
        for name, path in paths.items():
            path.write_text(content[name]())

    def clear(self) -> None:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())

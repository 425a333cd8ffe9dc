"""run, check: measures a config in this terminal."""

from __future__ import annotations

import argparse
import os
import shlex
import sys

from kernels.catalog import PROBLEM
from kernels.cli import resume
from kernels.cli.choice import chosen, columns, exported, outputs
from kernels.cli.collector import DONE, FAILED, INTERRUPTED, Collector
from kernels.cli.dry import plan
from kernels.cli.files import is_replaceable
from kernels.cli.profile import examined
from kernels.cli.progress import Progress
from kernels.cli.stop import Stop
from kernels.config_files import ConfigError
from kernels.contract.arm_result import Status
from kernels.contract.events import Examined
from kernels.host.device import Device, find_device
from kernels.parent.child_process import Cancelled
from kernels.parent.supervisor import Supervisor, WrongEnvironment
from kernels.profiling.examine import LIMIT_S
from kernels.profiling.process import Launcher
from kernels.report import tables, timing
from kernels.report.summary import as_text

NO_ODD_SIZES = "Isolated, only the sizes of the workloads were checked, no odd ones."


def do_run(arguments: argparse.Namespace, stop: Stop) -> int:
    """Measures, prints the table, writes the files. What was measured before an end of any kind is kept."""
    before = exported(arguments.resume) if arguments.resume else None
    config = chosen(arguments, before.config if before else None)
    if arguments.format and config.protocol.verify_only:
        raise ConfigError(f"--format {arguments.format} writes timed results only, and this run only checks")
    device = find_device(arguments.device or (before.environment.get("uuid") if before else None))
    if before:
        resume.check(before, config, device)
    if arguments.dry_run and before:
        raise ConfigError("--dry-run is of a whole config: leave --resume out")
    if arguments.dry_run:
        print("\n".join([f"{config.title or config.name} on {device.name}", *plan(config, device)]))
        return 0
    paths, progress = outputs(arguments), Progress()
    progress.say(f"{config.title or config.name} on {device.name}")
    collected = Collector(config, paths, progress, before, columns(arguments), arguments.format)
    if before and not before.partial:
        progress.say(f"{arguments.resume} is complete: nothing is left to measure")
        collected.finish(before.state, {})
        _show(collected, arguments.timing)
        return _status(collected)
    spec = resume.spec_of(config, device, before)
    supervisor = Supervisor(spec, device, collected.emit, progress.live, stop, before=resume.statuses(before))
    state = FAILED
    try:
        supervisor.run()
        state = DONE
    except Cancelled:
        state = INTERRUPTED
    except WrongEnvironment as error:
        raise ConfigError(resume.why_another(before, error)) from None
    finally:
        collected.finish(state, supervisor.outside)
        if state == INTERRUPTED:
            progress.say(_ended(collected, stop))
        if collected.has_news:
            _show(collected, arguments.timing)
    if arguments.profile and state == DONE:
        _profile(collected, device, stop)
    if collected.trouble:
        raise collected.trouble
    return stop.status if state == INTERRUPTED else _status(collected)


def _ended(collected: Collector, stop: Stop) -> str:
    """What an interrupted run leaves, and how it continues."""
    who = stop.signal.name if stop.signal else "a signal"
    said = f"ended by {who}: {collected.export.progress}"
    if collected.table and (path := collected.paths.get("json")) and is_replaceable(path):
        return f"{said}, in {path}. The rest: python -m kernels run --resume {shlex.quote(str(path))}"
    return said


def _show(collected: Collector, with_timing: bool) -> None:
    """Prints the table, and on request where the seconds went. If nobody reads it any more, the files remain."""
    table, export = collected.table, collected.export
    protocol, operations = export.config.protocol, export.config.operations
    only = protocol.isolated and protocol.verify_only and operations != [PROBLEM]
    said = [f"{export.partial}." if export.partial else "", as_text(table, export.contended), NO_ODD_SIZES * only]
    try:
        print(tables.as_text(table, collected.lines))
        print(f"\n{' '.join(filter(None, said))}", flush=True)
        if with_timing:
            print(f"\n{timing.as_text(timing.spent(export.measurements, export.timing))}", flush=True)
    except OSError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (else Python fails again when it exits)


def _profile(collected: Collector, device: Device, stop: Stop) -> None:
    """Profiles what was measured and is ok, now that nothing is timed any more; prints it, and adds it to the files."""
    config = collected.export.config
    timed = {(m.key, arm.kernel) for m in collected.export.measurements for arm in m.results if arm.status == Status.OK}
    launcher = Launcher(device, LIMIT_S, stop, isolated=config.protocol.isolated)
    for one in examined(launcher, config, lambda workload, kernel: (workload.key, kernel) in timed):
        collected.emit(Examined(profile=one))
    collected.write()


def _status(collected: Collector) -> int:
    return 1 if tables.failures(collected.table) else 0

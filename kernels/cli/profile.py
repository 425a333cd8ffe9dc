"""`python -m kernels profile KERNEL... --config C`: why kernels are slow, by ncu and PyTorch's profiler."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kernels.cli.files import replace_file
from kernels.cli.progress import Progress
from kernels.cli.stop import Stop
from kernels.config_files import ConfigError, check_kernels, load_config
from kernels.contract.profile import Profile
from kernels.host.device import Device, find_device, locked, print_changes
from kernels.parent.child_process import Cancelled
from kernels.profiling.examine import LIMIT_S, profiles
from kernels.profiling.process import Launcher
from kernels.report.profiles import as_text
from kernels.workload import Choice, Config, Workload

FORMAT = "benchsite-profiles/1"


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("kernels", nargs="+", metavar="KERNEL", help="names of kernels of the config")
    command.add_argument("--config", required=True, help="a name in kernels/configs/, or the path of a .yaml file")
    command.add_argument("--workload", type=int, metavar="N", help="only the config's workload number N, from 1")
    command.add_argument("--device", help="cuda:0, cpu or a UUID (default: the first GPU, else the CPU)")
    command.add_argument(
        "--limit", type=float, default=LIMIT_S, metavar="S", help=f"seconds for each profiler of a kernel ({LIMIT_S:g})"
    )
    command.add_argument("--isolated", action="store_true", help="for untrusted kernels: see `run --isolated`")
    command.add_argument(
        "--out", metavar="FILE", type=Path, help="write figures and traces to FILE after each kernel, as JSON"
    )
    command.set_defaults(do=do_profile)


def do_profile(arguments: argparse.Namespace, stop: Stop) -> int:
    """Profiles kernels, prints what limits each, and writes the figures after each. Returns 0 if all that run here ran."""
    config = load_config(arguments.config)
    check_kernels(config)
    choice, device = _chosen(config, arguments.kernels, arguments.workload), find_device(arguments.device)
    launcher = Launcher(device, arguments.limit, stop, isolated=arguments.isolated or config.protocol.isolated)

    def keep(so_far: list[Profile]) -> None:
        if arguments.out:
            write(arguments.out, device, so_far)

    found = examined(launcher, choice, keep=keep)
    if stop():
        raise Cancelled
    return 0 if all(one.timeline or one.unsupported for one in found) else 1


def examined(
    launcher: Launcher,
    choice: Choice,
    wanted: Any = lambda workload, kernel: True,
    keep: Callable[[list[Profile]], None] = lambda so_far: None,
) -> list[Profile]:
    """Profiles the kernels of a choice and prints each. It waits for the device, as a measurement does.

    keep: called after each with all that were profiled so far.
    """
    progress, found = Progress(), []
    labels = {workload.key: workload.label for workload in choice.workloads}
    try:
        with locked(launcher.device, launcher.should_stop, print_changes()):
            for one in profiles(launcher, choice, wanted, lambda workload, name: progress.say(_what(workload, name))):
                found.append(one)
                print("\n".join([f"{one.kernel} on {labels[one.key]}", *as_text(one), ""]), flush=True)
                keep(found)
    except InterruptedError:
        raise Cancelled from None
    return found


def _what(workload: Workload, kernel: str) -> str:
    return f"profiling {kernel} on {workload.label}"


def write(path: Path, device: Device, found: Iterable[Profile]) -> None:
    body = {"format": FORMAT, "device": device.name, "driver": device.driver}
    listed = [one.model_dump(mode="json") for one in found]
    replace_file(path, json.dumps(body | {"profiles": listed}, indent=1) + "\n")


def _chosen(config: Config, kernels: list[str], workload: int | None) -> Choice:
    """These kernels on the config's workloads, or on one of them: the first is number 1."""
    if workload is not None and not 1 <= workload <= len(config.workloads):
        raise ConfigError(
            f"{config.name} has {len(config.workloads)} workloads; use --workload 1 to {len(config.workloads)}"
        )
    left = config.workloads if workload is None else [config.workloads[workload - 1]]
    known = {name for one in left for name in config.kernels_of(one.operation)}
    names = [name.rpartition("/")[2] for name in kernels]
    if missing := [name for name in names if name not in known]:
        raise ConfigError(f"{config.name} has no kernel {missing[0]} there; there are: {', '.join(sorted(known))}")
    kept = [name for name in config.kernels if name.rpartition("/")[2] in names]
    return Choice(operation=config.operation, kernels=kept, baseline=config.baseline, workloads=left)

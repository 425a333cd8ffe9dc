"""The commands and their options."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from kernels import catalog
from kernels.cli import client, options
from kernels.cli.choice import PLANS
from kernels.cli.describe import do_calibrate, do_env, do_list
from kernels.cli.gate import do_gate
from kernels.cli.judge import do_compare, do_judge
from kernels.cli.merge import do_merge
from kernels.cli.profile import add_options, do_profile
from kernels.cli.run import do_run
from kernels.cli.stop import Stop
from kernels.cli.trying import do_try
from kernels.cli.tune import do_tune, tune_options
from kernels.config_files import ConfigError
from kernels.host.device import NoSuchDevice
from kernels.parent.child_process import Cancelled, ChildDied


def main(argv: list[str] | None = None) -> int:
    """Does a command. Returns its exit status: see kernels/__main__.py."""
    given = sys.argv[1:] if argv is None else argv
    if given[:1] and given[0] in client.COMMANDS:
        return client.main(given)
    top = parser()
    arguments = top.parse_args(given)
    if "resume" in arguments and arguments.do is not do_tune and not (arguments.config or arguments.resume):
        top.error("name a config, or a run to continue: --resume FILE")
    try:
        status = _measuring(arguments) if arguments.do in MEASURING else arguments.do(arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        return client.closed()
    except (ConfigError, NoSuchDevice, catalog.UnknownName, ChildDied, OSError) as error:
        print(f"kernels: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


MEASURING = (do_env, do_calibrate, do_run, do_try, do_tune, do_profile)
"""Commands that start a measuring process: a signal must end it, too."""


def _measuring(arguments: argparse.Namespace) -> int:
    with Stop() as stop:
        try:
            return arguments.do(arguments, stop)
        except Cancelled:
            print("interrupted", file=sys.stderr)
            return stop.status


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m kernels",
        description="Measure GPU kernels, without the site.",
        epilog="exit codes: 0 every result ok or unsupported here, 1 a result is not ok (judge: the claim is not plausible; "
        "calibrate: the device was busy; compare: something is slower; gate: slower than allowed, or not ok), "
        "2 the command failed (gate: cannot tell), "
        "128 + N ended by signal N (130 SIGINT, 143 SIGTERM). "
        "submit, runs and login need a site: `python -m kernels submit --help`",
    )
    listed = (
        "list | env | run | check | try | tune | profile | compare | merge | gate | calibrate | judge | "
        "submit | runs | login"
    )
    commands = top.add_subparsers(required=True, metavar=listed)

    def command(name: str, do: Callable[..., int], what: str, **more: Any) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=what, **more)
        one.set_defaults(do=do)
        return one

    options.list_options(command("list", do_list, "list kernels, and why some cannot run here"))
    options.env_options(command("env", do_env, "this host's devices and the environment of one"))
    options.calibrate_options(
        command("calibrate", do_calibrate, "measure a device's ceilings: copy, matrix products, empty kernel")
    )
    options.judge_options(command("judge", do_judge, "is a claimed time or rate possible on a GPU?"))
    options.compare_options(command("compare", do_compare, "compare two runs on one device"))
    gating = "fail if a run is slower than allowed; of files, and of runs of a site"
    client.gate_options(command("gate", do_gate, gating, parents=[client.site_option()]))
    options.merge_options(command("merge", do_merge, "results of several hosts or runs in one file"))
    trying = "check which kernels of a folder load, run and are correct here; detects their format"
    options.try_options(command("try", do_try, trying))
    tune_options(command("tune", do_tune, "find the settings of a kernel that are best on this card"))
    add_options(command("profile", do_profile, "why kernels are slow: hardware counters and a timeline"))
    run = command("run", do_run, "measure a config and print the table")
    check = command("check", do_run, "check a config's kernels for correctness, without timing them")
    for one in (run, check):
        options.config_options(one)
        one.set_defaults(
            verify=one is check, protocol=None, mode=None, effort=None, isolated=False, profile=False, **dict.fromkeys(PLANS)
        )  # fmt: skip
        options.check_options(one)
    options.run_options(run)
    return top

"""The commands and their options."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kernels import catalog
from kernels.cli import client
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
from kernels.protocol import EFFORTS
from kernels.report.formats import FORMATS
from kernels.report.measures import BY_KEY


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
        return _measuring(arguments) if arguments.do in MEASURING else arguments.do(arguments)
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
    listing = commands.add_parser("list", help="list kernels, and why some cannot run here")
    listing.add_argument("--json", action="store_true", help="as JSON")
    listing.add_argument("--device", help="cuda:0, cpu or a UUID (default: the first GPU, else the CPU)")
    listing.set_defaults(do=do_list)
    env = commands.add_parser("env", help="this host's devices and the environment of one")
    env.add_argument("--device")
    env.set_defaults(do=do_env)
    ceilings = commands.add_parser("calibrate", help="measure a device's ceilings: copy, matrix products, empty kernel")
    ceilings.add_argument("--device", help="cuda:0, cpu or a UUID (default: the first GPU, else the CPU)")
    ceilings.add_argument("--json", action="store_true", help="as JSON")
    ceilings.set_defaults(do=do_calibrate)
    judging = commands.add_parser("judge", help="is a claimed time or rate possible on a GPU?")
    judging.add_argument("operation", help="attention, gemm, ...")
    judging.add_argument(
        "sizes", nargs="+", metavar="SIZE=N", help="such as batch=16 seq_len=4096 causal=true dtype=float16"
    )
    judging.add_argument("--ms", type=float, help="the time of one call in milliseconds")
    judging.add_argument("--tflops", type=float, help="the rate, instead of the time or in addition to it")
    judging.add_argument("--gpu", required=True, help="the GPU's name as its driver gives it, such as 'NVIDIA H200'")
    judging.set_defaults(do=do_judge)
    comparing = commands.add_parser("compare", help="compare two runs on one device")
    comparing.add_argument("before", type=Path, help="an export of `run --json` or of the site")
    comparing.add_argument("after", type=Path, help="an export of a later run")
    comparing.add_argument("--csv", metavar="FILE", type=Path, help="write the table to FILE")
    comparing.add_argument("--md", metavar="FILE", type=Path, help="write the table to FILE, as Markdown")
    comparing.set_defaults(do=do_compare)
    gating = commands.add_parser(
        "gate",
        parents=[client.site_option()],
        help="fail if a run is slower than allowed; of files, and of runs of a site",
    )
    client.gate_options(gating)
    gating.set_defaults(do=do_gate)
    merging = commands.add_parser("merge", help="results of several hosts or runs in one file")
    merging.add_argument("files", nargs="+", type=Path, metavar="FILE", help="exports of runs, or merged files")
    merging.add_argument("-o", "--output", required=True, type=Path, metavar="FILE", help="where the result is written")
    merging.set_defaults(do=do_merge)
    trying = commands.add_parser(
        "try", help="check which kernels of a folder load, run and are correct here; detects their format"
    )
    trying.add_argument("folder", type=Path, help="a folder, such as a clone, or one file")
    trying.add_argument("--device", help="cuda:0, cpu or a UUID (default: the first GPU, else the CPU)")
    trying.add_argument("--limit", type=float, default=120.0, metavar="S", help="seconds for each kernel (120)")
    trying.add_argument("--jobs", type=int, default=2, metavar="N", help="kernels that are tried at once (2)")
    trying.add_argument(
        "--time",
        action="store_true",
        help="also time each correct kernel against its reference: KernelBench's Model, GPU MODE's ref_kernel, "
        "flashinfer's reference; one kernel after the other",
    )
    trying.add_argument("--json", metavar="FILE", type=Path, help="write the result of each kernel to FILE")
    trying.set_defaults(do=do_try)
    tuning = commands.add_parser("tune", help="find the settings of a kernel that are best on this card")
    tune_options(tuning)
    tuning.set_defaults(do=do_tune)
    add_options(commands.add_parser("profile", help="why kernels are slow: hardware counters and a timeline"))
    run = commands.add_parser("run", help="measure a config and print the table")
    check = commands.add_parser("check", help="check a config's kernels for correctness, without timing them")
    for command in (run, check):
        command.add_argument(
            "config",
            nargs="?",
            help="a name in kernels/configs/, or the path of a .yaml file; not needed with --resume",
        )
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
        command.add_argument("--json", metavar="FILE", type=Path, help="write everything to FILE, after each workload")
        command.add_argument("--csv", metavar="FILE", type=Path, help="write the table to FILE")
        command.add_argument("--jsonl", metavar="FILE", type=Path, help="write the results to FILE, one a line")
        command.add_argument(
            "--format",
            choices=FORMATS,
            default="",
            help="rows of --jsonl as other benchmarks write them: sizes in problem_size (nested) or beside the time (flat)",
        )
        command.add_argument(
            "--columns",
            metavar="A,B",
            help="these measures instead of the usual ones, in the table and in every file but --json, and --jsonl with "
            f"--format; all, or some of: {', '.join(BY_KEY)}",
        )
        command.add_argument(
            "--output-dir", metavar="DIR", type=Path, help="write run.json, table.csv and table.md there"
        )
        command.add_argument(
            "--resume",
            metavar="FILE",
            type=Path,
            help="continue the run in FILE (written by --json): measure what is missing and add it to FILE; needs the "
            "same fingerprint and sources",
        )
        command.add_argument(
            "--dry-run",
            action="store_true",
            help="print the workloads, what cannot run and how long it takes; measure nothing",
        )
        command.add_argument("--timing", action="store_true", help="also print how long each phase took")
        command.set_defaults(
            do=do_run,
            verify=command is check,
            protocol=None,
            mode=None,
            effort=None,
            isolated=False,
            profile=False,
            **dict.fromkeys(PLANS),
        )
    run.add_argument("--profile", action="store_true", help="profile each kernel after the measurement: see `profile`")
    run.add_argument("--verify", action="store_true", help="check correctness only (same as `check`)")
    run.add_argument("--protocol", choices=("paired", "fixed"), help="instead of the config's")
    run.add_argument(
        "--mode", choices=("auto", "cold", "graph", "warm", "sustained", "e2e"), help="instead of the config's"
    )
    run.add_argument(
        "--effort",
        choices=EFFORTS,
        help="quick: a few seconds a workload, wide intervals; thorough: five fresh processes, which a confirmed result needs",
    )
    run.add_argument("--processes", type=int, help="fresh processes that measure each workload (default 1)")
    for command in (run, check):
        command.add_argument(
            "--seed", type=int, help="of all random numbers: repeats a run that recorded it (default: drawn in secret)"
        )
        command.add_argument(
            "--verify-seeds", type=int, help="correctness checks of each kernel, each on fresh inputs, 1 to 10"
        )
        command.add_argument(
            "--isolated",
            action="store_true",
            help="each kernel in a process of its own, which it cannot leave: for untrusted kernels",
        )
    run.add_argument(
        "--rest", type=float, help="rest before each block, as a multiple of the block's length (default 1; 0: never)"
    )
    run.add_argument("--warmup", type=int, help="untimed calls of the protocol fixed (200)")
    run.add_argument("--iters", type=int, help="timed calls of the protocol fixed (500)")
    run.add_argument(
        "--flush-l2", action="store_const", const=True, help="evict L2 before every call of the protocol fixed"
    )
    return top

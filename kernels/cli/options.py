"""The options of the commands. Those of `gate` are in client.py, which also works without this repository; those of `tune`
and `profile` are beside their commands."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernels.protocol import EFFORTS
from kernels.report.formats import FORMATS
from kernels.report.measures import BY_KEY

DEVICE = "cuda:0, cpu or a UUID (default: the first GPU, else the CPU)"


def list_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="as JSON")
    command.add_argument("--device", help=DEVICE)


def env_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--device", help=DEVICE)


def calibrate_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--device", help=DEVICE)
    command.add_argument("--json", action="store_true", help="as JSON")


def judge_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("operation", help="attention, gemm, ...")
    command.add_argument(
        "sizes", nargs="+", metavar="SIZE=N", help="such as batch=16 seq_len=4096 causal=true dtype=float16"
    )
    command.add_argument("--ms", type=float, help="the time of one call in milliseconds")
    command.add_argument("--tflops", type=float, help="the rate, instead of the time or in addition to it")
    command.add_argument("--gpu", required=True, help="the GPU's name as its driver gives it, such as 'NVIDIA H200'")


def compare_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("before", type=Path, help="an export of `run --json` or of the site")
    command.add_argument("after", type=Path, help="an export of a later run")
    command.add_argument("--csv", metavar="FILE", type=Path, help="write the table to FILE")
    command.add_argument("--md", metavar="FILE", type=Path, help="write the table to FILE, as Markdown")


def merge_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("files", nargs="+", type=Path, metavar="FILE", help="exports of runs, or merged files")
    command.add_argument("-o", "--output", required=True, type=Path, metavar="FILE", help="where the result is written")


def try_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("folder", type=Path, help="a folder, such as a clone, or one file")
    command.add_argument("--device", help=DEVICE)
    command.add_argument("--limit", type=float, default=120.0, metavar="S", help="seconds for each kernel (120)")
    command.add_argument("--jobs", type=int, default=2, metavar="N", help="kernels that are tried at once (2)")
    command.add_argument(
        "--time",
        action="store_true",
        help="also time each correct kernel against its reference: KernelBench's Model, GPU MODE's ref_kernel, "
        "flashinfer's reference; one kernel after the other",
    )
    command.add_argument("--json", metavar="FILE", type=Path, help="write the result of each kernel to FILE")


def config_options(command: argparse.ArgumentParser) -> None:
    """Of `run` and `check`: what, where, and into which files."""
    command.add_argument(
        "config",
        nargs="?",
        help="a name in kernels/configs/, or the path of a .yaml file; not needed with --resume",
    )
    command.add_argument("--device", help=DEVICE)
    command.add_argument("--kernels", help="names separated by commas, instead of the config's")
    command.add_argument("--backends", help="only kernels of these backends, separated by commas; the baseline stays")
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
    command.add_argument("--output-dir", metavar="DIR", type=Path, help="write run.json, table.csv and table.md there")
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


def check_options(command: argparse.ArgumentParser) -> None:
    """Of `run` and `check`: how outputs are checked."""
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


def run_options(command: argparse.ArgumentParser) -> None:
    """Of `run`: how it is timed."""
    command.add_argument(
        "--profile", action="store_true", help="profile each kernel after the measurement: see `profile`"
    )
    command.add_argument("--verify", action="store_true", help="check correctness only (same as `check`)")
    command.add_argument("--protocol", choices=("paired", "fixed"), help="instead of the config's")
    command.add_argument(
        "--mode", choices=("auto", "cold", "graph", "warm", "sustained", "e2e"), help="instead of the config's"
    )
    command.add_argument(
        "--effort",
        choices=EFFORTS,
        help="quick: a few seconds a workload, wide intervals; thorough: five fresh processes, which a confirmed result needs",
    )
    command.add_argument("--processes", type=int, help="fresh processes that measure each workload (default 1)")
    command.add_argument(
        "--rest", type=float, help="rest before each block, as a multiple of the block's length (default 1; 0: never)"
    )
    command.add_argument("--warmup", type=int, help="untimed calls of the protocol fixed (200)")
    command.add_argument("--iters", type=int, help="timed calls of the protocol fixed (500)")
    command.add_argument(
        "--flush-l2", action="store_const", const=True, help="evict L2 before every call of the protocol fixed"
    )

"""judge, compare: commands that read numbers and measure nothing."""

from __future__ import annotations

import argparse
import math

from pydantic import ValidationError

from kernels.analysis import claims
from kernels.analysis.peaks import PEAKS, peak_of
from kernels.cli.choice import exported
from kernels.cli.table import aligned
from kernels.config_files import ConfigError
from kernels.report import comparison, comparison_summary, tables
from kernels.sweep import swept
from kernels.workload import Workload, sentence


def do_judge(arguments: argparse.Namespace) -> int:
    """Judges a claimed time or rate, and prints the arithmetic."""
    claim = claimed(arguments)
    judgement = claims.judge(claim)
    print(f"{claim.workload.label} on {claim.peak.model}: {judgement.word}")
    print(f"{judgement.why}\n")
    for line in aligned([[step.what, step.result, step.arithmetic, step.source] for step in judgement.steps]):
        print(f"  {line}")
    for note in judgement.notes:
        print(f"  {note}")
    return 0 if judgement.stands else 1


def claimed(arguments: argparse.Namespace) -> claims.Claim:
    """The claim of the command line. Raises ConfigError."""
    peak = peak_of(arguments.gpu)
    if peak is None:
        known = ", ".join(name for p in PEAKS for name in p.names)
        raise ConfigError(f"no peak is known for a GPU named '{arguments.gpu}'; there are: {known}")
    if arguments.ms is None and arguments.tflops is None:
        raise ConfigError("judge needs --ms or --tflops")
    for option, value in (("--ms", arguments.ms), ("--tflops", arguments.tflops)):
        if value is not None and not 0 < value < math.inf:
            raise ConfigError(f"{option} needs a number above 0, not {value:g}")
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
    print(f"\n{comparison_summary.summary(table)}")
    for path, export in ((arguments.before, before), (arguments.after, after)):
        if export.partial:
            print(f"{path.name} is partial: {export.partial}.")
    if arguments.csv:
        arguments.csv.write_text(comparison.as_csv(table))
    if arguments.md:
        heading = tables.heading(f"{arguments.before.name} to {arguments.after.name}", after.environment)
        arguments.md.write_text(comparison.as_markdown(table, heading))
    return 1 if comparison.worse(table) else 0

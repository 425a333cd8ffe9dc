"""judge, compare: commands that read numbers and measure nothing."""

from __future__ import annotations

import argparse
import math

from pydantic import ValidationError

from kernels.analysis import roofline
from kernels.cli.choice import exported, swept
from kernels.report import comparison, tables
from kernels.workload import ConfigError, Workload, sentence


def do_judge(arguments: argparse.Namespace) -> int:
    """Judges a reported time. Above the compute peak it is impossible; above the memory peak it is impossible only on
    cold inputs, because cached data is unknown."""
    peak = roofline.peak_of(arguments.gpu)
    if peak is None:
        known = ", ".join(name for p in roofline.PEAKS for name in p.names)
        raise ConfigError(f"no peak is known for a GPU named '{arguments.gpu}'; there are: {known}")
    if not 0 < arguments.ms < math.inf:
        raise ConfigError(f"--ms wants a time above 0, not {arguments.ms:g}")
    given = swept(arguments.sizes)
    if several := [name for name, values in given.items() if len(values) > 1]:
        raise ConfigError(f"{several[0]} has several values; give one workload")
    sizes = {name: values[0] for name, values in given.items()}
    dtype = str(sizes.pop("dtype", "float16"))
    try:
        workload = Workload(operation=arguments.operation, dtype=dtype, sizes=sizes)
    except ValidationError as error:
        raise ConfigError(sentence(error)) from None
    problem, limit = workload.problem, roofline.speed_of_light_ms(workload.problem, peak)
    figures = roofline.rates(problem, arguments.ms, limit)
    rates = f"{figures['tflops']:.4g} TFLOP/s, {figures['gb_per_s']:.4g} GB/s"
    print(f"{workload.label} in {arguments.ms:g} ms on {peak.model}: {rates}")
    why = roofline.why_impossible(problem, arguments.ms, peak, touched_once=False, cache_bytes=0)
    if why:
        print(f"impossible: {why}")
        return 1
    if figures["gb_per_s"] > peak.gb_per_s:
        print(f"impossible on cold inputs: the memory reaches {peak.gb_per_s:g} GB/s; only cached data is faster")
        return 1
    print(f"plausible: {figures['limit_share']:.1%} of the speed of light ({limit:.4g} ms)")
    return 0


def do_compare(arguments: argparse.Namespace) -> int:
    before, after = exported(arguments.before), exported(arguments.after)
    if why := comparison.why_not(before, after):
        raise ConfigError(f"these runs cannot be compared. {why}")
    table = comparison.rows(before, after)
    print(comparison.as_text(table))
    print(f"\n{comparison.summary(table)}")
    for path, export in ((arguments.before, before), (arguments.after, after)):
        if export.partial:
            print(f"{path.name} is partial: {export.partial}.")
    if arguments.csv:
        arguments.csv.write_text(comparison.as_csv(table))
    if arguments.md:
        heading = tables.heading(f"{arguments.before.name} to {arguments.after.name}", after.environment)
        arguments.md.write_text(comparison.as_markdown(table, heading))
    return 1 if comparison.worse(table) else 0

"""gate: fails when a kernel got slower than it may. Of exports of runs; kernels/cli/client.py asks a site about its runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernels.cli import client
from kernels.cli.choice import exported
from kernels.config_files import ConfigError
from kernels.report import gate


def do_gate(arguments: argparse.Namespace) -> int:
    """Prints the table. Returns 0 if the gate holds, 1 if it fails, 2 if it cannot tell."""
    if client.BEST in arguments.against and not Path(client.BEST).exists():
        raise ConfigError("best is the best run of a site: give the run's number, or name the files of earlier runs")
    given = [arguments.run, *arguments.against]
    if numbers := [one for one in given if one.isdecimal() and not Path(one).exists()]:
        file = next((one for one in given if one not in numbers), "the other")
        raise ConfigError(
            f"{numbers[0]} is the number of a run of a site, and {file} is a file: "
            "give two runs, or two files (a run's page has its json)"
        )
    if arguments.until_decided:
        raise ConfigError("--until-decided measures runs of a site: measure files again with `run --processes N`")
    earlier = [(path.name, exported(path)) for path in map(Path, arguments.against)]
    report = gate.gate(exported(Path(arguments.run)), earlier, arguments.max_regression, arguments.kernel)
    print(gate.as_text(report))
    if arguments.md:
        arguments.md.write_text(gate.as_markdown(report))
    if arguments.junit:
        arguments.junit.write_text(gate.as_junit(report))
    return report.status

"""gate: fails when a kernel got slower than it may. Compares files here; a site compares its runs, also with files."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernels.cli import client
from kernels.cli.choice import exported
from kernels.config_files import ConfigError
from kernels.report import gate


def do_gate(arguments: argparse.Namespace) -> int:
    """Prints the table. Returns 0 if the gate holds, 1 if it fails, 2 if it cannot tell."""
    if client.needs_site(arguments):
        return client.carry_out(client.gate, arguments)
    if arguments.until_decided:
        raise ConfigError(client.ONLY_OF_A_SITE)
    earlier = [(path.name, exported(path)) for path in map(Path, arguments.against)]
    report = gate.gate(exported(Path(arguments.run)), earlier, arguments.max_regression, arguments.kernel)
    print(gate.as_text(report))
    if arguments.md:
        arguments.md.write_text(gate.as_markdown(report))
    if arguments.junit:
        arguments.junit.write_text(gate.as_junit(report))
    return report.status

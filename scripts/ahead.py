"""What honest kernels show where their inputs come last: the ratio by which they would be accused of working before their calls.

Prints one line for each kernel on each workload of some configs: the median time where inputs came last over that of the timed
blocks of the same rounds, the share of pairs that would accuse it, blocks of each kind, and its status.

    python scripts/ahead.py [--device cuda:0] [--config smoke --config canonical-s512] [--rounds 24]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernels.config_files import load_config
from kernels.contract.events import CrossChecked, Event, Measured
from kernels.host.device import Device, find_device
from kernels.parent.doubts import Doubts
from kernels.parent.reading import Reading
from kernels.parent.supervisor import Supervisor
from kernels.workload import Config, RunSpec

LINE = "{:18} {:44} {:18} {:>6} {:>6} {:>3}  {}"


class Looks:
    """Every look at an arm's blocks whose inputs came last, in the order of the run."""

    def __init__(self) -> None:
        self.found: dict[str, list[tuple[float, float]]] = {}

    def look(self, doubts: Doubts, name: str, readings: Sequence[Reading], call_ns: float) -> str:
        """In place of Doubts._why_ahead: keeps what it would compare and accuses nobody."""
        self.found[name] = [spot for reading in readings for spot in reading.spots.get(name, [])]
        return ""

    def figures(self, name: str) -> tuple[str, str, int]:
        """(ratio, share, blocks) as they are printed."""
        spots = self.found.get(name, [])
        if not spots:
            return "-", "-", 0
        timed, last = [one for one, _ in spots], [one for _, one in spots]
        share = sum(a < b for a in timed for b in last) / len(spots) ** 2
        return f"{median(last) / median(timed):.2f}", f"{share:.2f}", len(spots)


def measure(config: Config, device: Device, rounds: int) -> None:
    """Measures a config and prints a line for each result as soon as it is there."""
    looks = Looks()
    config = config.model_copy(
        update={"protocol": config.protocol.model_copy(update={"min_rounds": rounds, "max_rounds": rounds})}
    )

    def emit(event: Event) -> None:
        if not isinstance(event, Measured):
            return
        for arm in event.results:
            figures: tuple[Any, ...] = looks.figures(arm.kernel)
            print(
                LINE.format(config.name, event.workload.label, arm.kernel, *figures, f"{arm.status} {arm.why}".strip()),
                flush=True,
            )
        looks.found.clear()

    decides_nothing = mock.patch("kernels.parent.supervisor.crosscheck", lambda *of: CrossChecked(seen=[]))
    with decides_nothing, mock.patch.object(Doubts, "_why_ahead", lambda *of: looks.look(*of)):
        Supervisor(RunSpec.of(config, device.uuid), device, emit).run()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--config", action="append", metavar="NAME")
    parser.add_argument("--rounds", type=int, default=24)
    asked = parser.parse_args()
    device = find_device(asked.device)
    print(LINE.format("config", "workload", "kernel", "ratio", "share", "n", "status"))
    for name in asked.config or ["smoke"]:
        measure(load_config(name), device, asked.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())

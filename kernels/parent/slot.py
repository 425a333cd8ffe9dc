"""One arm of an isolated measurement, seen from the parent: its cell, and what was seen of its batches."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from kernels.contract.isolation import Batches, Called, Output
from kernels.parent.cell_process import Cell

CAPTURE_EVERY = 4
"""Batches from one capture."""
ITEM_BITS = re.compile(r"(\d+)$")
"""Ends the name of a dtype; bool has none."""


@dataclass
class Slot:
    """One arm with its cell, and what was seen of it."""

    cell: Cell
    layout: list[Output] = field(default_factory=list)
    """Of one call's outputs, without the addresses."""
    readings: list[dict[str, Any]] = field(default_factory=list)
    """Of outputs of timed calls."""
    inputs_changed: bool = False
    shared: bool = False
    refused: str = ""
    """What the problem's own check says against its outputs."""
    walls_ns: list[int] = field(default_factory=list)
    own_ns: list[int] = field(default_factory=list)
    delays_ns: list[int] = field(default_factory=list)
    calls_ns: list[float] = field(default_factory=list)
    """Time of a call in each batch of a round."""
    retaken: int = 0
    """Batches that were taken once more."""
    memory: int | None = None
    """The file of its input sets, on a CPU."""
    captured: int = 0
    """Calls in its graph."""
    replayed: int = 0

    def must_capture(self, calls: int) -> bool:
        """Whether a batch of so many calls needs a new graph."""
        return self.captured != calls or self.replayed >= CAPTURE_EVERY

    def clear(self) -> None:
        """Forgets what was seen of timed calls."""
        for seen in (self.readings, self.walls_ns, self.own_ns, self.delays_ns, self.calls_ns):
            seen.clear()
        self.retaken = 0

    @property
    def flags(self) -> dict[str, Any]:
        """What was seen beside the values of its outputs."""
        return {"inputs_changed": self.inputs_changed, "shared": self.shared, "refused": self.refused}

    def batches(self, calls: int) -> Batches:
        """What was seen of its batches."""
        own = [own / wall for own, wall in zip(self.own_ns, self.walls_ns, strict=True)]
        return Batches(
            calls=calls,
            ms=round(median(self.walls_ns) / 1e6, 4),
            delay_us=round(median(self.delays_ns) / 1e3, 1),
            own_clock=round(median(own), 5),
            checked=len(self.readings),
            retaken=self.retaken,
        )


def outputs_of(layout: list[Output], addresses: list[int], call: int) -> list[Output]:
    """Where the outputs of a call lie."""
    first = call * len(layout)
    return [one.model_copy(update={"address": addresses[first + number]}) for number, one in enumerate(layout)]


def wrong_device(called: Called, kind: str) -> str:
    """What is wrong with the device of a cell's outputs; empty if nothing is."""
    for one in (one for outputs in called.outputs for one in outputs):
        if one.device != kind:
            return f"returned a tensor on {one.device}, not on {kind}"
    return ""


def overlap(addresses: list[int], layout: list[Output]) -> bool:
    """Whether outputs of different calls share memory. Those of one call may be views of one buffer."""
    if not layout or any(0 in one.shape for one in layout):
        return False
    end, owner = -1, -1
    for start, number in sorted((address, number) for number, address in enumerate(addresses)):
        call, output = divmod(number, len(layout))
        if start < end and call != owner:
            return True
        if (stop := start + _span(layout[output])) > end:
            end, owner = stop, call
    return False


def _span(output: Output) -> int:
    last = sum((size - 1) * stride for size, stride in zip(output.shape, output.strides, strict=True))
    bits = ITEM_BITS.search(output.dtype)
    return (last + 1) * (int(bits[1]) // 8 if bits else 1)

"""Measured ceilings of a device, as rates with intervals, from the raw samples of kernels/child/calibrate.py."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from kernels.analysis.statistics import WIDEST_MARGIN, as_margin, margin_from, median_interval, paired_speedup
from kernels.contract.replies import CeilingFigure, CeilingSamples
from kernels.workload import Ceilings

NAMES = {"copy_gb_per_s": "the device copy", "read_gb_per_s": "the device read"}


def ceilings(raw: CeilingSamples) -> Ceilings:
    """Medians of all calls, with intervals from the medians of the blocks."""
    values: dict[str, float] = {}
    intervals: dict[str, tuple[float, float]] = {}
    for figure in raw.figures:
        name, blocks = figure.name, figure.blocks_ns
        middle = median(tick for block in blocks for tick in block)
        first, last = median_interval([median(block) for block in blocks])
        values[name] = _value(figure, middle)
        ends = (values[name], _value(figure, first), _value(figure, last))
        intervals[name] = (min(ends), max(ends))
    return Ceilings(
        copy_gb_per_s=values["copy_gb_per_s"],
        read_gb_per_s=values["read_gb_per_s"],
        matmul_tflops={f.name: values[f.name] for f in raw.figures if f.flops},
        empty_us={f.name: values[f.name] for f in raw.figures if f.is_empty},
        intervals=intervals,
        n=sum(len(block) for f in raw.figures if f.name == "copy_gb_per_s" for block in f.blocks_ns),
    )


def _value(figure: CeilingFigure, ns: float) -> float:
    """GB/s, TFLOP/s, or microseconds of an empty kernel."""
    if figure.bytes:
        return figure.bytes / ns
    return figure.flops / ns / 1e3 if figure.flops else ns / 1e3


def why_unsteady(raw: CeilingSamples) -> str:
    """Why the device was too unsteady for its ceilings, as a sentence; empty if it was not.

    In each round every figure is timed twice. This A/A gives a margin, as a workload's does. Empty kernels do not count.
    """
    margins = {f.name: margin(f.blocks_ns) for f in raw.figures if not f.is_empty}
    worst = max(margins, key=margins.__getitem__)
    if margins[worst] <= WIDEST_MARGIN:
        return ""
    what = NAMES.get(worst, f"the matrix product in {worst}")
    return f"A/A of {what} gives a margin of {as_margin(margins[worst])}, above {WIDEST_MARGIN:.0%}"


def margin(blocks_ns: Sequence[Sequence[float]]) -> float:
    """The margin that the A/A of one figure needs."""
    middles = [median(block) for block in blocks_ns]
    return margin_from(paired_speedup(middles[::2], middles[1::2]))

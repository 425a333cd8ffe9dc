"""Groups arms by launch method. Parent side.

All arms form one group. Arms that cannot be captured, or that synchronise (so that nothing can be queued ahead), form a
second group with its own baseline.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kernels.analysis import blocks
from kernels.contract.events import EAGER_LAUNCH, MAIN
from kernels.parent.child_process import CommandFailed
from kernels.parent.drive import Drive, prepare

MOST_WHY = 200
"""Characters of the reason why an arm is not captured."""


@dataclass(frozen=True)
class Group:
    """Arms that are timed in the same rounds."""

    name: str
    mode: str
    arms: tuple[str, ...]
    graphs: bool = False
    """Launched as captured graphs."""


def groups(
    drive: Drive, estimates: dict[str, blocks.Estimate], cuda: bool, uncaptured: Collection[str] = ()
) -> list[Group]:
    """The groups of a workload, from the arms' estimates and the arms that cannot be captured."""
    mode, everyone = blocks.choose_mode(drive.plan, estimates, cuda), tuple(drive.arms)
    if not cuda:
        return [Group(MAIN, mode, everyone)]
    graphs = blocks.by_graph(mode, estimates)
    odd = [arm for arm in drive.arms if estimates[arm].synchronises]
    if graphs:
        odd += [arm for arm in uncaptured if arm not in odd]
    otherwise = "cold" if mode == "graph" else mode
    if drive.baseline in odd:
        return [Group(MAIN, otherwise, everyone)]
    if not odd:
        return [Group(MAIN, mode, everyone, graphs)]
    alike = tuple(arm for arm in drive.arms if arm not in odd)
    parts = [Group(MAIN, mode, alike, graphs)] if len(alike) > 1 else []
    return [*parts, Group(EAGER_LAUNCH, otherwise, (drive.baseline, *odd))]


def together(parts: list[Group], arms: Collection[str]) -> Group:
    """One group for all arms: if one is launched call by call, all are."""
    return Group(MAIN, parts[-1].mode, tuple(arms), parts[-1].graphs)


def uncapturable(
    drive: Drive, estimates: dict[str, blocks.Estimate], cuda: bool, known: Collection[str] = ()
) -> dict[str, str]:
    """Arms whose capture as a graph fails, with the reason, but for those already known; none if no graphs are used.

    After a failed capture PyTorch's allocator still behaves as during a capture: time nothing more in this process.
    """
    if not cuda or not blocks.by_graph(blocks.choose_mode(drive.plan, estimates, cuda), estimates):
        return {}
    prepare(drive)
    asked = [arm for arm in drive.arms if arm not in known and not estimates[arm].synchronises]
    failed = {arm: why for arm in asked if (why := _why_not_captured(drive, arm))}
    drive.bench.call("drop_graphs")  # they hold input sets that are about to be freed
    return failed


def _why_not_captured(drive: Drive, arm: str) -> str:
    """Empty if it is captured."""
    try:
        drive.call(arm, "capture")
        return ""
    except CommandFailed as error:
        if error.fault.kind == "suspect":
            raise
        return error.fault.message.partition("\n")[0][:MOST_WHY] or "no reason was given"

"""A profile as rows and text: its diagnosis, and its figures with their targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernels.analysis.bottlenecks import TARGETS, Target, diagnosis, microseconds, percent, seen_of, waits_for
from kernels.analysis.memory import size
from kernels.contract.profile import Figures, Profile

MOST_STALLS = 3


@dataclass(frozen=True)
class Line:
    """One figure of a call."""

    title: str
    said: str
    target: str = ""
    """Such as "at least 80%"; empty if there is none."""
    met: bool | None = None


Shown = tuple[str, str, Callable[[Figures], str]]


def _share(name: str) -> Callable[[Figures], str]:
    def said(call: Figures) -> str:
        value = getattr(call, name)
        return "" if value is None else percent(value)

    return said


def _count(name: str) -> Callable[[Figures], str]:
    def said(call: Figures) -> str:
        value = getattr(call, name)
        return "" if value is None else f"{value:,.3g}" if value < 100 else f"{value:,.0f}"

    return said


def _shared(call: Figures) -> str:
    if call.static_shared_bytes is None and call.dynamic_shared_bytes is None:
        return ""
    return f"{(call.static_shared_bytes or 0) + (call.dynamic_shared_bytes or 0):,} bytes"


def _dram_bytes(call: Figures) -> str:
    return "" if call.dram_bytes is None else size(call.dram_bytes)


def _limit(call: Figures) -> str:
    if call.occupancy_limit is None:
        return ""
    return percent(call.occupancy_limit) + (
        f", limited by {call.limited_by}" if call.limited_by and call.occupancy_limit < 1 else ""
    )


def _time(call: Figures) -> str:
    return "" if call.duration_ns is None else f"{microseconds(call.duration_ns)} under ncu"


SHOWN: tuple[Shown, ...] = (
    ("sm_busy", "SMs busy", _share("sm_busy")),
    ("compute", "busiest pipe of an SM", _share("compute")),
    ("tensor", "tensor pipe", _share("tensor")),
    ("issue", "issue slots used", _share("issue")),
    ("dram", "DRAM throughput", _share("dram")),
    ("dram_bytes", "DRAM traffic", _dram_bytes),
    ("l2", "L2 throughput", _share("l2")),
    ("l2_hits", "L2 hits", _share("l2_hits")),
    ("l1_hits", "L1 hits", _share("l1_hits")),
    ("occupancy", "occupancy achieved", _share("occupancy")),
    ("occupancy_limit", "occupancy, theoretical", _limit),
    ("registers", "registers per thread", _count("registers")),
    ("local_share", "local memory (spills), of L1's sectors", _share("local_share")),
    ("shared", "shared memory per block", _shared),
    ("sectors_per_load", "sectors a load request", _count("sectors_per_load")),
    ("used_of_loads", "bytes used of loaded sectors", _share("used_of_loads")),
    ("used_of_stores", "bytes used of stored sectors", _share("used_of_stores")),
    ("conflict_share", "bank conflicts, of shared-memory passes", _share("conflict_share")),
    ("active_threads", "threads of a warp that execute an instruction", _count("active_threads")),
    ("uniform_branches", "branches without divergence", _share("uniform_branches")),
    ("waves", "waves", _count("waves")),
    ("duration_ns", "time of its GPU kernels", _time),
)
"""The figures of a call: key, title, text."""


def lines(profile: Profile) -> list[Line]:
    """The figures that are known."""
    call, of = seen_of(profile).call, {target.key: target for target in TARGETS}
    found = []
    for key, title, said in SHOWN:
        if text := said(call):
            target = of.get(key)
            found.append(Line(title, text, target_said(target), target.is_met(call) if target else None))
    return found


def target_said(target: Target | None) -> str:
    if target is None:
        return ""
    return "none" if target.threshold == 0 else f"{target.holds} {percent(target.threshold)}"


def stalls(profile: Profile) -> list[tuple[str, str]]:
    """(what warps wait for, share of their time)."""
    return [(waits_for(one.reason), percent(one.share)) for one in seen_of(profile).call.stalls[:MOST_STALLS]]


def times(profile: Profile) -> list[tuple[str, str]]:
    """The times of a call, as (name, value)."""
    if (seen := profile.timeline) is None:
        return []
    found = [("a call, back to back", microseconds(seen.call_ns)), ("the host's part", microseconds(seen.enqueue_ns))]
    if seen.busy_ns is not None:
        kernels = "" if seen.kernels is None else f", {seen.kernels} kernel{'s' * (seen.kernels != 1)}"
        found.append(("the GPU's part", f"{microseconds(seen.busy_ns)}{kernels}"))
    return found


def headline(profile: Profile) -> str:
    """The diagnosis, or why there is none."""
    return diagnosis(profile) or profile.timeline_missing or profile.counters_missing or "Nothing was seen."


def as_text(profile: Profile) -> list[str]:
    """The profile for a terminal."""
    said = [f"  {headline(profile)}"]
    for line in lines(profile):
        met = {True: "met", False: "not met", None: ""}[line.met]
        target = f"  (target {line.target}: {met})" if line.target and met else ""
        said.append(f"    {line.title:<42} {line.said}{target}")
    said += [f"    {'a warp ' + what:<42} {share} of its time" for what, share in stalls(profile)]
    said += [f"    {name:<42} {value}" for name, value in times(profile)]
    if profile.counters_missing and profile.counters_missing not in said[0]:
        said.append(f"  {profile.counters_missing}")
    return said

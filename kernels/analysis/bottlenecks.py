"""Why a kernel is slow: rules over the figures of a profile. Each rule is data: its figure, its threshold, its reason.

`diagnosis` says the rules that hold, the most telling first. `targets` says which usual targets a kernel meets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kernels.contract.profile import Counters, Figures, Launch, Profile, Stall

# --- the figures of a call --------------------------------------------------------------------------------------------

SUMS = (
    "duration_ns", "dram_bytes", "load_sectors", "load_requests", "store_sectors", "store_requests", "local_sectors",
    "shared_wavefronts", "bank_conflicts",
)  # fmt: skip
BY_TIME = (
    "sm_busy", "compute", "tensor", "issue", "dram", "l2", "l1", "l1_hits", "l2_hits", "occupancy", "active_threads",
    "uniform_branches",
)  # fmt: skip
"""Those of a call are means over its GPU kernels, weighted by their times."""
OF_SECTORS = {"used_of_loads": "load_sectors", "used_of_stores": "store_sectors"}
"""Shares of sectors, weighted by them."""


def per_call(counters: Counters) -> Figures:
    """The figures of a call. What belongs to one launch (registers, grid, ...) is that of the longest one."""
    launches = counters.launches
    if not launches:
        return Figures()
    longest = max(launches, key=lambda one: one.duration_ns or 0.0)
    found: dict[str, Any] = {name: getattr(longest, name) for name in Figures.model_fields}
    if len(launches) == 1:
        return Figures(**found)
    found |= {name: _sum(launches, name) for name in SUMS}
    found |= {name: _mean(launches, name, "duration_ns") for name in BY_TIME}
    found |= {name: _mean(launches, name, by) for name, by in OF_SECTORS.items()}
    return Figures(**found | {"stalls": _stalls(launches)})


def _sum(launches: Sequence[Launch], name: str) -> float | None:
    known = [value for one in launches if (value := getattr(one, name)) is not None]
    return sum(known) if known else None


def _mean(launches: Sequence[Launch], name: str, by: str) -> float | None:
    """Weighted by another figure, over the launches that have both."""
    pairs = [(getattr(one, name), getattr(one, by)) for one in launches]
    known = [(value, weight) for value, weight in pairs if value is not None and weight]
    whole = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / whole if whole else None


def _stalls(launches: Sequence[Launch]) -> list[Stall]:
    """Mean shares, weighted by time."""
    known = [one for one in launches if one.stalls and one.duration_ns]
    whole = sum(one.duration_ns or 0.0 for one in known)
    shares: dict[str, float] = {}
    for one in known:
        for stall in one.stalls:
            shares[stall.reason] = shares.get(stall.reason, 0.0) + stall.share * (one.duration_ns or 0.0) / whole
    return sorted((Stall(reason, share) for reason, share in shares.items()), key=lambda stall: -stall.share)


# --- rules ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What rules read: the figures of a call, its launches, and its timeline."""

    call: Figures
    profile: Profile

    @property
    def idle(self) -> float | None:
        """Share of a call in which the device has nothing to do, back to back."""
        line = self.profile.timeline
        return None if line is None or line.busy_ns is None else max(0.0, 1 - line.busy_ns / line.call_ns)

    @property
    def host_share(self) -> float | None:
        line = self.profile.timeline
        return None if line is None else line.enqueue_ns / line.call_ns

    @property
    def tail(self) -> float | None:
        """Share of the last wave's places that stay empty, over all waves."""
        waves = self.call.waves
        return None if not waves or waves <= 1 else 1 - waves / math.ceil(waves)

    @property
    def top(self) -> Stall | None:
        return self.call.stalls[0] if self.call.stalls else None

    @property
    def nearest(self) -> tuple[float, str] | None:
        """The unit that is nearest to its peak: (share, name)."""
        call = self.call
        units = [(call.tensor, "the tensor pipe"), (call.compute, "the busiest pipe of the SMs"), (call.dram, "DRAM")]
        known = [(share, name) for share, name in [*units, (call.l2, "L2")] if share is not None]
        return max(known, key=lambda one: one[0]) if known else None

    @property
    def busiest(self) -> float | None:
        """The share of that unit."""
        return self.nearest[0] if self.nearest else None


@dataclass(frozen=True)
class Rule:
    """Holds if its value is at least, or below, its threshold."""

    key: str
    value: Callable[[Seen], float | None]
    holds: Literal["at least", "below"]
    threshold: float
    said: Callable[[Seen, float], str]
    """The finding as a phrase, from what was seen and the value."""
    reason: str
    """Why the threshold is where it is."""
    only: Callable[[Seen], bool] = lambda seen: True
    """What else must be so."""

    def finding(self, seen: Seen) -> str:
        """The phrase; empty if the rule does not hold, or its figure is not known."""
        value = self.value(seen)
        if value is None or not self.only(seen):
            return ""
        holds = value >= self.threshold if self.holds == "at least" else value < self.threshold
        return self.said(seen, value) if holds else ""


def percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"


def microseconds(ns: float) -> str:
    us = ns / 1e3
    return f"{us:,.0f} us" if us >= 100 else f"{us:.3g} us"


WAITS_FOR = {
    "long_scoreboard": "waits on global or local memory",
    "short_scoreboard": "waits on shared memory, or on special functions",
    "mio_throttle": "waits on the queue to shared memory",
    "lg_throttle": "waits on the queue to global and local memory",
    "tex_throttle": "waits on the queue to textures",
    "barrier": "waits at barriers of its block",
    "membar": "waits on memory fences",
    "math_pipe_throttle": "waits on arithmetic pipes",
    "gmma": "waits on matrix instructions (wgmma)",
    "no_instruction": "waits on instructions to be fetched",
    "no_inst": "waits on instructions to be fetched",
    "imc_miss": "waits on constants",
    "branch_resolving": "waits on branches",
    "dispatch_stall": "waits on the dispatcher",
    "drain": "waits on its last stores",
    "sleeping": "sleeps, by its own instruction",
    "wait": "waits on results of arithmetic",
}
"""ncu's stall reasons. Others are named as ncu names them."""


def waits_for(reason: str) -> str:
    return WAITS_FOR.get(reason, f"waits ({reason})")


def _launch_bound(seen: Seen, idle: float) -> str:
    line = seen.profile.timeline
    assert line is not None and line.busy_ns is not None
    return (
        f"launch-bound outside a graph: the host takes {microseconds(line.enqueue_ns)} to launch a call, its kernels run "
        f"{microseconds(line.busy_ns)}"
    )


def _gaps(seen: Seen, idle: float) -> str:
    count = seen.profile.timeline.kernels if seen.profile.timeline else None
    return f"idle: the GPU has nothing to do for {percent(idle)} of a call" + (f" of {count} kernels" if count else "")


def _uncoalesced(which: str, sectors: Callable[[Figures], float | None]) -> Callable[[Seen, float], str]:
    def said(seen: Seen, used: float) -> str:
        each = sectors(seen.call)
        more = f", {each:.3g} sectors a request" if each else ""
        return f"uncoalesced {which}: {percent(used)} of the bytes of their sectors are used{more}"

    return said


def _low_occupancy(seen: Seen, limit: float) -> str:
    call = seen.call
    because = f", limited by {call.limited_by}" if call.limited_by else ""
    if call.limited_by == "registers" and call.registers:
        because += f" ({call.registers} a thread)"
    return f"low occupancy: at most {percent(limit)}{because}"


def _known(value: float | None, least: float) -> bool:
    return value is not None and value >= least


NEAR_PEAK = 0.8
"""Share of a peak that counts as near it: copies of large tensors reach 0.85 to 0.93 of a datasheet's bandwidth."""
FAR_FROM_PEAK = 0.6
WARP = 32
"""Threads of a warp."""
RULES = (
    Rule(
        "launch-bound", lambda seen: seen.idle, "at least", 0.2, _launch_bound,
        "below that, gaps of a few us between calls explain it",
        only=lambda seen: _known(seen.host_share, 0.8),
    ),
    Rule(
        "idle", lambda seen: seen.idle, "at least", 0.2, _gaps,
        "the same, where the host is not the reason: copies, events, synchronisation",
        only=lambda seen: not _known(seen.host_share, 0.8),
    ),
    Rule(
        "few blocks", lambda seen: seen.call.waves, "below", 0.8,
        lambda seen, waves: f"too few blocks: the grid fills {percent(waves)} of the places for blocks",
        "a full device needs one wave; a persistent grid has exactly one",
    ),
    Rule(
        "spills", lambda seen: seen.call.local_share, "at least", 0.05,
        lambda seen, share: f"register spills: {percent(share)} of the sectors that L1 serves are local memory",
        "a few spilled registers outside of the loop cost nothing",
    ),
    Rule(
        "DRAM-bound", lambda seen: seen.call.dram, "at least", NEAR_PEAK,
        lambda seen, share: f"DRAM-bound: {percent(share)} of peak",
        "copies of large tensors reach 0.85 to 0.93 of a datasheet's bandwidth",
    ),
    Rule(
        "L2-bound", lambda seen: seen.call.l2, "at least", NEAR_PEAK,
        lambda seen, share: f"L2-bound: {percent(share)} of peak",
        "as for DRAM",
    ),
    Rule(
        "tensor-bound", lambda seen: seen.call.tensor, "at least", NEAR_PEAK,
        lambda seen, share: f"bound by tensor cores: they work in {percent(share)} of the cycles",
        "the best matrix products keep the pipe 0.8 to 0.95 busy",
    ),
    Rule(
        "compute-bound", lambda seen: seen.call.compute, "at least", NEAR_PEAK,
        lambda seen, share: f"compute-bound: the busiest pipe of the SMs is at {percent(share)}",
        "as for DRAM",
        only=lambda seen: not _known(seen.call.tensor, NEAR_PEAK),
    ),
    Rule(
        "bank conflicts", lambda seen: seen.call.conflict_share, "at least", 0.2,
        lambda seen, share: f"bank conflicts: they add {percent(share)} of the passes of shared memory",
        "wide stores of full warps count a few as conflicts that cost nothing",
    ),
    Rule(
        "uncoalesced loads", lambda seen: seen.call.used_of_loads, "below", 0.5,
        _uncoalesced("loads", lambda call: call.sectors_per_load),
        "with half of each sector unused, memory moves twice the bytes",
    ),
    Rule(
        "uncoalesced stores", lambda seen: seen.call.used_of_stores, "below", 0.5,
        _uncoalesced("stores", lambda call: call.sectors_per_store),
        "as for loads",
    ),
    Rule(
        "divergence", lambda seen: seen.call.active_threads, "below", 0.75 * WARP,
        lambda seen, threads: f"divergence: an instruction is executed by {threads:.3g} of the {WARP} threads of a warp",
        "a quarter of the threads then do nothing; the end of a row costs less",
        only=lambda seen: not _known(seen.busiest, NEAR_PEAK),
    ),
    Rule(
        "tail", lambda seen: seen.tail, "at least", 0.2,
        lambda seen, tail: f"tail: {seen.call.waves:.2f} waves, so {percent(tail)} of the places stay empty",
        "a fifth of the time is what a tail can cost at most there",
    ),
    Rule(
        "low occupancy", lambda seen: seen.call.occupancy_limit, "below", 0.25, _low_occupancy,
        "kernels with asynchronous copies do well with an eighth of the warps; then a unit is near its peak",
        only=lambda seen: not _known(seen.busiest, FAR_FROM_PEAK),
    ),
    Rule(
        "uneven", lambda seen: _occupancy_reached(seen.call), "below", 0.5,
        lambda seen, part: f"uneven blocks: on average {percent(part)} of the warps that fit are there",
        "half of the warps are missing: blocks end at different times, or the grid is small",
        only=lambda seen: _known(seen.call.waves, 0.8),
    ),
    Rule(
        "stalls", lambda seen: seen.top.share if seen.top else None, "at least", 0.3,
        lambda seen, share: f"{waits_for(seen.top.reason if seen.top else '')} ({percent(share)} of a warp's time)",
        "one reason then outweighs all others",
        only=lambda seen: not _known(seen.call.issue, 0.7) and not _known(seen.busiest, NEAR_PEAK),
    ),
    Rule(
        "latency-bound", lambda seen: seen.busiest, "below", FAR_FROM_PEAK,
        lambda seen, share: f"latency-bound: no unit is above {percent(share)} of its peak",
        "ncu itself calls it that below 0.6",
        only=lambda seen: _known(seen.call.waves, 0.8),
    ),
)  # fmt: skip
"""In the order in which they are said: what makes others pointless comes first."""
NO_RULE = "no single cause"
MOST_SAID = 3
"""Findings in a diagnosis."""


def _occupancy_reached(call: Figures) -> float | None:
    return call.occupancy / call.occupancy_limit if call.occupancy is not None and call.occupancy_limit else None


def seen_of(profile: Profile) -> Seen:
    return Seen(per_call(profile.counters) if profile.counters else Figures(), profile)


def findings(profile: Profile) -> list[tuple[Rule, str]]:
    """The rules that hold, each with its phrase."""
    seen = seen_of(profile)
    return [(rule, said) for rule in RULES if (said := rule.finding(seen))]


def diagnosis(profile: Profile) -> str:
    """A sentence, such as "Tail: 1.06 waves, so 47% of the places stay empty; waits on shared memory (41% ...)."

    Empty if nothing was seen that rules read.
    """
    said = [phrase for _, phrase in findings(profile)][:MOST_SAID]
    if not said:
        timeline = profile.timeline
        known = profile.counters is not None or (timeline is not None and timeline.busy_ns is not None)
        nearest = seen_of(profile).nearest
        more = f": nearest to its limit is {nearest[1]}, at {percent(nearest[0])}" if nearest else ""
        said = [f"{NO_RULE}{more}"] if known else []
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}." if text else ""


# --- targets ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """A usual target of a figure."""

    key: str
    value: Callable[[Figures], float | None]
    holds: Literal["at least", "at most"]
    threshold: float
    why: str

    def is_met(self, call: Figures) -> bool | None:
        """None: the figure is not known."""
        value = self.value(call)
        if value is None:
            return None
        return value >= self.threshold if self.holds == "at least" else value <= self.threshold


TARGETS = (
    Target("sm_busy", lambda call: call.sm_busy, "at least", 0.8, "SMs have work"),
    Target("dram", lambda call: call.dram, "at least", 0.6, "2 of an H100's 3.35 TB/s, where memory is the limit"),
    Target("occupancy", lambda call: call.occupancy, "at least", 0.5, "enough warps to hide latency"),
    Target("used_of_loads", lambda call: call.used_of_loads, "at least", 0.8, "loads are coalesced"),
    Target("conflict_share", lambda call: call.conflict_share, "at most", 0.05, "hardly any bank conflicts"),
    Target("local_share", lambda call: call.local_share, "at most", 0.0, "no spills"),
)
"""Targets that reports of kernel work set, by the figure that each is of."""


def targets(profile: Profile) -> list[tuple[Target, bool | None]]:
    """Each target, and whether it is met."""
    call = seen_of(profile).call
    return [(target, target.is_met(call)) for target in TARGETS]

"""Plausibility checks: caching, leaks, untimed work. Parent side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from kernels.contract.replies import Probed

PROBES, FEW_PROBES = 7, 3
"""Calls of each kind in a probe; fewer for slow kernels."""
ROTATED_NS = 5e6
LONG_NS, VERY_LONG_NS = {"cpu": 20e6, "cuda": 5e6}, {"cpu": 100e6, "cuda": 40e6}
"""From ROTATED_NS on, a probe has as many sets in turn as the timed calls had, not PROBE_SETS. Calls are slow from LONG_NS, and
from VERY_LONG_NS so slow that one call of each kind must do. On two sets a probe has 126 calls, 54 slow ones, or 18 very slow
ones. Other programs interrupt a CPU's calls, so there more of them are needed."""
SIGHTS, FEW_SIGHTS, SIGHTS_NS = 10, 3, 40e6
"""A kernel may start caching after several calls: repeat this many calls on the same tensors; fewer if together they
take longer than SIGHTS_NS."""
DOUBTS = 3
"""A suspicion counts only if it holds over this many probes or more, or this often in a row."""
SEEN_FACTOR, SEEN_OFTEN = 1.2, 0.85
"""Limits of caching: speedup on known inputs, and the share of pairs that show it."""
LEARNED_FACTOR, LEARNED_NS = 1.5, 100e3
"""The same of calls below LEARNED_NS on a CPU, where timed calls shared one buffer: it learns which way the branches of known
values go. Where they had several, other calls come between (probe.py)."""
UNEVEN_FACTOR = 1.2
"""Limit of a block's mean over its median, compared with the baseline's."""
EVEN_ONE_IN = 8
"""An arm of which more than one block in so many is even does not work for others."""
UNTOUCHED_NS, UNTOUCHED_BYTES_PER_NS, UNTOUCHED_SHARE = 1000, 10, 1 / 3
"""Allowed extra time of a call on inputs that were just written: a constant, plus on a CPU their bytes at this rate, or at most
a share of the call. There the first read of what was just written takes longer: of 128 KiB 8 us more, by argmax."""
AHEAD_FACTOR, AHEAD_SIGMAS = 1.5, 1.64
"""Limit of how much faster calls may be if time passes between the writing of their inputs and them. So many pairs must show it
that chance alone gives it in one of twenty measurements (one-sided, in standard deviations), at most SEEN_OFTEN. Of nine calls
of each kind, one slow and one fast call on a busy host leave 80% of the pairs; 73% are needed."""
LEAK_BLOCKS, LEAK_BYTES = 5, 4096
"""A leak: each of the last LEAK_BLOCKS blocks kept at least LEAK_BYTES a call, or SEEN_OFTEN of the last half of all blocks
did: a kernel that leaks may also free something now and then."""
BETWEEN_NS, BETWEEN_SHARE = 20e3, 0.05
"""What may pass between the end of a call and the line that may copy its output: a constant, and a share of the call."""
OUTSIDE = {"cuda": (0.1, 3e6), "cpu": (0.25, 20e6)}
"""Limits of the time around a batch, beyond that of the baseline's batch: a share of the calls' time, plus ns. A busy host
interrupts a CPU's batches; those of a GPU are queued."""


PROBE_SETS, FEWEST_SETS = 8, 2
"""Input sets of a probe in turn: at most, and at least."""

KINDS = ("seen_ns", "new_ns", "untouched_ns", "written_ns", "again_ns", "fresh_ns", "early_ns", "late_ns")
"""Of a probe's times."""


def seeds_for(count: int, in_turn: int = PROBE_SETS) -> int:
    """Seeds of a probe with `count` times of each kind, on this many sets in turn."""
    return count * (2 * in_turn + 3) + 1


def why_remembers(seen_ns: Sequence[float], new_ns: Sequence[float], least: float = SEEN_FACTOR) -> str:
    """Detects caching by value: faster on values seen before than on new ones, by more than `least`. Empty: none."""
    if not (factor := _faster(seen_ns, new_ns, least=least)):
        return ""
    return f"the kernel caches results: {factor:.1f} times faster on inputs that it has seen"


def why_recognises(
    untouched_ns: Sequence[float], written_ns: Sequence[float], host_bytes: int = 0, least: float = SEEN_FACTOR
) -> str:
    """Detects caching by address and version, or after several calls. Empty: none. host_bytes: of the inputs, in the
    host's memory."""
    if not (factor := _much_faster(untouched_ns, written_ns, host_bytes, least)):
        return ""
    return f"the kernel caches results: {factor:.1f} times faster on tensors not written since its last call"


def why_knows(
    again_ns: Sequence[float], fresh_ns: Sequence[float], host_bytes: int = 0, least: float = SEEN_FACTOR
) -> str:
    """Detects caching that shows only where one set follows another. Empty: none. host_bytes: as in why_recognises."""
    if not (factor := _much_faster(again_ns, fresh_ns, host_bytes, least)):
        return ""
    return f"the kernel caches results: {factor:.1f} times faster on sets of inputs that it has seen"


def why_settles(early_ns: Sequence[float], late_ns: Sequence[float]) -> str:
    """Detects caching that begins only in calls back to back on one buffer. Empty: none, or no such calls. The limit is
    LEARNED_FACTOR: threads may have to wake up for the first calls."""
    if not early_ns or not (factor := _faster(late_ns, early_ns, least=LEARNED_FACTOR)):
        return ""
    if median(early_ns) - median(late_ns) <= UNTOUCHED_NS:
        return ""
    return f"the kernel caches results: {factor:.1f} times faster at the end of a block on one buffer than in its first calls"


def _much_faster(known_ns: Sequence[float], new_ns: Sequence[float], host_bytes: int, least: float) -> float:
    """As `_faster`; also 0 where the difference may be what the first read of written memory takes."""
    allowed_ns = UNTOUCHED_NS + min(host_bytes / UNTOUCHED_BYTES_PER_NS, UNTOUCHED_SHARE * median(new_ns))
    more_ns = median(new_ns) - median(known_ns)
    return _faster(known_ns, new_ns, least=least) if more_ns > allowed_ns else 0.0


def _faster(
    known_ns: Sequence[float], new_ns: Sequence[float], least_often: float = SEEN_OFTEN, least: float = SEEN_FACTOR
) -> float:
    """Speedup of calls on known inputs; 0 if not above `least`, or in fewer than least_often of all pairs.

    Both kinds were measured in random order: a busy host slows both alike.
    """
    factor = median(new_ns) / median(known_ns)
    often = sum(known < new for known in known_ns for new in new_ns) / (len(known_ns) * len(new_ns))
    return factor if factor > least and often >= least_often else 0.0


def why_ahead(waited_ns: Sequence[float], at_once_ns: Sequence[float], host_bytes: int = 0) -> str:
    """Detects work between the writing of inputs and the calls on them, such as a thread's: empty caches make an honest call
    that has waited slower, never faster. Empty: none. host_bytes: as in why_recognises."""
    often = min(SEEN_OFTEN, 0.5 + AHEAD_SIGMAS * _sd_of_share(len(waited_ns), len(at_once_ns)))
    factor, more_ns = _faster(waited_ns, at_once_ns, often), median(at_once_ns) - median(waited_ns)
    if factor <= AHEAD_FACTOR or more_ns <= UNTOUCHED_NS + host_bytes / UNTOUCHED_BYTES_PER_NS:
        return ""
    return f"works before its calls: {factor:.1f} times faster if time passes between input writes and the call"


def _sd_of_share(mine: int, others: int) -> float:
    """Standard deviation of the share of pairs in which one of `mine` is below one of `others`, both from one distribution
    (Mann and Whitney, 1947)."""
    return math.sqrt((mine + others + 1) / (12 * mine * others))


def why_between(blocks: Sequence[tuple[float, float]], base: Sequence[tuple[float, float]] = ()) -> str:
    """Detects work between the clock's lines, such as a pending call of Python: it would be in nobody's time. Empty: none.

    blocks: for each, the medians of (what passed after the end of a call, the call), in ns: a busy host interrupts few calls.
    base: those of the baseline, which show what the host's clocks take.
    """
    usual_ns = BETWEEN_NS + 2 * median([gap_ns for gap_ns, _ in base] or [0.0])
    long = [gap_ns for gap_ns, call_ns in blocks if gap_ns > usual_ns + BETWEEN_SHARE * call_ns]
    if not blocks or len(long) < SEEN_OFTEN * len(blocks):
        return ""
    return f"works after the end of its calls: {median(long) / 1e3:.3g} us pass until the instrument goes on"


def why_uneven(mine: Sequence[float], base: Sequence[float]) -> str:
    """Detects calls that work for others of their block. Empty: none.

    mine, base: unevenness of blocks, of an arm and of the baseline.
    """
    if not mine or not base:
        return ""
    often = sum(a > b for a in mine for b in base) / (len(mine) * len(base))
    if median(mine) <= UNEVEN_FACTOR * median(base) or often < SEEN_OFTEN:
        return ""
    return f"some calls do the work of other calls: a block takes {median(mine):.1f} times its calls' median"


def why_always_uneven(mine: Sequence[float], base: Sequence[float]) -> str:
    """As `why_uneven`, where nearly every block must show it. Other programs that interrupt calls leave the caches empty for
    the next ones: that makes many blocks uneven, but not nearly all."""
    least = [sorted(ratios)[len(ratios) // EVEN_ONE_IN] for ratios in (mine, base)]
    return why_uneven(mine, base) if least[0] > UNEVEN_FACTOR * least[1] else ""


def unevenness(calls_ns: Sequence[float]) -> float:
    """The mean of a block's calls over their median."""
    return sum(calls_ns) / len(calls_ns) / max(1.0, median(calls_ns))


def why_leaks(grown: Sequence[tuple[int, int]]) -> str:
    """From (bytes, calls) of each block: empty if memory does not grow with every call."""
    per_call = [count / calls for count, calls in grown]
    for last in (per_call[-LEAK_BLOCKS:], per_call[-max(LEAK_BLOCKS, len(per_call) // 2) :]):
        kept = [count for count in last if count >= LEAK_BYTES]
        if len(last) >= LEAK_BLOCKS and len(kept) >= SEEN_OFTEN * len(last):
            return f"memory leak: every call keeps {median(kept):.0f} bytes"
    return ""


def why_outside(ticks_ns: float, wall_ns: float, around_ns: float, kind: str = "cpu") -> str:
    """Compares the sum of a batch's samples with the time that passed on the parent's own clock.

    around_ns: what passed around a batch of the baseline, of as many calls.
    """
    if ticks_ns > 1.05 * wall_ns:
        return f"its calls took {ticks_ns / 1e6:.3g} ms in only {wall_ns / 1e6:.3g} ms: the clock was tampered with"
    share, constant_ns = OUTSIDE[kind]
    if wall_ns - ticks_ns > around_ns + share * ticks_ns + constant_ns:
        return (
            f"its calls took {ticks_ns / 1e6:.3g} ms, but {wall_ns / 1e6:.3g} ms passed: work outside the timed region"
        )
    return ""


def why_probed(
    probe: Callable[..., Probed],
    seed: Callable[[], int],
    call_ns: float,
    sets: int = PROBE_SETS,
    least_sights: int = 0,
    sustained_sights: int = 0,
    kind: str = "cpu",
) -> str:
    """Why an arm is suspect of caching; empty if it is not. Probes again until a probe finds nothing, or DOUBTS of them with
    PROBES calls of each kind or more have found it: of one call each, one in two is the faster one by chance.

    probe(seeds=[...], sights=n, in_turn=n): Bench.probe; with one_buffer=True where timed calls of a CPU had one set. All
    readings are judged together. sets: most input sets of the timed calls. least_sights: how often timed calls met the same
    values. sustained_sights: how often they did back to back: they are tried as often here, however long it takes. kind: of the
    device, cpu or cuda.
    """
    known: dict[str, list[float]] = {}
    very_long = call_ns > VERY_LONG_NS[kind]
    why, calls = "", 1 if very_long else FEW_PROBES if call_ns > LONG_NS[kind] else PROBES
    in_turn = min(PROBE_SETS, max(FEWEST_SETS, sets)) if call_ns > ROTATED_NS else PROBE_SETS
    if very_long:
        in_turn = FEWEST_SETS
    sights = max(FEW_SIGHTS, min(max(SIGHTS, least_sights), int(SIGHTS_NS / call_ns)), sustained_sights)
    one_buffer = kind == "cpu" and sets == 1
    least = LEARNED_FACTOR if one_buffer and call_ns < LEARNED_NS else SEEN_FACTOR
    for _ in range(max(DOUBTS, math.ceil(PROBES / calls))):
        asked: dict[str, Any] = {"one_buffer": True} if one_buffer else {}
        asked |= {"sights": sights, "in_turn": in_turn, "seeds": [seed() for _ in range(seeds_for(calls, in_turn))]}
        got = probe(**asked)
        for key in KINDS:
            known.setdefault(key, []).extend(getattr(got, key))
        why = (
            why_remembers(known["seen_ns"], known["new_ns"], least)
            or why_recognises(known["untouched_ns"], known["written_ns"], got.host_bytes, least)
            or why_knows(known["again_ns"], known["fresh_ns"], got.host_bytes, least)
            or why_settles(known["early_ns"], known["late_ns"])
        )
        if not why:
            break
    return why

"""Doubts about an arm's times: caching, calls that work for others, work outside of the timed calls."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, TypeVar

from kernels.analysis.blocks import MAX_CALLS
from kernels.analysis.suspicion import (
    DOUBTS,
    LONG_NS,
    PROBE_SETS,
    PROBES,
    VERY_LONG_NS,
    unevenness,
    why_ahead,
    why_always_uneven,
    why_between,
    why_outside,
    why_probed,
    why_uneven,
)
from kernels.contract.events import HostLoad
from kernels.contract.replies import Probed, TimedBlock
from kernels.parent.reading import Reading, between
from kernels.parent.session import CHECK_LIMIT_S

if TYPE_CHECKING:
    from kernels.parent.engine import Engine, Timed

Seen = TypeVar("Seen")
"""What is seen of a block."""
PROBED_CALLS = 400
"""Upper estimate of the calls of a probe; slow kernels have about half as many."""
SIGHTED_CALLS = 2 * PROBES
"""So often a probe makes as many calls as there are sights."""
BATCH_NS = 100e6
"""Length of the batch that the parent's own clock also times."""
MAX_BATCH = 1000
UNEVEN_BLOCKS, UNEVEN_NS = 7, 10e6
"""Blocks of an arm in each of DOUBTS looks, and the length of a block: PROBE_SETS to MAX_CALLS calls. The first call of a block
finds the processor's caches empty, and takes longer. In a long block that counts for less."""
CLEARLY_UNEVEN = 2.0
"""On a busy CPU, where a new process cannot be asked, an arm below this many times the baseline's unevenness is not accused."""
AHEAD_PAIRS, FEWEST_CALLS = 3, 4
"""Blocks of each kind in each of DOUBTS looks, and calls of a block of slow calls."""
AHEAD_REST_NS, AHEAD_GATE_NS, AHEAD_NS = 5_000_000, 1_000_000, 40e6
"""The rest before calls whose inputs are not new; on a GPU longer by what the calls take, which is at most AHEAD_NS for all of a
block. The gate is a GPU's."""
OUTSIDE_TRIES, OUTSIDE_REST_S = 10, 0.2
"""Batches of which each must take too long on the parent's clock, and the rest before one after the first few: other
programs of the host may hold up several in a row."""


class Doubts:
    """Asks the process of an engine about one arm after the other."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.shown: set[tuple[str, str]] = set()
        """(arm, rule) that one process showed: a second one must show it, too."""
        self.unclear: dict[str, str] = {}
        """Why an arm gets no word, and is not accused either."""

    def why(self, name: str, timed_groups: Sequence[Timed]) -> str:
        """Why an arm's times are not credible, if probes repeat it; empty if they are."""
        if why := self.engine.session.why_suspect(name):
            return why
        readings = [timed.reading for timed in timed_groups if timed.reading and name in timed.reading.blocks]
        call_ns = min(min(reading.medians(name)) for reading in readings)

        def probe(**asked: Any) -> Probed:
            calls = PROBED_CALLS + SIGHTED_CALLS * asked["sights"]
            limit_s = CHECK_LIMIT_S + calls * call_ns / 1e9
            got: Probed = self.engine.session.call("probe", limit_s, arm=name, **asked)
            if self.engine.end_what_is_busy(got.busy):
                raise self.engine.retry()
            return got

        sets = max(reading.sets for reading in readings)
        sustained = max(reading.sights.get(name, 0) for reading in readings)
        kind = "cuda" if self.engine.cuda else "cpu"
        why = why_probed(probe, self.engine.seed, call_ns, sets, self._sights(readings), sustained, kind)
        why = self._if_sure(name, why, call_ns, readings)
        graphs = any(timed.group.graphs and name in timed.group.arms for timed in timed_groups)
        # Caching is asked first: where values come again within a block, it makes the block uneven, too.
        why = why or self._why_uneven(name, timed_groups) or self._why_ahead(name, readings, call_ns)
        why = why or self._why_between(name, readings)
        return why or (self._why_outside(name, call_ns, graphs) if self.engine.session.replaceable else "")

    def _if_sure(self, name: str, why: str, call_ns: float, readings: Sequence[Reading]) -> str:
        """Why an arm caches. Of long calls on a CPU there are few values, and a busy host interrupts each: a second process must
        show it; where none can be asked, a busy host leaves it open."""
        if not why or self.engine.cuda or call_ns <= LONG_NS["cpu"]:
            return why
        if self.engine.session.replaceable:
            return self._if_again(name, "caches", why)
        if share := _foreign(readings):
            self.unclear[name] = (
                f"{why}; or other processes interrupted the calls: they used {share:.0%} of the CPU time"
            )
            return ""
        return why

    def _why_uneven(self, name: str, timed_groups: Sequence[Timed]) -> str:
        """Compares the blocks of an arm with those of the baseline beside it; then longer blocks of each."""
        base, why = self.engine.baseline, ""
        for reading in (timed.reading for timed in timed_groups):
            if reading and name != base and reading.blocks.keys() >= {name, base}:
                why = why or why_uneven(*([unevenness(b) for b in _blocks(reading, arm)] for arm in (name, base)))
        if not why:
            return ""
        readings = [timed.reading for timed in timed_groups if timed.reading]
        # On a CPU by the process's CPU time in each call: a busy host interrupts any of them.
        mine, others = self._further(
            name, readings, lambda got: unevenness(got.cpu_ns or got.ticks_ns), why_always_uneven
        )
        why = why_always_uneven(mine, others)
        if not why or self.engine.cuda:
            return why
        if self.engine.session.replaceable:
            return self._if_again(name, "uneven", why)
        share = _foreign(readings)
        if share and median(mine) <= CLEARLY_UNEVEN * median(others):
            self.unclear[name] = (
                f"{why}; or other processes interrupted the calls: they used {share:.0%} of the CPU time"
            )
            return ""
        return why

    def _further(
        self,
        name: str,
        readings: Sequence[Reading],
        of: Callable[[TimedBlock], Seen],
        why: Callable[[Sequence[Seen], Sequence[Seen]], str],
    ) -> tuple[list[Seen], list[Seen]]:
        """What is seen of further blocks on new values, of an arm and of the baseline in turn: as long as they show it."""
        found: dict[str, list[Seen]] = {name: [], self.engine.baseline: []}
        for number in range(DOUBTS * UNEVEN_BLOCKS):
            if number % UNEVEN_BLOCKS == 0 and number and not why(*found.values()):
                break
            for arm, seen in found.items():
                call_ns = min(min(one.medians(arm)) for one in readings if arm in one.blocks)
                calls = max(PROBE_SETS, min(MAX_CALLS, round(UNEVEN_NS / call_ns)))
                asked: dict[str, Any] = {"calls": calls, "seeds": self.engine.seeds(PROBE_SETS)}
                seen.append(of(self.engine.session.call("block", CHECK_LIMIT_S, arm=arm, **asked)))
        mine, others = found.values()
        return mine, others

    def _if_again(self, name: str, rule: str, why: str) -> str:
        """Why, where an earlier process showed it, too; else times again in a new process."""
        if (name, rule) not in self.shown:
            self.shown.add((name, rule))
            raise self.engine.retry()
        return why

    def _why_between(self, name: str, readings: Sequence[Reading]) -> str:
        """Compares what passed after the calls of an arm and of the baseline; then in further blocks of each; then all again in a
        new process. The baseline itself would only make others look slower."""
        base = self.engine.baseline
        mine, others = ([one for r in readings for one in r.between.get(arm, [])] for arm in (name, base))
        alive = {arm.name for arm in self.engine.alive}
        if name == base or base not in alive or not others or not why_between(mine, others):
            return ""
        why = why_between(*self._further(name, readings, between, why_between))
        return self._if_again(name, "between", why) if why and self.engine.session.replaceable else why

    def _why_ahead(self, name: str, readings: Sequence[Reading], call_ns: float) -> str:
        """Compares blocks of the rounds with those whose inputs came last: their calls on a GPU, where all are queued before the
        inputs are there; on a CPU their first call. There further blocks must show it: of the two or three pairs of a short
        reading, one of ten shows it by chance. All is timed again, in a new process, before an arm is suspect."""
        host_bytes = 0 if self.engine.cuda else self.engine.input_bytes
        spots = [spot for reading in readings for spot in reading.spots.get(name, [])]
        timed, last = [one for one, _ in spots], [one for _, one in spots]
        if not spots or not (why := why_ahead(timed, last, host_bytes)):
            return ""
        if not self.engine.cuda or not self.engine.session.replaceable:
            why = self._why_ahead_alone(name, call_ns)
        return self._if_again(name, "ahead", why) if why and self.engine.session.replaceable else why

    def _why_ahead_alone(self, name: str, call_ns: float) -> str:
        """The same with blocks after the rounds."""
        found: dict[bool, list[float]] = {False: [], True: []}
        host_bytes, why = 0 if self.engine.cuda else self.engine.input_bytes, ""
        for _ in range(DOUBTS):
            for at_once in self.engine.rng.sample([False, True] * AHEAD_PAIRS, 2 * AHEAD_PAIRS):
                ticks_ns = self._block_at_once(name, call_ns, at_once)
                found[at_once].append(fmean(ticks_ns) if self.engine.cuda else ticks_ns[0])
            if not (why := why_ahead(found[False], found[True], host_bytes)):
                break
        return why

    def _block_at_once(self, name: str, call_ns: float, at_once: bool) -> list[float]:
        asked: dict[str, Any] = {"rest_ns": AHEAD_REST_NS, "at_once": at_once, "seeds": self.engine.seeds(PROBE_SETS)}
        if self.engine.cuda:
            calls = max(1, min(PROBE_SETS, round(AHEAD_NS / call_ns)))
            asked |= {"gate_ns": AHEAD_GATE_NS, "rest_ns": AHEAD_REST_NS + round(calls * call_ns)}
        else:
            calls = 1 if call_ns > VERY_LONG_NS["cpu"] else FEWEST_CALLS if call_ns > LONG_NS["cpu"] else PROBE_SETS
        limit_s = CHECK_LIMIT_S + 2 * calls * call_ns / 1e9
        got: TimedBlock = self.engine.session.call("block", limit_s, arm=name, calls=calls, **asked)
        return got.ticks_ns

    def _sights(self, readings: list[Reading]) -> int:
        """How often timed calls met the same values: often only where all of them had one buffer."""
        return MAX_CALLS if any(reading.sets == 1 for reading in readings) else 0

    def _why_outside(self, name: str, call_ns: float, graphs: bool) -> str:
        """Compares with this process's own clock, as it shows the baseline: detects work outside the timed calls."""
        if name == self.engine.baseline or all(arm.name != self.engine.baseline for arm in self.engine.alive):
            return ""
        calls = max(2, min(MAX_BATCH, round(BATCH_NS / call_ns)))
        around_ns, least, why = 0.0, (0.0, math.inf), ""
        kind = "cuda" if self.engine.cuda else "cpu"
        for number in range(OUTSIDE_TRIES):
            time.sleep(OUTSIDE_REST_S * (number >= DOUBTS))
            ticks_ns, wall_ns = self._batch(name, calls, graphs)
            if wall_ns - ticks_ns < least[1] - least[0]:
                least = ticks_ns, wall_ns
            if not (why := why_outside(*least, around_ns, kind)):
                break  # no baseline could allow less
            base_ticks_ns, base_wall_ns = self._batch(self.engine.baseline, calls, graphs)
            around_ns = max(around_ns, base_wall_ns - base_ticks_ns)
            if not (why := why_outside(*least, around_ns, kind)):
                break
        return why

    def _batch(self, name: str, calls: int, graphs: bool) -> tuple[float, int]:
        """(sum of the samples, time on this process's clock) of a batch, in ns."""
        self.engine.running = next(arm for arm in self.engine.alive if arm.name == name)
        self.engine.session.call("let_go", CHECK_LIMIT_S)
        asked: dict[str, Any] = {"calls": calls, "untimed": False}
        nodes, do = 1, "block"
        if graphs:
            nodes = self.engine.session.call("capture", CHECK_LIMIT_S, arm=name).nodes
            do, asked = "replay", {"replays": max(1, round(calls / nodes)), "untimed": False}
        begin = time.monotonic_ns()
        ticks_ns = self.engine.session.call(do, CHECK_LIMIT_S, arm=name, **asked).ticks_ns
        return nodes * sum(ticks_ns), time.monotonic_ns() - begin


def _foreign(readings: Sequence[Reading]) -> float:
    """The share of the CPU time that other processes used, if the host was busy; else 0."""
    busy = (one.host for one in readings if one.host and HostLoad.model_validate(one.host).is_busy)
    return next((float(host["foreign"]) for host in busy), 0.0)


def _blocks(reading: Reading, arm: str) -> Iterator[list[float]]:
    """The samples of each block. The protocol fixed reports single calls: they ran in bursts."""
    if reading.paired:
        yield from reading.blocks[arm]
        return
    ticks = [tick for block in reading.blocks[arm] for tick in block]
    for first in range(0, len(ticks), MAX_CALLS):
        yield ticks[first : first + MAX_CALLS]

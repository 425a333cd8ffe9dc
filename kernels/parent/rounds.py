"""The protocol `paired`: order of arms, number of rounds, stop rule. Drives a real or simulated bench. Parent side.

In each round every arm runs one block; the order is random and balanced over pairs of rounds; the baseline also runs against
itself (A/A).
"""

from __future__ import annotations

import math
import time
from functools import partial
from statistics import fmean
from typing import Any

from kernels.analysis.blocks import (
    GATE_FACTOR,
    MAX_GATE_NS,
    Estimate,
    by_graph,
    calls_for,
    gate_for,
    is_long,
    rest_for,
)
from kernels.analysis.statistics import MIN_ROUNDS, WIDEST_MARGIN, half_width, margin_from, paired_speedup
from kernels.contract.replies import TimedBlock
from kernels.operations.base import Distribution
from kernels.parent.drive import AA, MOST_SETS, Drive, kernel_of, prepare
from kernels.parent.reading import Reading

FIRST_GRAPH_GATE_NS = 500_000
"""Gate of the first graph, before its launch time is known."""
MAX_GATE_REPEATS = 3
KEEP_EVERY = 5
"""An output is kept in one block of so many."""
DROP_AFTER, DROP_BELOW = MIN_ROUNDS, 0.5
LEAST_CAPTURES = 40
"""Minimum rounds with graphs: capture bias is autocorrelated over about 12 rounds."""
WARM_CAP_S, CLOCK_TOLERANCE = 5.0, 0.01
COLD_CALLS, COLD_BLOCKS = 100, 8
"""Single calls on cold inputs beside graph replays, for p90 and p99, in at most this many blocks."""
OFTEN_UNTIL, SPOT_OFTEN, SPOT_EVERY, SPOT_EVERY_GRAPHS = 16, 2, 4, 8
"""One round of SPOT_OFTEN has spots, and later one of SPOT_EVERY; with graphs, which have more rounds, one of
SPOT_EVERY_GRAPHS."""
SPOT_KEEP_CUDA = 2
"""Of spots an output is checked: on a CPU that of the first call, which is compared; on a GPU of one in so many spots. There the
calls' mean is compared, and a reference takes longer."""
ODD_EVERY = 2
"""Of spots after the first ones, those of one round of so many have one call with inputs of another distribution."""
SPOT_GATE_NS = 500_000
"""Added to the gate: behind it the inputs are written."""
CHUNK_NS, LEAD_NS, SUSTAINED_NS = 20e6, 250e6, 1e9
"""Sustained: chunk length, untimed lead, and minimum timed length of a block."""
SUSTAINED_ROUNDS, SUSTAINED_LOOK = (MIN_ROUNDS, 12), 2
AA_PRECISION = 2
"""The baseline against itself may be this many times less precise than the others: it decides the margin only."""
PATIENCE = 20
"""The rounds that a word needs may take so many time budgets: without them a measurement says nothing."""
GRACE = 1 / 3
"""Share of its time budget by which a wide protocol may exceed it."""
SLOWED = "the device slowed down because of heat"


class Paired:
    """The protocol `paired` on one group of arms: warm-up, then rounds until the intervals are narrow enough."""

    def __init__(
        self, drive: Drive, mode: str, estimates: dict[str, Estimate], cuda: bool, graphs: bool | None = None
    ) -> None:
        self.drive, self.mode, self.cuda = drive, mode, cuda
        self.graphs = by_graph(mode, estimates) if graphs is None else graphs
        self.estimates = dict(estimates)
        self.active = [*drive.arms, drive.baseline + AA]
        self.estimates[drive.baseline + AA] = estimates[drive.baseline]
        self.reading = Reading(mode, {arm: [] for arm in self.active})
        self.calls = {arm: calls_for(drive.plan, self.estimates[arm], cuda) for arm in self.active}
        self.graph_gate = dict.fromkeys(self.active, FIRST_GRAPH_GATE_NS)
        plan, long = drive.plan, mode == "sustained"
        self.least, self.most = SUSTAINED_ROUNDS if long else (plan.min_rounds, plan.max_rounds)
        if mode == "graph":
            self.least = min(self.most, max(self.least, LEAST_CAPTURES))
        self.look_every = SUSTAINED_LOOK if long else plan.look_every

    def measure(self) -> Reading:
        reading = self.reading
        prepared = prepare(self.drive, self._wanted_sets())
        reading.sets, reading.covered = prepared.sets, prepared.covered
        if reading.sets > 1:
            self.calls = {arm: min(calls, reading.sets) for arm, calls in self.calls.items()}
        self.flush = self.cuda and self.mode in ("cold", "graph") and not reading.covered
        reading.flushed = self.flush
        reading.rest = self.drive.plan.rest if self.cuda and self.mode != "sustained" else 0.0
        self._warm_up()
        begin = time.monotonic()
        self._rounds()
        reading.rounds_s = time.monotonic() - begin
        if self.mode == "graph":
            self._cold_pass()
        reading.calls = self.calls
        return reading

    def _wanted_sets(self) -> int:
        """One for each call of a block, so that no call meets values twice; sustained: more than the cache holds."""
        return {"warm": 1, "sustained": 0}.get(self.mode, max(2, *self.calls.values()))

    def _seeds(self, calls: int) -> list[int]:
        """Of the values of a block: of its own, so that nobody saw them in the block of another arm."""
        return [self.drive.fresh_seed() for _ in range(min(calls, self.reading.sets))]

    def _warm_up(self) -> None:
        """Runs all arms in turn for warmup_s and until the SM clock is stable (at most 5 s)."""
        begin, clock = time.monotonic(), None
        self._capture(self.active)
        one = self._block if self.mode not in ("sustained", "e2e") else self._calls
        while True:
            for arm in self._each_kernel():
                self.drive.on_step(arm, "warm-up")
                one(arm)
            spent, before, clock = time.monotonic() - begin, clock, self.drive.sm_mhz()
            settled = clock is None or (before is not None and abs(clock - before) <= CLOCK_TOLERANCE * before)
            if spent >= self.drive.plan.warmup_s and (settled or spent >= WARM_CAP_S):
                break

    def _each_kernel(self) -> list[str]:
        return [arm for arm in self.active if not arm.endswith(AA)]

    def _capture(self, order: list[str]) -> None:
        """Captures a new graph for each arm, in the order of the round, after freeing all old ones.

        Captures of the same calls differ by up to 2% below 10 us. A new capture each round turns this bias into noise
        that the interval includes.
        """
        if self.graphs:
            self.drive.bench.call("drop_graphs")
            for arm in order:
                self.drive.call(arm, "capture", graph=arm)

    def _rounds(self) -> None:
        plan, reading, drive = self.drive.plan, self.reading, self.drive
        budget_s = plan.budget_s * max(1, len(drive.arms) - 1)
        deadline = time.monotonic() + budget_s
        patience_s = math.inf if self.mode == "sustained" else (PATIENCE - 1) * budget_s
        keep_in = 0
        drive.slowed()
        spot_in = 0
        while (number := len(reading.orders)) < self.most:
            order = self._order(number)
            often = SPOT_OFTEN if number < OFTEN_UNTIL else SPOT_EVERY
            if number % (every := SPOT_EVERY_GRAPHS if self.graphs else often) == 0:
                spot_in = number + drive.rng.randrange(min(every, self.most))
            if number % KEEP_EVERY == 0:
                keep_in = number + drive.rng.randrange(min(KEEP_EVERY, self.most))
            self._capture(order)
            ticks = {arm: self._in_round(arm, number, keep=number == keep_in) for arm in order}
            drive.look()
            if drive.slowed() and reading.repeated < self.most and time.monotonic() < deadline:
                reading.repeated += 1
                continue
            reading.orders.append(order)
            for arm in order:
                reading.blocks[arm].append(ticks[arm])
            if number == spot_in:
                deadline += self._spots(order, ticks)
            drive.seen(drive.baseline, reading.blocks)
            if number + 1 == DROP_AFTER:
                self._drop_the_hopeless()
            late_s = time.monotonic() - deadline
            if late_s > (self._grace_s(budget_s) if number + 1 >= MIN_ROUNDS else patience_s):
                self._note(f"stopped at its time budget after {number + 1} round{'s' * (number > 0)}")
                self._note_precision()
                break
            if self._enough(number + 1):
                break
        else:
            if self.most > min(self.least, plan.min_rounds):
                self._note_precision()
        if reading.repeated:
            reading.notes.append(f"{reading.repeated} rounds were measured again: {SLOWED}")

    def _grace_s(self, budget_s: float) -> float:
        """By how much a wide protocol, such as *quick*, may exceed its time budget: it goes on while A/A is so noisy that
        nothing is decided."""
        aa = paired_speedup(*self.reading.pairs(self.drive.baseline, self.drive.baseline + AA))
        return GRACE * budget_s if self.drive.plan.is_wide and margin_from(aa) > WIDEST_MARGIN else 0.0

    def _in_round(self, arm: str, number: int, keep: bool) -> list[float]:
        """One block of an arm in a round. `keep`: keeps the output of a random call."""
        self.drive.on_step(arm, f"round {number + 1}, at most {self.most}")
        keep = keep and self.mode != "sustained"
        ticks = self._block(arm)
        if keep:
            self._keep(arm)
        return ticks

    def _spots(self, order: list[str], ticks: dict[str, list[float]]) -> float:
        """One more block of each kernel in this round, whose inputs come last: nobody has worked on them before the calls.
        Returns the seconds that it took."""
        if self.mode not in ("cpu", "cold", "warm", "graph"):
            return 0.0
        begin = time.monotonic()
        one = self._replays if self.mode == "graph" else self._calls
        kind = self._odd_kind()
        for arm in order:
            if not arm.endswith(AA):
                self.drive.on_step(arm, "inputs that come last")
                keep = not self.cuda or kind is not None or self.drive.rng.randrange(SPOT_KEEP_CUDA) == 0
                last = one(arm, at_once=True, early=self.cuda, kind=kind).ticks_ns
                if keep:
                    self._keep(arm, first=not self.cuda)
                self.reading.spots.setdefault(arm, []).append((self._spot(ticks[arm]), self._spot(last)))
        return time.monotonic() - begin

    def _odd_kind(self) -> Distribution | None:
        """The distribution of one call's inputs in the spots of this round: a kernel that is right only where it may be checked
        knows single calls, and what the first calls of a block get. None: all have usual inputs."""
        kinds, rng = self.drive.kinds, self.drive.rng
        first = not self.reading.spots
        return rng.choice(kinds) if kinds and (first or rng.randrange(ODD_EVERY) == 0) else None

    def _odd(self, kind: Distribution | None, sets: int) -> dict[str, Any]:
        """One of the second half of a block's calls: what a kernel learns in the first half was work."""
        return {} if kind is None or sets < 2 else {"odd": (self.drive.rng.randrange(sets // 2, sets), kind)}

    def _spot(self, ticks_ns: list[float]) -> float:
        return fmean(ticks_ns) if self.cuda else ticks_ns[0]

    def _keep(self, arm: str, first: bool = False) -> None:
        """Chooses one output of the block that has just run, or its first. Until now all were alive, and nobody knew which."""
        rng = self.drive.rng
        position = 0 if first else rng.randrange(MOST_SETS)
        self.drive.call(arm, "keep", position=position, seed=rng.of_inputs())

    def _order(self, number: int) -> list[str]:
        """A random permutation, then its reverse: every arm is equally often early and late."""
        if number % 2:
            return [arm for arm in reversed(self.reading.orders[-1]) if arm in self.active]
        return self.drive.rng.sample(self.active, len(self.active))

    def _block(self, arm: str) -> list[float]:
        """One block; repeated, with new values, if the host queued it too slowly. In each chance copies outputs early: the time
        that it takes must not tell whether the block will be checked."""
        ways = {"e2e": self._host_calls, "sustained": self._back_to_back}
        queued = partial(self._replays if self.mode == "graph" else self._calls, early=True)
        one = ways.get(self.mode, queued)
        for _ in range(MAX_GATE_REPEATS):
            got = one(arm)
            if got.gated:
                break
        else:
            self._note(f"{kernel_of(arm)}: the host queued blocks too slowly; times may include launch gaps")
        self.reading.note_between(arm, got)
        if clock := got.sm_mhz:
            self.reading.sm_mhz.setdefault(arm, []).append(clock)
        return got.ticks_ns

    def _note(self, note: str) -> None:
        if note not in self.reading.notes:
            self.reading.notes.append(note)

    def _rest_ns(self, arm: str, calls: int) -> int:
        return rest_for(self.drive.plan, calls, self.estimates[arm].call_ns) if self.cuda else 0

    def _untimed(self, arm: str) -> bool:
        return not (self.cuda and is_long(self.estimates[arm].call_ns))

    def _replays(
        self, arm: str, at_once: bool = False, early: bool = False, kind: Distribution | None = None
    ) -> TimedBlock:
        replays = max(1, round(self.calls[arm] / self.reading.sets))
        asked: dict[str, Any] = {
            "early": early,
            "gate_ns": self.graph_gate[arm],
            "rest_ns": self._rest_ns(arm, replays * self.reading.sets),
            "seeds": self._seeds(self.reading.sets),
        }
        if at_once:
            asked |= {"at_once": True, "gate_ns": min(MAX_GATE_NS, self.graph_gate[arm] + SPOT_GATE_NS)}
            asked |= self._odd(kind, self.reading.sets)
        got: TimedBlock = self.drive.call(arm, "replay", graph=arm, replays=replays, flush=self.flush, **asked)
        if not got.gated and not at_once:
            self.graph_gate[arm] = min(MAX_GATE_NS, int(GATE_FACTOR * got.enqueue_ns))
        return got

    def _calls(
        self, arm: str, at_once: bool = False, early: bool = False, kind: Distribution | None = None
    ) -> TimedBlock:
        calls, guess = self.calls[arm], self.estimates[arm]
        gate = gate_for(calls, guess.enqueue_ns) if self.cuda and not guess.synchronises else 0
        asked: dict[str, Any] = {"gate_ns": gate, "rest_ns": self._rest_ns(arm, calls), "untimed": self._untimed(arm)}
        asked |= {"seeds": self._seeds(calls), "early": early}
        if at_once:
            asked |= {"at_once": True, "gate_ns": min(MAX_GATE_NS, gate + SPOT_GATE_NS * (gate > 0))}
            asked |= self._odd(kind, min(calls, self.reading.sets))
        got: TimedBlock = self.drive.call(arm, "block", calls=calls, flush=self.flush, **asked)
        if not got.gated and not at_once:
            slower = max(guess.enqueue_ns * 1.5, got.enqueue_ns / calls)
            self.estimates[arm] = Estimate(guess.call_ns, slower)
            self.calls[arm] = min(calls, calls_for(self.drive.plan, self.estimates[arm], self.cuda))
        return got

    def _host_calls(self, arm: str) -> TimedBlock:
        calls = self.calls[arm]
        asked: dict[str, Any] = {
            "rest_ns": self._rest_ns(arm, calls),
            "untimed": self._untimed(arm),
            "seeds": self._seeds(calls),
        }
        return self.drive.call(arm, "e2e", calls=calls, **asked)

    def _back_to_back(self, arm: str) -> TimedBlock:
        """At least 1 s back to back, after a lead. One call in it gets new values, and its output is kept."""
        each_ns = self.estimates[arm].call_ns
        calls = max(1, round(CHUNK_NS / each_ns))
        lead, chunks = (math.ceil(ns / (calls * each_ns)) for ns in (LEAD_NS, SUSTAINED_NS))
        asked = {"calls": calls, "lead": lead, "chunks": chunks, "seed": self.drive.fresh_seed()}
        self.reading.sights[arm] = math.ceil(calls * (lead + chunks) / self.reading.sets)
        return self.drive.call(arm, "sustained", graph=arm, seeds=self._seeds(self.reading.sets), **asked)

    def _cold_pass(self) -> None:
        """Single calls on cold inputs: graph replays average out the spread of single launches."""
        timed = [arm for arm in self.drive.arms if arm not in self.reading.left]
        order = [arm for arm in timed if not self.estimates[arm].synchronises]
        for arm in self.drive.rng.sample(order, len(order)):
            self.drive.on_step(arm, "single calls")
            ticks: list[float] = []
            for _ in range(COLD_BLOCKS):
                if len(ticks) < COLD_CALLS:
                    ticks += got.ticks_ns if (got := self._calls(arm)).gated else []
            if ticks:
                self.reading.cold[arm] = ticks

    def _drop_the_hopeless(self) -> None:
        """Drops a kernel that is below 0.5x in each of DROP_AFTER rounds; keeps its n."""
        base = self.reading.medians(self.drive.baseline)
        for arm in [a for a in self.active if kernel_of(a) != self.drive.baseline]:
            if max(b / a for b, a in zip(base, self.reading.medians(arm), strict=True)) < DROP_BELOW:
                self.active.remove(arm)
                self.reading.left[arm] = DROP_AFTER

    def _candidates(self) -> list[str]:
        return [arm for arm in self.active if kernel_of(arm) != self.drive.baseline]

    def width(self, arm: str) -> float:
        """Half-width of the interval of an arm's ratio to the baseline."""
        _, low, high = paired_speedup(*self.reading.pairs(self.drive.baseline, arm))
        return half_width(low, high)

    def widest(self) -> tuple[float, str]:
        """Half-width of the widest interval of the running arms, and its arm. Without another arm: of the baseline
        against itself."""
        return max((self.width(arm), arm) for arm in self._candidates() or [self.drive.baseline + AA])

    def _let_the_precise_go(self) -> None:
        """Arms whose interval is narrow enough leave: the others need their time. None leaves before A/A is as narrow: where
        rounds stick to a level, few of them look precise by chance."""
        for arm in self._candidates():
            if self.width(arm) <= self.drive.plan.precision:
                self.active.remove(arm)

    def _enough(self, rounds: int) -> bool:
        plan = self.drive.plan
        if rounds < self.least or (rounds - self.least) % self.look_every:
            return False
        if self.width(self.drive.baseline + AA) > AA_PRECISION * plan.precision:
            return False
        if self.widest()[0] <= plan.precision:
            return True
        self._let_the_precise_go()
        return False

    def _note_precision(self) -> None:
        width, arm = self.widest()
        if width > (wanted := self.drive.plan.precision):
            who = f"{kernel_of(arm)} against itself" if arm.endswith(AA) else kernel_of(arm)
            self.reading.notes.append(f"precision not reached: half-width {width:.2%} of {who}; goal {wanted:.2%}")

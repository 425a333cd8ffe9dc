"""One call of measure(): correct before, timed together, correct after. What kernels/measuring.py does with a child.

Used in the caller's own process, by kernels/api.py only.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch

from kernels.analysis import blocks, roofline
from kernels.analysis.correctness import judge
from kernels.analysis.suspicion import why_leaks, why_probed
from kernels.host.device import Device, NoSuchDevice, find_device, locked, nvml, says_once
from kernels.host.telemetry import Telemetry
from kernels.inprocess.adhoc import Brought, InProcess, Kernel, Source, as_output, exact_dtype, in_dtype, peak_dtype
from kernels.parent import rounds
from kernels.parent.drive import Drive
from kernels.parent.estimate import estimate
from kernels.parent.groups import groups, uncapturable
from kernels.workload import Protocol

BASELINE = "baseline"
INCORRECT, SUSPECT, IMPOSSIBLE, DISAGREES = "incorrect", "suspect", "impossible", "disagrees with its baseline"
"""Words of a result without a speedup."""
NO_ERROR = dict.fromkeys(
    ("nonfinite", "max_abs", "yard_abs", "rounding", "largest", "frobenius", "yard_frobenius", "row", "yard_row"), 0.0
)
"""A reading of an output that nothing is compared with: what is wrong all the same (never written, ...) stands beside."""


@contextlib.contextmanager
def held(device: torch.device) -> Iterator[Telemetry]:
    """The device, held against other measurements on this host, without gradients.

    No thread watches it, as a run's does: here it would take the callables' time.
    """
    known = _as_listed(device)
    here = torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
    with locked(known, on_wait=says_once()), nvml() as lib, here, torch.no_grad():
        yield Telemetry(lib, known)


def _as_listed(device: torch.device) -> Device:
    if device.type == "cpu":
        return find_device("cpu")
    properties = torch.cuda.get_device_properties(device)
    uuid = f"GPU-{properties.uuid}"
    with contextlib.suppress(NoSuchDevice):
        return find_device(uuid)
    return Device("unlisted", uuid, properties.name)  # no NVML: it has a lock, and no telemetry


def problem_of(bench: InProcess, source: Source, reference: Kernel | None, flops: float, traffic: int) -> Brought:
    """The problem, after the first call of every callable. The baseline is the truth only where there is no reference."""
    outs = {arm: bench.call("first", arm=arm, tensors=source.draw(source.seed))["out"] for arm in bench.arms}
    arm = BASELINE if BASELINE in outs else next(iter(outs))
    truth, like, exact, tensors = bench.arms[arm], outs[arm], None, source.draw(source.seed)
    whose = BASELINE if arm == BASELINE else ""
    if reference is not None:
        with bench.aside():
            like = as_output("the reference", reference(*in_dtype(tensors, None)))
            exact = exact_dtype(reference, tensors, like.dtype)
        whose, truth = "reference", reference
        if exact != torch.float64:
            source.notes.append(f"the reference does not take and keep float64: it was computed in {exact}")
    peak = peak_dtype([*tensors, like])
    return Brought(
        dtype=peak or "float16",
        bounded=peak is not None,
        source=source,
        truth=truth,
        whose=whose,
        exact=exact,
        output=(tuple(like.shape), like.dtype),
        aside=bench.aside,
        work=flops,
        traffic=traffic,
    )


@dataclass(frozen=True)
class Verdict:
    correct: bool | None
    why: str = ""
    word: str = ""
    """Why there is no speedup, in a word; empty if there may be one."""


class Comparison:
    """One call of measure(): correct before, timed together, correct after."""

    def __init__(self, bench: InProcess, problem: Brought, plan: Protocol, telemetry: Telemetry) -> None:
        self.bench, self.problem, self.plan, self.telemetry = bench, problem, plan, telemetry
        self.bench.problem = problem
        self.rng = random.Random(plan.seed)
        self.cuda = bench.kind == "cuda"
        self.notes = list(self.problem.source.notes)
        self.verdicts: dict[str, Verdict] = {}
        self.reading: rounds.Reading | None = None

    def measure(self) -> None:
        seeds = [self._seed() for _ in range(self.plan.verify_seeds)]
        for arm in self.bench.arms:
            self.verdicts[arm] = self._verified(arm, seeds)
        self.bench.call("forget_references")
        timed = [arm for arm, verdict in self.verdicts.items() if verdict.correct is not False]
        if timed:
            self._time(timed)
        if others := self.telemetry.others():
            self.notes.append(f"contended: {len(others)} other processes are on this GPU")

    def _seed(self) -> int:
        return self.rng.randrange(2**31)

    # --- correctness ----------------------------------------------------------------------------------------------

    def _verified(
        self, arm: str, seeds: list[int], timed: Sequence[dict[str, Any]] = (), changed: bool = False
    ) -> Verdict:
        """The verdict on checks with these seeds, and on the outputs of timed calls beside them."""
        readings = list(timed)
        flags = {"inputs_changed": changed, "shared": False}
        for seed in seeds:
            got = self.bench.call("verify", arm=arm, seed=seed, thorough=True)
            readings.append(got["reading"])
            flags = {flag: flags[flag] or got[flag] for flag in flags}
        return self._judged(arm, readings, flags)

    def _judged(self, arm: str, readings: list[dict[str, Any]], flags: dict[str, bool]) -> Verdict:
        dtype = str(self.problem.output[1]).removeprefix("torch.")
        if self.problem.exact is None:
            alone = [NO_ERROR | {what: reading.get(what) for what in ("late", "unwritten")} for reading in readings]
            found = judge(alone, "float32", flags)
        else:
            found = judge(readings, dtype, flags)
        if not found["correct"]:
            return Verdict(False, found["why"], INCORRECT)
        if self.problem.exact is not None:
            return Verdict(True)
        return self._agreement(arm, readings)

    def _agreement(self, arm: str, readings: list[dict[str, Any]]) -> Verdict:
        """Without a reference: nothing is known to be right, but what is not what the baseline gives is not compared."""
        if arm == BASELINE or BASELINE not in self.bench.arms:
            return Verdict(None, "not checked against a reference")
        other = next((r for r in readings if r.get("wrong_kind") or not r["allclose_1e-2"]), None)
        if other is None:
            return Verdict(None, "not checked against a reference; agrees with the baseline at 1e-2")
        how = other.get("wrong_kind") or f"largest difference {other['max_abs']:.3g}"
        return Verdict(None, f"not checked against a reference; disagrees with the baseline at 1e-2: {how}", DISAGREES)

    # --- timing ---------------------------------------------------------------------------------------------------

    def _time(self, arms: list[str]) -> None:
        self.against = BASELINE if BASELINE in arms else arms[0]
        drive = Drive(self.bench, arms, self.against, self.plan, self._seed(), sm_mhz=self.telemetry.sm_mhz)
        estimates = estimate(drive, self.cuda)
        uncaptured = uncapturable(drive, estimates, self.cuda)
        found = groups(drive, estimates, self.cuda, uncaptured)
        group = found[-1]  # if any arm has to be launched call by call, all are
        if blocks.by_graph(blocks.choose_mode(self.plan, estimates, self.cuda), estimates) and not group.graphs:
            self.notes.append("not every callable can be captured as a CUDA graph: all were launched call by call")
        for arm in [arm for arm in arms if estimates[arm].synchronises]:
            self.notes.append(f"{arm} waits for the device by itself: launch gaps are in its times")
        self.reading = rounds.Paired(drive, group.mode, estimates, self.cuda, group.graphs).measure()
        self.bench.call("release")
        got = self.bench.call("recheck")
        self.bench.call("prepare", seeds=[self._seed()], rotate=False)
        for arm in arms:
            self.verdicts[arm] = self._verdict_after(arm, got, self.reading)

    def _verdict_after(self, arm: str, got: dict[str, Any], reading: rounds.Reading) -> Verdict:
        """On an arm that has been timed: outputs of timed calls, one more check, and whether its times can be true."""
        before = self.verdicts[arm]
        timed = [reading for owner, reading in got["readings"] if owner == arm]
        after = self._verified(arm, [self._seed()], timed, arm in got["changed_inputs"])
        if after.word:
            return replace(after, why=f"in timed calls: {after.why}" if not before.word else before.why)
        if why := self._why_suspect(arm, reading) or why_leaks(got["grown"].get(arm, [])):
            return Verdict(before.correct, why, SUSPECT)
        if not before.word and (why := self._why_impossible(arm, reading)):
            return Verdict(before.correct, why, IMPOSSIBLE)
        return before

    def _why_suspect(self, arm: str, reading: rounds.Reading) -> str:
        if arm in self.bench.changed:
            return f"changed global state: {self.bench.changed[arm]}"
        return why_probed(lambda **asked: self.bench.call("probe", arm=arm, **asked), self._seed, p50_ns(reading, arm))

    @property
    def peak(self) -> roofline.Peak | None:
        if not self.cuda or not self.problem.bounded:
            return None
        return roofline.peak_of(torch.cuda.get_device_name(self.problem.source.device))

    def _why_impossible(self, arm: str, reading: rounds.Reading) -> str:
        ms = p50_ns(reading, arm) / 1e6
        cache_bytes = self.bench.clock.cache_bytes
        return roofline.why_impossible(self.problem, ms, self.peak, reading.touched_once, cache_bytes)


def p50_ns(reading: rounds.Reading, arm: str) -> float:
    return median(tick for block in reading.blocks[arm] for tick in block)

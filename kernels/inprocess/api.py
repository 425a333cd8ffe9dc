"""measure(): the instrument for callables instead of kernel files.

Everything runs in the caller's process: a crash or hang of a callable affects the caller. PyTorch settings and
functions that a callable changes are detected and restored, and the callable is suspect. Threads and processes that it
leaves are not detected. `python -m kernels run` and the site give kernels a separate process with limits.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Required, TypedDict, Unpack, overload

import torch

from kernels.analysis import roofline, statistics
from kernels.analysis.peaks import Peak, peak_of
from kernels.analysis.verdicts import why_noisy
from kernels.contract.arm_result import Status, Verdict
from kernels.inprocess.adhoc import Kernel, Source
from kernels.inprocess.judged import ASK, BASELINE, UNKNOWN
from kernels.inprocess.session import Comparison, InProcess, held, listed, problem_of
from kernels.inprocess.writes import give_outputs
from kernels.parent.arm import Arm
from kernels.parent.drive import AA
from kernels.parent.reading import Reading
from kernels.parent.results import reading_fields, speedup, times
from kernels.protocol import Protocol
from kernels.report.cells import three_digits


@dataclass(frozen=True)
class Figures:
    """p50 of all timed calls, with the interval from the rounds' medians, in microseconds. None: not timed."""

    p50_us: float | None = None
    p50_low_us: float | None = None
    p50_high_us: float | None = None
    n: int = 0
    """Timed calls; with graphs, timed replays."""
    rounds: int = 0

    def cells(self, name: str) -> list[str]:
        p50, low, high = map(three_digits, (self.p50_us, self.p50_low_us, self.p50_high_us))
        return [name, p50, f"{low} to {high}", str(self.n), str(self.rounds)]


@dataclass(frozen=True)
class Measured(Figures):
    """Result of one callable. `print` it, or use `as_dict`."""

    name: str = ""
    word: str = ""
    """FASTER, SLOWER, SAME, UNDECIDED (without a speedup where others interrupted its calls), "needs more rounds"; or why
    there is no verdict: incorrect, suspect, impossible,
    "disagrees with its baseline", "its baseline is ...", "correctness unknown" (no reference). Empty without a
    baseline."""
    speedup: float | None = None
    """Baseline time / this time, from pairs within rounds. low, high: nominal 99% interval. It includes the spread between
    processes that was measured on this device. It counts for nothing while `correct` is not True."""
    low: float | None = None
    high: float | None = None
    correct: bool | None = None
    """Judged by the reference. Without one: None, or False for faults that need no reference (never written, ...)."""
    why: str = ""
    """Reason for `correct` or `word`, as a sentence; may be empty."""
    baseline: Figures | None = None
    mode: str = ""
    """cpu, cold, graph, ..."""
    seed: int | None = None
    """Of the inputs: Protocol(seed=...) repeats them. Drawn for each call of measure(), unless the protocol names one."""
    margin: float = statistics.MARGIN
    """FASTER and SLOWER need more than this difference. Above 5% the word is UNDECIDED, and `why` says so."""
    aa: tuple[float, float, float] | None = None
    """(ratio, low, high) of the baseline (without one: the first timed callable) against itself."""
    tflops: float | None = None
    gb_per_s: float | None = None
    limit_share: float | None = None
    """Share of this GPU's speed of light for the given FLOPs and bytes; 0 to 1."""
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        head = f"{self.name}: {self.word or 'measured'}"
        if self.speedup is not None:
            head += f", {self.speedup:.3f}x its baseline ({self.low:.3f} to {self.high:.3f})"
        table = [self.cells(self.name)] if self.n else []
        table += [self.baseline.cells(BASELINE)] if self.baseline else []
        lines = [head, *_aligned([["", "p50 us", "interval", "n", "rounds"], *table] if table else [])]
        lines.append(f"  correct: { {True: 'yes', False: 'no', None: 'unknown'}[self.correct] }")
        lines += [f"  why: {self.why}"] if self.why else []
        if table:
            aa = ", A/A {:.3f} ({:.3f} to {:.3f})".format(*self.aa) if self.aa else ""
            lines.append(f"  mode: {self.mode}, margin {self.margin:.1%}{aa}")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def _aligned(table: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [("  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True))).rstrip() for row in table]


class How(TypedDict, total=False):
    """The keywords of `measure`."""

    inputs: Required[Any]
    reference: Kernel | Literal["baseline"] | None
    out: Kernel | None
    device: torch.device | str | None
    protocol: Protocol | None
    name: str
    flops: float | None
    bytes_moved: int | None


@overload
def measure(
    candidates: Mapping[str, Kernel], baseline: Kernel | None = None, **how: Unpack[How]
) -> dict[str, Measured]: ...
@overload
def measure(candidates: Kernel, baseline: Kernel | None = None, **how: Unpack[How]) -> Measured: ...


def measure(
    candidates: Kernel | Mapping[str, Kernel],
    baseline: Kernel | None = None,
    *,
    inputs: Any,
    reference: Kernel | Literal["baseline"] | None = None,
    out: Kernel | None = None,
    device: torch.device | str | None = None,
    protocol: Protocol | None = None,
    name: str = "",
    flops: float | None = None,
    bytes_moved: int | None = None,
) -> Any:
    """Is it correct, and is it faster? Returns a Measured; for a mapping of callables, a Measured by name.

    candidates: called with the inputs as positional arguments. Each call returns a new tensor (floating-point, integer
        or bool), or several in a tuple, and does not change its inputs. Or it writes them into its argument `out`.
        Several candidates are timed in the same rounds, against the same baseline.
    baseline: what they are compared with. Without one there are latencies, but no verdict.
    inputs: a function of a seed that returns a tuple of tensors, with the same shapes for every seed; torch's random
        numbers are seeded. Or a tuple or list of tensors: floating-point ones are redrawn from N(0, 1) with the same
        shape, dtype and layout; others are kept. The caller's own tensors are copied, never written.
    reference: a plain implementation. In float64 (or float32, if float64 is unsupported) it gives the correct values;
        its error in the inputs' own dtype is the yardstick. "baseline": the baseline is right. Without one, `correct`
        stays None and no word is given: a candidate that disagrees with the baseline gets no speedup, any other has
        one that is marked "correctness unknown".
    out: makes what callables with a parameter `out` write into, from the inputs, within the timed call. Default: like
        the output of the reference, or of a baseline that returns one.
    device: where to put the inputs. Default: where they are.
    flops, bytes_moved: of one call (bytes read and written). They give rates and, on known GPUs, impossible times.

    Waits if another process on this host is measuring on the device. Raises TypeError or ValueError for what cannot be
    measured. Exceptions of callables propagate.
    """
    plan = protocol or Protocol()
    if plan.name != "paired" or plan.verify_only:
        raise ValueError("measure() times in pairs: 'fixed' and verify_only are for python -m kernels run")
    if "seed" not in plan.model_fields_set:  # nobody can know the inputs of a later call
        plan = plan.model_copy(update={"seed": secrets.randbelow(2**31)})
    arms = _named(candidates, name)
    reference = _right(reference, baseline)
    source = Source(inputs, device, plan.seed)
    if reference is None:
        source.notes.insert(0, ASK)
    with held(source.device) as telemetry:
        bench = InProcess(source.device, arms | ({BASELINE: baseline} if baseline else {}))
        give_outputs(bench, source, reference, out)
        problem = problem_of(bench, source, reference, flops or 0, bytes_moved or 0)
        comparison = Comparison(bench, problem, plan, telemetry)
        comparison.measure()
        found = {arm: _result(comparison, arm) for arm in arms}
    return found if isinstance(candidates, Mapping) else next(iter(found.values()))


def _right(reference: Any, baseline: Kernel | None) -> Kernel | None:
    """The reference as a callable. Raises ValueError or TypeError."""
    named = isinstance(reference, str) and reference == BASELINE
    if named and baseline is None:
        raise ValueError('reference="baseline" needs a baseline')
    found = baseline if named else reference
    if found is not None and not callable(found):
        raise TypeError('reference must be a callable, or "baseline"')
    return found


def _named(candidates: Any, name: str) -> dict[str, Kernel]:
    if isinstance(candidates, Mapping):
        arms = dict(candidates)
        if name:
            raise ValueError("`name` is for one callable: a mapping names its own")
    else:
        own = getattr(candidates, "__name__", type(candidates).__name__)
        arms = {name or (own if own.isidentifier() and own != BASELINE else "candidate"): candidates}
    if not arms or not all(isinstance(arm, str) and callable(call) for arm, call in arms.items()):
        raise TypeError("measure() takes a callable, or a mapping of names to callables with at least one")
    if BASELINE in arms or any(arm.endswith(AA) for arm in arms):
        raise ValueError(f"a candidate's name may not be '{BASELINE}', nor end in '{AA}'")
    return arms


def _result(of: Comparison, name: str) -> Measured:
    arm, timed = of.arms[name], of.timed
    found = Measured(
        name=name, correct=arm.correctness["correct"], why=_why(arm), notes=tuple(of.notes), seed=of.plan.seed
    )
    found = replace(found, word=_word(arm))
    if timed is None or timed.reading is None or name not in timed.reading.blocks or not arm.is_ok:
        return found
    reading, fields = timed.reading, reading_fields(timed.reading, of.against, of.device_name)
    latencies = figures(reading, name)
    notes = (*found.notes, *fields["notes"], *_about_inputs(reading))
    if name in reading.left:
        notes += (f"{name} stopped after round {reading.left[name]}: less than half as fast as {of.against}",)
    how = {"mode": reading.mode, "margin": fields["margin"], "aa": fields["aa"], "notes": notes}
    found = replace(found, **asdict(latencies), **_rates(of, latencies), **how)
    return _compared(found, of, reading)


def _word(arm: Arm) -> str:
    """Why there is no speedup, in a word; else empty."""
    if not arm.is_ok:
        return str(arm.status)
    return (arm.rechecked or arm.correctness).get("word", "")


def _why(arm: Arm) -> str:
    """Reason for its word; else what is unknown about its correctness."""
    if arm.status == Status.SUSPECT:
        return arm.why
    before, after = arm.correctness, arm.rechecked
    if not before.get("word") and after.get("word"):
        return f"in timed calls: {after['why']}"
    return before["why"]


def _why_impossible(of: Comparison, name: str) -> str:
    """Why a time is impossible, as a sentence; else empty."""
    assert of.timed is not None and of.timed.reading is not None
    ms, cache_bytes = of.timed.p50_ns(name) / 1e6, of.bench.clock.cache_bytes
    return roofline.why_impossible(of.problem, ms, _peak(of), of.timed.reading.touched_once, cache_bytes)


def _peak(of: Comparison) -> Peak | None:
    device = of.problem.source.device
    if of.bench.kind != "cuda" or not of.problem.bounded or device is None:
        return None
    found = listed(device)
    return peak_of(found.name, found.max_sm_mhz)


def figures(reading: Reading, arm: str) -> Figures:
    found = times(arm, reading)
    p50, low, high = (1e3 * found[figure] for figure in ("p50_ms", "p50_low_ms", "p50_high_ms"))
    return Figures(p50, low, high, int(found["n"]), found["rounds"])


def _about_inputs(reading: Reading) -> list[str]:
    if reading.covered:
        return []
    then = "it was emptied before each call" if reading.flushed else "calls may find their inputs there"
    return [f"{reading.sets} input sets do not cover the cache: {then}"]


def _rates(of: Comparison, latencies: Figures) -> dict[str, Any]:
    seconds, problem = (latencies.p50_us or 0) / 1e6, of.problem
    limit_ms = roofline.speed_of_light_ms(problem, _peak(of))
    return {
        "tflops": problem.work / seconds / 1e12 or None,
        "gb_per_s": problem.traffic / seconds / 1e9 or None,
        "limit_share": limit_ms / 1e3 / seconds if limit_ms else None,
    }


def _compared(found: Measured, of: Comparison, reading: Reading) -> Measured:
    """Adds the baseline's figures, and the speedup if allowed."""
    if not found.word and (why := _why_impossible(of, found.name)):
        found = replace(found, word=str(Status.IMPOSSIBLE), why=why)
    baseline = of.arms.get(BASELINE)
    if baseline is None:
        return found
    if baseline.is_ok:
        found = replace(found, baseline=figures(reading, BASELINE))
    if found.word:
        return found
    if word := _word(baseline) or (Status.IMPOSSIBLE if _why_impossible(of, BASELINE) else ""):
        why = _why(baseline) if word != Status.IMPOSSIBLE else _why_impossible(of, BASELINE)
        return replace(found, word=f"its baseline is {word}", why=f"the baseline: {why}")
    fields = speedup(reading, BASELINE, found.name, of.device_name)
    low, high = fields["speedup_low"], fields["speedup_high"]
    said = statistics.word(low, high, found.margin, len(reading.blocks[found.name]))
    why = why_noisy(found.aa, found.margin, of.is_busy) if said == Verdict.UNDECIDED else ""
    return replace(
        found,
        word=UNKNOWN if found.correct is None else str(said),
        why="; ".join(filter(None, [found.why, why])),
        speedup=fields["speedup"],
        low=low,
        high=high,
    )

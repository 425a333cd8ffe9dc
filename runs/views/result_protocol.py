"""How a result was measured: facts of its protocol, interval, isolation and telemetry, for its page."""

from __future__ import annotations

from kernels.analysis.findings_run import THROTTLING
from kernels.analysis.statistics import MARGIN, WIDEST_MARGIN, as_margin
from kernels.analysis.verdicts import is_noisy
from kernels.contract.arm_result import ArmResult
from kernels.contract.events import HostLoad, Measured, ProtocolFacts, TelemetrySummary
from kernels.contract.isolation import Isolation
from runs.templatetags.figures import duration, ratio3
from runs.views.sandbox import kept_apart


def needed(margin: float) -> str:
    """What a margin means for words."""
    if is_noisy(margin):
        return f"{as_margin(margin)}: undecided above {WIDEST_MARGIN:.0%}"
    return f"FASTER and SLOWER need a difference above {margin:.1%}, SAME is within {MARGIN:.0%}"


def protocol_of(measured: Measured) -> list[tuple[str, str]]:
    """The protocol as (name, value) pairs."""
    how, facts = measured.protocol, []
    if how.paired is not None:
        text = (
            "kernels take turns in rounds, in random order; each stops when its interval is narrow"
            if how.paired
            else "fixed, one kernel after the other"
        )
        facts.append(("protocol", text))
    if how.rounds:
        again = f"; {how.repeated} more were repeated because of thermal slow-down" if how.repeated else ""
        facts.append(("rounds", f"{how.rounds}{again}"))
    if how.process_sd is not None:
        facts += _processes(how)
    if how.sets is not None:
        sets = f"{how.sets} set{'s' * (how.sets != 1)} of inputs"
        if measured.isolated:
            facts.append(("inputs", "of its own for each call of a batch"))
        else:
            facts.append(("inputs", sets + (", more than the cache holds" if how.covered and how.sets > 1 else "")))
    if how.flushed is not None:
        facts.append(("L2 evicted before calls", "yes, by reading memory" if how.flushed else "no"))
    if how.paired and how.rest is not None and measured.mode not in ("cpu", "sustained", "batch"):
        facts.append(("rests", _rests(how.rest)))
    if measured.aa:
        ratio, low, high = map(ratio3, measured.aa)
        facts.append(("A/A", f"{ratio}, interval {low} to {high}: {measured.baseline} against itself"))
    facts.append(("margin", needed(measured.margin)))
    if measured.took_s is not None:
        facts.append(("took", duration(measured.took_s)))
    return facts


def _processes(how: ProtocolFacts) -> list[tuple[str, str]]:
    assumed = f"{how.process_sd:.2%} (standard deviation): {how.process_sd_source}"
    return [
        ("processes", f"{how.processes}, each fresh" if how.processes > 1 else "1"),
        ("spread between processes, assumed", assumed),
    ]


def parts_of_interval(result: ArmResult) -> list[tuple[str, str]]:
    """The parts of a speedup's interval as (name, value) pairs; empty without them."""
    if result.rounds_half_width is None or result.process_half_width is None:
        return []
    parts = [("from rounds", result.rounds_half_width), ("from the process", result.process_half_width)]
    if result.host_half_width is not None:
        parts.append(("from the host", result.host_half_width))
    facts = [(name, f"±{part:.2%}") for name, part in parts]
    for number, (ratio, low, high) in enumerate(result.by_process or [], 1):
        facts.append((f"process {number}", f"{ratio3(ratio)}x, rounds alone {ratio3(low)} to {ratio3(high)}"))
    return facts


def isolation_of(how: Isolation, kernel: str) -> list[tuple[str, str]]:
    """How the kernel's process was kept apart, as (name, value) pairs."""
    facts = [(kept.what, kept.said) for kept in kept_apart(how)]
    if how.missing:
        facts.append(("messages of the host", "; ".join(how.missing)))
    if batches := how.batches.get(kernel):
        facts += [
            ("batch", f"{batches.calls} calls, {batches.ms:.3g} ms" + (", one graph" if how.graphs else "")),
            ("outputs checked", f"{batches.checked}, chosen after their batch"),
            *([("batches measured again", f"{batches.retaken}, longer than usual")] if batches.retaken else []),
            ("largest possible gain from work after a batch", f"{batches.delay_us / batches.ms / 1e3:.1%} of its time"),
        ]
    if how.host_us is not None:
        facts.append(
            ("empty batch", f"{how.host_us:.0f} µs" + ("; subtracted from every batch" if how.host_subtracted else ""))
        )
    if how.beside:
        ratio, low, high = map(ratio3, how.beside)
        facts.append(("baseline beside other kernels", f"{ratio} times its time alone, interval {low} to {high}"))
    return facts


def _rests(rest: float) -> str:
    if not rest:
        return "none (back to back)"
    return f"before each block, {'' if rest == 1 else f'{rest:g} times '}the block's length, at most 250 ms"


def telemetry_of(seen: TelemetrySummary) -> list[tuple[str, str]]:
    """Telemetry as (name, "median, range") pairs."""
    facts = []
    for value, name, unit in (
        (seen.sm_mhz, "SM clock", "MHz"),
        (seen.power_w, "power", "W"),
        (seen.temperature_c, "temperature", "°C"),
    ):
        if value:
            least, most = f"{value.min:,.0f}", f"{value.max:,.0f}"
            extent = f", from {least} to {most}" if least != most else ", steady"
            facts.append((name, f"{value.median:,.0f} {unit}{extent}"))
    if seen.throttled:
        facts.append(("throttled by", ", ".join(THROTTLING.get(reason, reason) for reason in seen.throttled)))
    if seen.host:
        facts += _host(seen.host)
    if facts and seen.samples:
        facts.append(("readings", f"{seen.samples:,}"))
    return facts


def _host(load: HostLoad) -> list[tuple[str, str]]:
    """What others took of the CPU."""
    stolen = f", of which the hypervisor {load.steal:.1%}" if load.steal > 0 else ""
    facts = [("CPU time of other processes", f"{load.foreign:.1%}{stolen}")]
    if load.run_queue is not None:
        facts.append(("other tasks in the run queue", f"{load.run_queue:.1f}"))
    if load.preempted is not None:
        facts.append(("involuntary context switches", f"{load.preempted:,}"))
    return facts

"""Root-cause hypotheses: what profiles say of kernels, each with the figures that it rests on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kernels.analysis.bottlenecks import MOST_SAID, Rule, findings
from kernels.analysis.findings_one import Finding, Kind, Timed
from kernels.contract.profile import Profile


def causes(profiled: Iterable[tuple[Timed, Profile]]) -> Iterator[Finding]:
    """One for each kernel and rule that holds, with all the workloads on which it does."""
    groups: dict[tuple[str, str, str], tuple[Rule, list[tuple[Timed, str]]]] = {}
    for one, profile in profiled:
        for rule, said in findings(profile)[:MOST_SAID]:
            key = one.workload.operation, one.kernel, rule.key
            groups.setdefault(key, (rule, []))[1].append((one, said))
    for rule, seen in groups.values():
        first, said = seen[0]
        more = f", and {len(seen) - 1} more workload{'s' * (len(seen) > 2)}" if len(seen) > 1 else ""
        yield Finding(
            Kind.CAUSE,
            f"{first.kernel} on {first.workload.label}{more}: {said}.",
            (*(f"{one.workload.label}: {phrase}" for one, phrase in seen), f"the rule {rule.key}: {_threshold(rule)}"),
            tuple(one for one, _ in seen),
        )


def _threshold(rule: Rule) -> str:
    return f"{rule.holds} {rule.threshold:g}, because {rule.reason}"

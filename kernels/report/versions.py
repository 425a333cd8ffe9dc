"""Versions of one submission in the runs that a gate compares: which is judged, which is its control, and under which name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.catalog import AT
from kernels.contract.arm_result import ArmResult, Status
from kernels.report.comparison import Results, RunResults


def _base(kernel: str) -> str:
    return kernel.partition(AT)[0]


def _low(arm: ArmResult) -> float:
    """The low end of its speedup, by which the best of several versions is chosen; of one without, below all others."""
    return arm.speedup_low if arm.status == Status.OK and arm.speedup_low else -1.0


@dataclass(frozen=True)
class Versions:
    """Of one measurement after the other: the versions that are judged. Each is compared with every earlier version of its
    name, the best of which counts. Another version is a control, such as the parent that a fork was measured beside: it is
    compared with itself."""

    judged: frozenset[str]
    """Full names."""

    @classmethod
    def of(cls, after: Results, earlier: Iterable[Results]) -> Versions:
        """Judged is what no earlier run has; if all versions of a name were measured before, the last one that is ok on any
        workload: a submission stands after what it is measured beside."""
        before = {arm.kernel for run in earlier for m in run.measurements for arm in m.results}
        of_name: dict[str, dict[str, bool]] = {}
        for arm in (arm for m in after.measurements for arm in m.results if AT in arm.kernel):
            versions = of_name.setdefault(_base(arm.kernel), {})
            versions[arm.kernel] = versions.get(arm.kernel, False) or arm.status == Status.OK
        judged: set[str] = set()
        for versions in of_name.values():
            new = [name for name in versions if name not in before]
            last = [name for name, is_ok in versions.items() if is_ok] or list(versions)
            judged |= set(new or last[-1:])
        return cls(frozenset(judged))

    def shown(self, after: Results) -> Results:
        """The run with the names that the gate gives: `mine` for `mine@0123456789`, where it is the only one to be called so."""
        measurements = []
        for m in after.measurements:
            names = self._names([arm.kernel for arm in m.results])
            measurements.append(
                m.model_copy(update={"results": [_renamed(arm, names[arm.kernel]) for arm in m.results]})
            )
        return RunResults(after.environment, measurements, after.contended)

    def before(self, run: Results, after: Results) -> Results:
        """An earlier run in which each kernel has the name of what it is compared with. The best of several versions stands for
        them all."""
        of = {(m.key, m.mode): [arm.kernel for arm in m.results] for m in after.measurements}
        measurements = [
            m.model_copy(update={"results": self._results(m, of.get((m.key, m.mode), []))}) for m in run.measurements
        ]
        return RunResults(run.environment, measurements, run.contended)

    def _results(self, m: Any, now: Sequence[str]) -> list[ArmResult]:
        names, plain = self._names(now), {name for name in now if AT not in name}
        used: set[str] = set()
        results = []
        for kernel in now:
            mine = [arm for arm in m.results if self._may_stand_for(arm.kernel, kernel, plain, m.results)]
            used |= {arm.kernel for arm in mine}
            if mine:
                results.append(_renamed(max(mine, key=_low), names[kernel]))
        return results + [arm for arm in m.results if arm.kernel not in used]

    def _may_stand_for(self, earlier: str, now: str, plain: Collection[str], arms: Sequence[ArmResult]) -> bool:
        """Whether a kernel of an earlier measurement is compared with one of now. plain: those of now without a version."""
        if earlier == now:
            return True
        if _base(earlier) != _base(now):
            return False
        if AT not in now:  # measured from a folder now, submitted before
            return all(arm.kernel != now for arm in arms)
        return now in self.judged and (AT in earlier or earlier not in plain)

    def _names(self, kernels: Sequence[str]) -> dict[str, str]:
        """Full name -> the name that the gate gives."""
        alone = {
            name for name in self.judged.intersection(kernels)
            if [_base(one) for one in kernels if one in self.judged or AT not in one].count(_base(name)) == 1
        }  # fmt: skip
        return {name: _base(name) if name in alone else name for name in kernels}


def _renamed(arm: ArmResult, name: str) -> ArmResult:
    return arm if arm.kernel == name else arm.model_copy(update={"kernel": name})

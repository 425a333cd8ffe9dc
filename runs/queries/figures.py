"""Figures of a session: its newest results and its claims, each as a row with its baseline and its place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.urls import reverse

from kernels.analysis.bottlenecks import seen_of
from kernels.analysis.criteria import Seen, p90_reach
from kernels.analysis.findings_one import Timed, share_of_light
from kernels.analysis.findings_run import Observed
from kernels.analysis.findings_series import IsBaseline, pairs
from kernels.analysis.peaks import peak_of
from kernels.analysis.processes import rounds_for_many
from kernels.analysis.verdicts import certain_ratio
from kernels.contract.arm_result import Ratio, Status, Verdict
from kernels.workload import Workload
from runs.models import Claim, Run
from runs.queries.claims import Reading, timed
from runs.queries.measurements import StoredArm, StoredMeasured


@dataclass(frozen=True)
class Figure:
    """One kernel on one workload. None: not measured, or not said."""

    workload: Workload
    gpu: str
    method: str
    """The mode of a run; of a claim, what timed it."""
    kernel: str
    baseline: str
    verdict: Verdict | Status | str
    link: str
    source: str
    """ "run 7", or "import"."""
    ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    base: Figure | None = None
    """The baseline's on the same workload, in the same rounds or the same file. None: unknown, or it is the baseline's."""
    ratio: Ratio | None = None
    """The speedup. Of a claim, three equal figures."""
    margin: float = 0.0
    rounds: float = 0
    tflops: float | None = None
    share: float | None = None
    """Of the speed of light."""
    limit_ms: float | None = None
    run: int | None = None
    """None: a claim."""
    is_confirmed: bool = False
    is_contended: bool = False
    is_withdrawn: bool = False
    noise: str = ""
    why: str = ""

    @property
    def label(self) -> str:
        return self.workload.label

    @property
    def is_claimed(self) -> bool:
        return self.run is None

    @property
    def is_baseline(self) -> bool:
        return self.kernel == self.baseline

    @property
    def place(self) -> str:
        """Results of one place are about the same work on the same model of GPU: files name a GPU in other words than its
        driver."""
        peak = peak_of(self.gpu)
        return f"{self.workload.key} {peak.model if peak else self.gpu}"

    @property
    def slowdown(self) -> float | None:
        """How many times slower than the baseline; None if it is not slower."""
        return 1 / self.ratio.ratio if self.ratio and self.ratio.ratio < 1 else None

    @property
    def work(self) -> float:
        problem = self.workload.known_problem
        return float(problem.flops()) if problem else 0.0


def gpu_of(run: Run) -> str:
    """The GPU's name as its environment says it, as of a demo run."""
    body = run.environment.body if run.environment else {}
    return body.get("device") or (run.gpu.name if run.gpu else run.device_name)


# --- measured ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shown:
    """A result as it was read, and what is made of it."""

    run: Run
    measured: StoredMeasured
    arm: StoredArm

    @property
    def figure(self) -> Figure:
        return self._figure(self.arm, self._base)

    @property
    def _base(self) -> StoredArm | None:
        return self.measured.arm(self.measured.baseline)

    def _figure(self, arm: StoredArm, base: StoredArm | None) -> Figure:
        measured, run = self.measured, self.run
        mine = base is None or arm.pk == base.pk
        return Figure(
            measured.workload, gpu_of(run), measured.mode, arm.kernel, measured.baseline, arm.verdict,
            reverse("result", args=[run.pk, arm.pk]), f"run {run.pk}", arm.p50_ms, arm.p50_low_ms, arm.p50_high_ms,
            None if mine or base is None else self._figure(base, base), None if mine else certain_ratio(arm), measured.margin,
            rounds_for_many(arm.effective_sample_size or arm.rounds or 0, measured.protocol.processes),
            arm.tflops, arm.limit_share, arm.limit_ms, run.pk,
            arm.is_confirmed, run.contended or measured.is_contended, bool(run.withdrawn_at),
            measured.why_undecided, arm.why,
        )  # fmt: skip

    @property
    def timed(self) -> Timed:
        """For hypotheses about its cause: with a link to its profile."""
        link = f"{reverse('result', args=[self.run.pk, self.arm.pk])}#profile"
        return Timed(self.measured.workload, self.arm.kernel, self.arm.p50_ms, gpu=gpu_of(self.run), link=link)

    @property
    def observed(self) -> Observed | None:
        """For the findings. None: its operation no longer exists."""
        arm, base, run, workload = self.arm, self._base, self.run, self.measured.workload
        if workload.known_problem is None:
            return None
        gpu = gpu_of(run)
        one = Timed(
            workload, arm.kernel, arm.p50_ms, peak_of(gpu), gpu, self.measured.mode,
            link=reverse("result", args=[run.pk, arm.pk]), low=arm.p50_low_ms, high=arm.p50_high_ms,
            measurement=f"{run.pk} {self.measured.group}",
        )  # fmt: skip
        mhz, beside = arm.sm_mhz, base.sm_mhz if base else None
        return Observed(
            one, arm.status, arm.why, self.measured.margin, self.measured.why_undecided, arm.kernel == self.measured.baseline,
            run.contended or self.measured.is_contended, mhz.median if mhz else None, beside.median if beside else None,
            bool(arm.other_work), self.measured.telemetry.throttled,
        )  # fmt: skip

    @property
    def seen(self) -> Seen:
        """For the criteria."""
        arm, base, figure = self.arm, self._base, self.figure
        return Seen(
            figure.place, figure.label, arm.kernel, arm.verdict, figure.ratio, figure.margin, figure.rounds,
            figure.is_baseline, figure.is_confirmed, figure.is_contended, False, arm.is_checked,
            p90_reach(arm.single_calls), p90_reach(base.single_calls) if base else None, figure.link,
            seen_of(arm.profile).call if arm.profile else None, figure.method,
        )  # fmt: skip


# --- claimed ----------------------------------------------------------------------------------------------------------


def read_claims(claims: Iterable[Claim]) -> list[tuple[Timed, str]]:
    """(claim for the findings, name of its baseline), of claims with their imports, in order."""
    found, counts = [], dict[int, int]()
    for claim in claims:
        index = counts.setdefault(claim.imported_id, 0)
        counts[claim.imported_id] += 1
        link = Reading(claim.imported).link(claim.pk, index)
        found.append((timed(claim.claimed, link), claim.claimed.baseline))
    return found


def named_baseline(claims: list[tuple[Timed, str]]) -> IsBaseline:
    """Whether a claim is of a kernel that others of its operation name as their baseline."""
    named = {(one.workload.operation, baseline) for one, baseline in claims if baseline}
    return lambda one: (one.workload.operation, one.kernel) in named


def claimed_figures(claims: list[tuple[Timed, str]]) -> list[Figure]:
    """The same as figures; speedups are recomputed from the times."""
    is_baseline = named_baseline(claims)
    every = [one for one, _ in claims]
    base = {id(one): other for one, other in pairs(every, is_baseline)}
    return [_claimed(one, base.get(id(one)), is_baseline) for one in every]


def _claimed(one: Timed, base: Timed | None, is_baseline: IsBaseline) -> Figure:
    ratio = base.ms / one.ms if base and base.ms and one.ms else None
    problem = one.workload.known_problem
    baseline = one.kernel if is_baseline(one) else base.kernel if base else ""
    return Figure(
        one.workload, one.peak.model if one.peak else one.gpu, one.method, one.kernel, baseline, "claimed", one.link, "import",
        one.ms, base=_claimed(base, None, is_baseline) if base else None, ratio=Ratio(ratio, ratio, ratio) if ratio else None,
        tflops=problem.flops() / one.ms / 1e9 if problem and problem.flops() and one.ms else None,
        share=share_of_light(one) if problem else None,
    )  # fmt: skip


def seen_claim(one: Figure) -> Seen:
    """A claimed figure for the criteria: it decides nothing."""
    return Seen(
        one.place,
        one.label,
        one.kernel,
        Verdict.NONE,
        one.ratio,
        is_baseline=one.is_baseline,
        is_claimed=True,
        link=one.link,
    )

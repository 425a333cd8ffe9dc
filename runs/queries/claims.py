"""Imported claims, read: as rows with what was recomputed, and what they say by themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from kernels.analysis.claims import Word
from kernels.analysis.findings import findings
from kernels.analysis.findings_one import (
    Finding,
    Timed,
    bandwidth_without_its_bytes,
    judged,
    rate_without_its_work,
    share_of_light,
)
from kernels.analysis.findings_series import IsBaseline, pairs
from kernels.analysis.peaks import Peak, Reached
from kernels.foreign import names
from kernels.foreign.claimed import Claimed
from runs.models import Claim, Import
from runs.queries.reached import reached_here

PER_PAGE = 100
MOST_READ = 1_000
"""Findings are made of so many claims of an import at most: all of its workloads are compared with each other."""


@dataclass(frozen=True)
class ClaimRow:
    """A claim with what follows from its sizes and its time. None: unknown, or not said."""

    pk: int
    claimed: Claimed
    timed: Timed
    model: str
    """Of the GPU; empty: unknown here, so the claim is compared with no limit."""
    tflops: float | None
    """Of unmasked work."""
    dense: float | None
    """The same with masked work; None if nothing is masked."""
    gb_per_s: float | None
    speedup: float | None
    """Over the baseline of the same file, workload, GPU and method."""
    light: float | None
    word: str
    """The verdict on the claim; empty without a known GPU, unless its figures contradict each other."""
    why: str
    judge: str
    """Address of the arithmetic; empty if there is none."""

    @property
    def is_doubtful(self) -> bool:
        return self.word not in ("", Word.PLAUSIBLE)

    def record(self) -> dict[str, Any]:
        """For files: what was said, and what was recomputed."""
        said = self.claimed
        return {
            "origin": "claimed", "where": said.where, "operation": said.workload.operation, "dtype": said.workload.dtype,
            "workload": said.workload.label, "kernel": said.kernel, "backend": said.backend, "baseline": said.baseline,
            "gpu": said.gpu, "method": said.method, "ms": said.ms,
            **{f"said_{name}": said.figures.get(name) for name in SAID}, "said_correct": said.correct,
            "tflops": self.tflops, "dense_tflops": self.dense, "gb_per_s": self.gb_per_s,
            "speedup": self.speedup, "limit_share": self.light,
            "verdict": self.word, "why": self.why, "assumed": "; ".join(said.assumed),
        }  # fmt: skip


SAID = ("tflops", "gb_per_s", "speedup", "speedup_low", "speedup_high", "slowdown", "p90_ms", "p99_ms")
COLUMNS = (
    "origin", "where", "operation", "dtype", "workload", "kernel", "backend", "baseline", "gpu", "method", "ms",
    *(f"said_{name}" for name in SAID), "said_correct", "tflops", "dense_tflops", "gb_per_s", "speedup", "limit_share",
    "verdict", "why", "assumed",
)  # fmt: skip


def timed(claimed: Claimed, link: str = "") -> Timed:
    """A claim for the findings."""
    statistic = {"p50_ms": "p50", "mean_ms": "mean"}
    first = next((word for name, word in statistic.items() if name in claimed.figures), "")
    said = claimed.figures.get
    return Timed(
        claimed.workload, claimed.kernel, claimed.ms, names.model_of(claimed.gpu), claimed.gpu, claimed.method or first,
        tflops=said("tflops"), gb_per_s=said("gb_per_s"), speedup=said("speedup"), slowdown=said("slowdown"),
        correct=claimed.correct, assumed_dtype=any("names no dtype" in text for text in claimed.assumed), link=link,
    )  # fmt: skip


class Reading:
    """The claims of one import. The limits that were measured here are asked for once."""

    def __init__(self, imported: Import) -> None:
        self.imported = imported
        self.reached: dict[tuple[str, str], tuple[list[Reached], list[Reached]]] = {}

    def rows(self, claims: Iterable[Claim], first: int = 0) -> list[ClaimRow]:
        """Claims in a row, the first of them the `first` of the import, counted from 0."""
        those = [(claim.pk, claim.claimed, timed(claim.claimed, self.link(claim.pk, first + i)))
                 for i, claim in enumerate(claims)]  # fmt: skip
        compared = pairs([one for _, _, one in those], self._is_baseline_of([claimed for _, claimed, _ in those]))
        speedups = {one.link: base.ms / one.ms for one, base in compared if one.ms and base.ms}
        return [self._row(pk, claimed, one, speedups.get(one.link)) for pk, claimed, one in those]

    def findings(self, rows: list[ClaimRow]) -> list[Finding]:
        return findings(
            [row.timed for row in rows], self._is_baseline_of([row.claimed for row in rows]), self._known
        )  # fmt: skip

    def link(self, pk: int, index: int) -> str:
        page = index // PER_PAGE + 1
        return f"{self.imported.get_absolute_url()}{f'?page={page}' if page > 1 else ''}#claim-{pk}"

    @staticmethod
    def _is_baseline_of(claims: list[Claimed]) -> IsBaseline:
        """By the baselines that the claims name, each in its operation; if they name none, by the usual names."""
        named = {(one.workload.operation, one.baseline) for one in claims if one.baseline}
        if named:
            return lambda one: (one.workload.operation, one.kernel) in named
        return lambda one: bool(names.BASELINE.fullmatch(one.kernel))

    def _known(self, one: Timed) -> tuple[list[Reached], list[Reached]]:
        if one.peak is None:
            return [], []
        asked = one.peak.model, one.workload.dtype
        if asked not in self.reached:
            self.reached[asked] = reached_here(one.peak, one.workload.dtype)
        return self.reached[asked]

    def _row(self, pk: int, claimed: Claimed, one: Timed, speedup: float | None) -> ClaimRow:
        problem = claimed.workload.problem
        found = judged(one, *self._known(one))
        why = bandwidth_without_its_bytes(one) or rate_without_its_work(one)
        word, because = (found.word, found.why) if found else ("", "")
        if why and word in ("", Word.PLAUSIBLE):
            word, because = Word.CONTRADICTORY, why
        return ClaimRow(
            pk, claimed, one, one.peak.model if one.peak else "",
            problem.flops() / one.ms / 1e9 if one.ms else None,
            problem.dense_flops() / one.ms / 1e9 if one.ms and problem.dense_flops() != problem.flops() else None,
            problem.tensor_bytes / one.ms / 1e6 if one.ms else None,
            speedup, share_of_light(one) if found else None, word, because,
            judge_link(one, one.peak) if found and one.peak else "",
        )  # fmt: skip


def judge_link(one: Timed, peak: Peak) -> str:
    """Address of the page that judges this claim."""
    sizes = {name: {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
             for name, value in one.workload.sizes.items()}  # fmt: skip
    asked = {"operation": one.workload.operation, **sizes, "dtype": one.workload.dtype, "gpu": peak.model}
    asked |= {name: f"{value:.15g}" for name, value in (("ms", one.ms), ("tflops", one.tflops)) if value}
    return f"{reverse('judge')}?{urlencode(asked)}"

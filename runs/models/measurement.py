"""Results: what one run found on one workload, all arms that shared a measuring process together."""

from __future__ import annotations

from typing import Any

from django.db import models

from kernels.analysis.statistics import MARGIN
from runs.models.kernel import Kernel, KernelVersion
from runs.models.run import Run
from runs.models.workload import Workload

STATISTICS = (
    "n", "mean", "std", "min", "max", "p5", "p25", "p50", "p75", "p90", "p95", "p99", "p50_low", "p50_high",
    "iqr_over_median", "outliers",
)  # fmt: skip
CORRELATED, CORRELATED_ROUNDS = 0.4, 20
"""Independent rounds seem correlated, too, by chance: that much in less than one result of twenty, of fewer rounds more often."""
RATES = ("tflops", "gb_per_s", "limit_ms", "limit_share", "hint")


class Measurement(models.Model):
    """One workload of one run, stored whole or not at all: every ratio in it is of samples from one process."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="measurements")
    workload = models.ForeignKey(Workload, models.PROTECT, related_name="measurements")
    mode = models.CharField(max_length=20)
    group = models.CharField(max_length=30, default="main")
    baseline = models.CharField(max_length=100)
    margin = models.FloatField(default=MARGIN)
    """Differences below this are SAME; wider where the baseline differed from itself."""
    aa = models.JSONField(null=True)
    """[ratio, low, high] of the baseline against itself."""
    aa_ticks_ns = models.JSONField(null=True)
    """Raw samples of the baseline's second arm: rounds of ticks."""
    protocol = models.JSONField(default=dict)
    telemetry = models.JSONField(default=dict)
    notes = models.JSONField(default=list)
    took_s = models.FloatField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["run", "workload", "mode", "group"], name="measured_once")]

    def __str__(self) -> str:
        return f"{self.workload} in run {self.run_id}"

    @property
    def base(self) -> Result | None:
        """The baseline's result here."""
        return next((r for r in self.results.all() if r.kernel.name == self.baseline and r.p50 is not None), None)

    def as_event(self, raw: bool = False) -> dict[str, Any]:
        """As it came: the shape that kernels/report.py and the export use."""
        event = {
            "workload": self.workload.as_json(),
            "key": self.workload.key,
            "mode": self.mode,
            "group": self.group,
            "baseline": self.baseline,
            "margin": self.margin,
            "aa": self.aa,
            "protocol": self.protocol,
            "telemetry": self.telemetry,
            "notes": self.notes,
            "took_s": self.took_s,
            "results": [result.as_event(raw) for result in self.results.all()],
        }
        return event | ({"aa_ticks_ns": self.aa_ticks_ns} if raw else {})


class Result(models.Model):
    """One kernel on one workload in one run. Times are in milliseconds."""

    measurement = models.ForeignKey(Measurement, models.CASCADE, related_name="results")
    kernel = models.ForeignKey(Kernel, models.PROTECT, related_name="results")
    version = models.ForeignKey(KernelVersion, models.PROTECT, null=True, related_name="results")
    status = models.CharField(max_length=20)
    """ok, incorrect, suspect, unsupported, out of memory, timed out, crashed, impossible, failed"""
    verdict = models.CharField(max_length=20, blank=True)
    why = models.TextField(blank=True)
    log = models.TextField(blank=True)

    n = models.IntegerField(null=True)
    rounds = models.IntegerField(null=True)
    mean = models.FloatField(null=True)
    std = models.FloatField(null=True)
    min = models.FloatField(null=True)
    max = models.FloatField(null=True)
    p5 = models.FloatField(null=True)
    p25 = models.FloatField(null=True)
    p50 = models.FloatField(null=True)
    p75 = models.FloatField(null=True)
    p90 = models.FloatField(null=True)
    p95 = models.FloatField(null=True)
    p99 = models.FloatField(null=True)
    p50_low = models.FloatField(null=True)
    p50_high = models.FloatField(null=True)
    iqr_over_median = models.FloatField(null=True)
    outliers = models.IntegerField(null=True)

    speedup = models.FloatField(null=True)
    speedup_low = models.FloatField(null=True)
    speedup_high = models.FloatField(null=True)
    paired = models.BooleanField(default=True)
    effective_sample_size = models.FloatField(null=True)
    """So many independent rounds would tell as much of the speedup: fewer than there were where rounds hang together."""
    left_after = models.IntegerField(null=True)
    """It was far behind and left after this round."""

    tflops = models.FloatField(null=True)
    gb_per_s = models.FloatField(null=True)
    limit_ms = models.FloatField(null=True)
    limit_share = models.FloatField(null=True)
    hint = models.CharField(max_length=100, blank=True)
    compile_s = models.FloatField(null=True)
    peak_memory_bytes = models.BigIntegerField(null=True)
    correctness = models.JSONField(null=True)
    ran = models.JSONField(default=list)
    """[[name, ns], ...] of the kernels that one call ran, from the cross-check."""
    ticks_ns = models.JSONField(null=True)
    """Raw samples: rounds of ticks."""
    cold = models.JSONField(null=True)
    """{"n", "p50", "p90", "p95", "p99"}, ms: of single calls on cold inputs, where the samples are graph replays."""
    sm_mhz = models.JSONField(null=True)
    """{"median", "min", "max", "n"}: the SM clock in front of this kernel's blocks, read in the stream."""
    crosscheck = models.JSONField(null=True)
    """Of a process of its own, after all timing: {"event_ns", "span_ns", "wall_ns", "calls", "joules", "host_bound",
    "agrees"}."""

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["measurement", "kernel"], name="one_result_per_kernel")]

    def __str__(self) -> str:
        return f"{self.kernel} on {self.measurement}"

    @property
    def single_calls(self) -> dict[str, Any]:
        """{"p90", "n"} of single calls: of the cold pass, where the samples are graph replays."""
        return self.cold or {"p90": self.p90, "n": self.n}

    @property
    def correlated(self) -> bool:
        """Whether its rounds count for clearly fewer than they are."""
        rounds, size = self.rounds or 0, self.effective_sample_size
        return size is not None and rounds >= CORRELATED_ROUNDS and size < CORRELATED * rounds

    def as_event(self, raw: bool = False) -> dict[str, Any]:
        event: dict[str, Any] = {
            "kernel": self.kernel.name,
            "status": self.status,
            "why": self.why,
            "sha256": self.version.sha256 if self.version else "",
            "backend": self.kernel.backend,
            "compile_s": self.compile_s,
            "peak_memory_bytes": self.peak_memory_bytes,
            "correctness": self.correctness,
            "ran": self.ran,
            "cold": self.cold,
            "sm_mhz": self.sm_mhz,
            "crosscheck": self.crosscheck,
        }
        if self.n is not None:
            event |= {"stats": {name: getattr(self, name) for name in STATISTICS}, "rounds": self.rounds}
            event |= {name: getattr(self, name) for name in RATES} | {"left_after": self.left_after}
        if self.speedup is not None:
            ratio = {"ratio": self.speedup, "low": self.speedup_low, "high": self.speedup_high}
            event["speedup"] = ratio | {"rounds": self.rounds, "paired": self.paired}
            if self.effective_sample_size is not None:
                event["speedup"]["effective_sample_size"] = self.effective_sample_size
        if raw:
            event |= {"log": self.log, "ticks_ns": self.ticks_ns, "source": self.version.source if self.version else ""}
        return event


class Chart(models.Model):
    """A chart of a run, drawn when the run ended: a Vega-Lite spec and the same as SVG."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="charts")
    name = models.CharField(max_length=30)
    theme = models.CharField(max_length=10)
    spec = models.JSONField()
    svg = models.TextField()
    done = models.IntegerField()
    """How many workloads it shows."""

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "name", "theme"], name="one_chart")]

"""Results of one run on one workload: all arms measured together."""

from __future__ import annotations

from django.db import models

from kernels.analysis.statistics import MARGIN
from kernels.contract.arm_result import ArmResult
from runs.models.kernel import Kernel, KernelVersion
from runs.models.run import Run
from runs.models.workload import Workload

CORRELATED, CORRELATED_ROUNDS = 0.4, 20
"""Threshold for "correlated": fewer than 1 in 20 results of independent rounds cross it by chance; more below
CORRELATED_ROUNDS."""
NOT_COLUMNS = {"kernel", "backend", "sha256", "source"}
"""Fields of an ArmResult stored in Kernel and KernelVersion. Every other field has a column of its name."""
SORTED_BY = ("speedup", "p50_ms", "tflops", "gb_per_s", "limit_share")
"""Columns that lists of all results are sorted by, each with an index that also has what such a list filters by."""
COLUMNS = tuple(name for name in ArmResult.model_fields if name not in NOT_COLUMNS)


class Measurement(models.Model):
    """One Measured event (kernels/contract/events.py), stored completely or not at all."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="measurements")
    workload = models.ForeignKey(Workload, models.PROTECT, related_name="measurements")
    mode = models.CharField(max_length=20)
    group = models.CharField(max_length=30, default="main")
    isolated = models.BooleanField(default=False)
    isolation = models.JSONField(null=True)
    """How its processes were kept apart: kernels/contract/isolation.py."""
    baseline = models.CharField(max_length=100)
    margin = models.FloatField(default=MARGIN)
    aa = models.JSONField(null=True)
    aa_samples_ns = models.JSONField(null=True)
    protocol = models.JSONField(default=dict)
    telemetry = models.JSONField(default=dict)
    notes = models.JSONField(default=list)
    took_s = models.FloatField(null=True)
    timing = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["run", "workload", "mode", "group"], name="measured_once")]

    def __str__(self) -> str:
        return f"{self.workload} in run {self.run_id}"


class Result(models.Model):
    """One ArmResult (kernels/contract/arm_result.py describes the columns)."""

    measurement = models.ForeignKey(Measurement, models.CASCADE, related_name="results")
    kernel = models.ForeignKey(Kernel, models.PROTECT, related_name="results")
    version = models.ForeignKey(KernelVersion, models.PROTECT, null=True, related_name="results")
    status = models.CharField(max_length=20)
    why = models.TextField(blank=True)
    other_work = models.TextField(blank=True)
    environment = models.JSONField(default=dict)
    settings = models.TextField(blank=True)
    tuned = models.TextField(blank=True)
    log = models.TextField(blank=True)

    n = models.IntegerField(null=True)
    rounds = models.IntegerField(null=True)
    mean_ms = models.FloatField(null=True)
    std_ms = models.FloatField(null=True)
    min_ms = models.FloatField(null=True)
    max_ms = models.FloatField(null=True)
    p5_ms = models.FloatField(null=True)
    p25_ms = models.FloatField(null=True)
    p50_ms = models.FloatField(null=True)
    p75_ms = models.FloatField(null=True)
    p90_ms = models.FloatField(null=True)
    p95_ms = models.FloatField(null=True)
    p99_ms = models.FloatField(null=True)
    p50_low_ms = models.FloatField(null=True)
    p50_high_ms = models.FloatField(null=True)
    iqr_over_median = models.FloatField(null=True)
    outliers = models.IntegerField(null=True)

    speedup = models.FloatField(null=True)
    speedup_low = models.FloatField(null=True)
    speedup_high = models.FloatField(null=True)
    rounds_half_width = models.FloatField(null=True)
    process_half_width = models.FloatField(null=True)
    host_half_width = models.FloatField(null=True)
    by_process = models.JSONField(null=True)
    paired = models.BooleanField(default=True)
    effective_sample_size = models.FloatField(null=True)
    left_after_round = models.IntegerField(null=True)

    tflops = models.FloatField(null=True)
    gb_per_s = models.FloatField(null=True)
    limit_ms = models.FloatField(null=True)
    limit_share = models.FloatField(null=True)
    hint = models.CharField(max_length=100, blank=True)
    compile_s = models.FloatField(null=True)
    peak_memory_bytes = models.BigIntegerField(null=True)
    registers = models.IntegerField(null=True)
    local_bytes = models.BigIntegerField(null=True)
    static_shared_bytes = models.IntegerField(null=True)
    dynamic_shared_bytes = models.IntegerField(null=True)
    grid = models.CharField(max_length=50, blank=True)
    block = models.CharField(max_length=50, blank=True)
    occupancy = models.FloatField(null=True)
    correctness = models.JSONField(null=True)
    is_checked = models.GeneratedField(
        expression=models.Case(models.When(correctness__correct=True, then=1), default=0),
        output_field=models.SmallIntegerField(),
        db_persist=True,
    )
    """1 if a reference found it correct. The database computes it: lists read it of thousands of results, and JSON
    would take longer than all the rest."""
    ran = models.JSONField(default=list)
    confirmed = models.BooleanField(default=False)
    """Whether it may lead: runs/pipeline/confirmed.py says so, and not the event."""
    samples_ns = models.JSONField(null=True)
    cold = models.JSONField(null=True)
    sm_mhz = models.JSONField(null=True)
    crosscheck = models.JSONField(null=True)

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["measurement", "kernel"], name="one_result_per_kernel")]
        indexes = [
            models.Index(fields=["status", "measurement"], name="results_by_status"),
            models.Index(fields=["measurement"], condition=models.Q(confirmed=True), name="confirmed_results"),
            models.Index(fields=["kernel", "id", "status", "measurement"], name="results_by_kernel"),
            *(
                models.Index(fields=[name, "id", "measurement", "kernel", "status"], name=f"results_by_{name}")
                for name in SORTED_BY
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kernel} on {self.measurement}"


class Chart(models.Model):
    """A chart of a run, drawn when it ended: a Vega-Lite spec, and the same as SVG."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="charts")
    name = models.CharField(max_length=120)
    theme = models.CharField(max_length=10)
    spec = models.JSONField()
    svg = models.TextField()
    done = models.IntegerField()
    """Number of workloads shown."""

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "name", "theme"], name="one_chart")]

"""A history of daily runs, through the models: a kernel and its baseline, with a level, an environment and a source a day.

.venv/bin/python tests/site/daily.py      fills the site's own database with a history to look at
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

BEGIN = datetime(2026, 7, 24, 3, tzinfo=UTC)
SIZES = {"batch": 4, "heads": 16, "seq_len": 512, "head_dim": 64, "causal": False}
ENVIRONMENT = {
    "device": "NVIDIA H200", "driver": "580.126", "cuda": "13.0", "cudnn": "9.15.1", "torch": "2.10.0", "triton": "3.6.0",
    "harness": "6",
}  # fmt: skip
SOURCE = "import torch\n\n\ndef run(q, k, v):\n    return q @ k @ v  # {}\n"
PROTOCOL = {"paired": True, "rest": 1.0, "name": "paired"}
SPREAD = 0.002


@dataclass
class Day:
    """What one run measures. Times in ms."""

    time: float = 0.01872
    base: float = 0.01627
    source: str = "a"
    environment: dict[str, str] = field(default_factory=dict)
    more: dict[str, object] = field(default_factory=dict)
    """Fields of the run."""
    result: dict[str, object] = field(default_factory=dict)
    """Fields of the kernel's result."""
    margin: float = 0.01


def repeated(count, **values):
    return [Day(**values) for _ in range(count)]


def step(before=24, after=12, ratio=1.041, **what):
    """Days at one level, then at another, with something else from there on: environment=..., source=..."""
    return [*repeated(before), *repeated(after, time=0.01872 * ratio, **what)]


def fill(gpu, days, kernel="sdpa-flash", begin=BEGIN, seed=1, sizes=None, user=None, spread=SPREAD, mode="graph"):
    """A run a day with two results. Returns the runs, oldest first."""
    from kernels.contract.environment import fingerprint
    from kernels.workload import Workload as Spec
    from runs.models import Environment, Kernel, Measurement, Newest, Result, Run, Workload

    more = random.Random(seed)
    spec = Spec(operation="attention", dtype="float16", sizes=sizes or SIZES)
    workload, runs = Workload.objects.of(spec), []
    config = {"name": "nightly", "operation": "attention", "kernels": ["sdpa", kernel], "workloads": [spec.sizes]}
    known = {
        name: Kernel.objects.get_or_create(operation="attention", name=name, defaults={"backend": "cuda"})[0]
        for name in ("sdpa", kernel)
    }
    for number, day in enumerate(days):
        at = begin + timedelta(days=number)
        body = ENVIRONMENT | {"device": gpu.name} | day.environment
        fields = {
            "title": "nightly", "config": config, "config_name": "nightly", "gpu": gpu, "user": user, "state": Run.State.DONE,
            "environment": Environment.of(body, fingerprint(body)), "total": 1, "done": 1, "created_at": at,
            "started_at": at, "finished_at": at + timedelta(minutes=2),
        }  # fmt: skip
        run = Run.objects.create(**fields | day.more)
        aa = 1 + more.gauss(0, 0.001)
        measurement = Measurement.objects.create(
            run=run, workload=workload, mode=mode, baseline="sdpa", margin=day.margin, aa=[aa, aa - 0.001, aa + 0.001],
            protocol=PROTOCOL,
        )  # fmt: skip
        times = {"sdpa": (day.base, "base", {}), kernel: (day.time, day.source, day.result)}
        for name, (level, source, changed) in times.items():
            time = level * (1 + more.gauss(0, spread))
            text = SOURCE.format(source)
            sha256 = f"{source:0<64}"
            version, _ = known[name].versions.get_or_create(sha256=sha256, defaults={"source": text})
            ratio = {} if name == "sdpa" else {"speedup": 0.87, "speedup_low": 0.868, "speedup_high": 0.872}
            values = {
                "status": "ok", "n": 200, "rounds": 12, "p50_ms": time, "p50_low_ms": time * 0.998,
                "p50_high_ms": time * 1.002, "correctness": {"correct": True},
            }  # fmt: skip
            Result.objects.create(
                measurement=measurement, kernel=known[name], version=version, **values | ratio | changed
            )
        Newest.objects.note([measurement])
        runs.append(run)
    return runs


def look_at_all():
    from runs.pipeline.watch import watch

    while watch():
        pass


def main():
    """Histories to look at: a regression with torch, no change, too few, a single point, a thousand, many sources."""
    import django

    django.setup()
    from django.utils import timezone

    from runs.models import Gpu

    def card(number, host):
        values = {"kind": "cuda", "name": "NVIDIA H200", "host": host, "seen_at": timezone.now()}
        return Gpu.objects.get_or_create(uuid=f"GPU-daily-{number}", defaults=values)[0]

    first, second = card(1, "gpu-3"), card(2, "gpu-4")
    ago = lambda days: timezone.now() - timedelta(days=days)  # noqa: E731
    torch = {"torch": "2.11.0", "cudnn": "9.19.0"}
    days = [
        *repeated(19, environment={"driver": "575.57", "triton": "3.5.1"}),
        *repeated(25, environment={"triton": "3.5.1"}),
        *repeated(25),
        *repeated(20, time=0.01948, environment=torch),
        *repeated(15, time=0.01948, environment=torch, source="b"),
        *repeated(5, time=0.01948, environment=torch | {"driver": "580.159"}, source="b"),
    ]
    fill(first, days, begin=ago(len(days)))
    fill(second, repeated(30, time=0.0188), begin=ago(60), seed=2)
    fill(first, step(30, 20, 0.9, source="b"), "triton-flash", ago(50), seed=3)
    fill(first, repeated(5), "cuda-wmma", ago(5), seed=4)
    fill(first, repeated(1), "flex", ago(1), seed=5)
    fill(first, repeated(1000), "eager", ago(1000), seed=6)
    fill(first, [Day(source=f"s{number // 2}") for number in range(80)], "gluon-flash", ago(80), seed=7)
    fill(first, step(20, 16, 1.08, environment=torch, source="b"), "compiled", ago(36), seed=8)
    look_at_all()


if __name__ == "__main__":
    import os
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchsite.settings")
    main()

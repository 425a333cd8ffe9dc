"""Runs that come with the site: measured on real GPUs, exported by the product, loaded at first start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils.dateparse import parse_datetime

from kernels.report.tables import FORMAT
from kernels.workload import Config as ConfigSpec
from kernels.workload import Workload as WorkloadSpec
from runs.models import Environment, Measurement, Run, Workload
from runs.pipeline.recorder import store_result


def folder() -> Path:
    return settings.BASE_DIR / "docs" / "measurements"


def load_samples() -> list[Run]:
    """Loads the exported runs docs/measurements/h200-*.json that are not there yet. Their charts are drawn when first asked
    for."""
    loaded = []
    for path in sorted(folder().glob("h200-*.json")):
        data = json.loads(path.read_text())
        if data.get("format") == FORMAT and not Run.objects.filter(sample__contains=path.name).exists():
            loaded.append(load(data, path.name))
    return loaded


@transaction.atomic
def load(data: dict[str, Any], source: str) -> Run:
    """One exported run, as a run that is done and says where it came from."""
    when = parse_datetime(data["measured_at"])
    if when is None:
        raise ValueError(f"{source}: measured_at is not a time: {data['measured_at']}")
    config = ConfigSpec(**data["config"])
    device = data["environment"]["device"]
    run = Run.objects.create(
        title=data.get("title") or config.title or config.name,
        config=config.model_dump(mode="json"),
        config_name=config.name,
        device_name=device,
        sample=f"measured on {device} on {when:%Y-%m-%d} ({source})",
        state=Run.State.DONE,
        environment=Environment.of(data["environment"], data["fingerprint"]),
        preflight=data.get("preflight", {}),
        created_at=when,
        started_at=when,
        finished_at=when,
        total=len(config.workloads),
        done=len({m["key"] for m in data["measurements"]}),
    )
    for event in data["measurements"]:
        own = {
            k: event[k]
            for k in ("mode", "group", "baseline", "margin", "aa", "protocol", "telemetry", "notes", "took_s")
        }
        workload = Workload.objects.of(WorkloadSpec(**event["workload"]))
        own["aa_ticks_ns"] = event.get("aa_ticks_ns")
        measurement = Measurement.objects.create(run=run, workload=workload, **own)
        for result in event["results"]:
            store_result(measurement, workload.operation, result, commit=data["environment"].get("commit") or "")
    return run

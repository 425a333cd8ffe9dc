"""The importer: exported runs as runs of this site, the demo run that comes with it among them."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.db import transaction

from kernels.contract.export import Export, NotAnExport, read_export
from runs.models import Environment, Run
from runs.pipeline.store import store_measured


def folder() -> Path:
    return settings.BASE_DIR / "docs" / "measurements"


def load_demo_runs() -> list[Run]:
    """Loads the exported runs docs/measurements/h200-*.json that are not there yet. Their charts are drawn when first asked
    for."""
    loaded = []
    for path in sorted(folder().glob("h200-*.json")):
        if not Run.objects.filter(sample__contains=path.name).exists():
            try:
                loaded.append(load(read_export(path.read_bytes()), path.name))
            except NotAnExport:  # a study's own data
                continue
    return loaded


@transaction.atomic
def load(export: Export, source: str) -> Run:
    """One exported run, as a run that is done and says where it came from."""
    when, config = export.measured_at, export.config
    device = export.environment["device"]
    run = Run.objects.create(
        title=export.title or config.title or config.name,
        config=config.model_dump(mode="json"),
        config_name=config.name,
        device_name=device,
        sample=f"measured on {device} on {when:%Y-%m-%d} ({source})",
        state=Run.State.DONE,
        environment=Environment.of(export.environment, export.fingerprint),
        preflight=export.preflight.model_dump(mode="json"),
        created_at=when,
        started_at=when,
        finished_at=when,
        total=len(config.workloads),
        done=len({event.key for event in export.measurements}),
    )
    for event in export.measurements:
        store_measured(run, event)
    return run

"""The importer: turns exported runs, such as the demo runs, into runs of this site."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.db import transaction

from kernels.contract.export import Export, NotAnExport, read_export
from runs.models import Environment, Run
from runs.models.run import FINAL
from runs.pipeline.store import store_measured


def folder() -> Path:
    return settings.BASE_DIR / "docs" / "measurements"


def load_demo_runs() -> list[Run]:
    """Loads missing runs from docs/measurements/h200-*.json. Their charts are drawn on first request."""
    loaded = []
    for path in sorted(folder().glob("h200-*.json")):
        if not Run.objects.filter(demo__contains=path.name).exists():
            try:
                loaded.append(load(read_export(path.read_bytes()), path.name))
            except NotAnExport:  # data of a study, not a run
                continue
    return loaded


def ended_as(export: Export) -> str:
    """The state of an imported run: its own; cancelled if it was still running or was interrupted."""
    if export.state in FINAL:
        return export.state
    return Run.State.CANCELLED if export.partial else Run.State.DONE


@transaction.atomic
def load(export: Export, source: str) -> Run:
    """Stores an exported run as a finished run with its origin."""
    when, config = export.measured_at, export.config
    device = export.environment["device"]
    run = Run.objects.create(
        title=export.title or config.title or config.name,
        config=config.model_dump(mode="json"),
        config_name=config.name,
        device_name=device,
        demo=f"measured on {device} on {when:%Y-%m-%d} ({source})",
        state=ended_as(export),
        message=export.partial,
        environment=Environment.of(export.environment, export.fingerprint),
        preflight=export.preflight.model_dump(mode="json"),
        timing=export.timing,
        samples_deleted_at=export.samples_deleted_at,
        contended=bool(export.preflight.others) or any(event.is_contended for event in export.measurements),
        created_at=when,
        started_at=when,
        finished_at=when,
        total=len(config.workloads),
        done=len({event.key for event in export.measurements}),
    )
    for event in export.measurements:
        store_measured(run, event)
    return run

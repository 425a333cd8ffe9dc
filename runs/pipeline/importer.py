"""The importer: turns the demo runs into runs of this site, and files of others into claims."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from django.conf import settings
from django.db import transaction

from kernels.analysis.peaks import Peak, peak_of
from kernels.analysis.roofline import renewed_ms
from kernels.contract.arm_result import ArmResult
from kernels.contract.events import Measured
from kernels.contract.export import Export, NotAnExport, read_export
from kernels.foreign import names, records
from kernels.foreign.claimed import Claimed, NotReadable, Record
from kernels.foreign.rows import claims
from kernels.operations.base import Operation
from runs.models import Audit, Claim, Environment, Import, Note, Run, Session
from runs.models.run import FINAL
from runs.pipeline.store import store_measured, store_profiles


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
        contended=export.contended,
        created_at=when,
        started_at=when,
        finished_at=when,
        total=len(config.workloads),
        done=len({event.key for event in export.measurements}),
    )
    store_measured(run, [in_todays_light(one, device) for one in export.measurements])
    store_profiles(run, export.profiles)
    return run


def in_todays_light(measured: Measured, device: str) -> Measured:
    """With shares of the same speed of light, whichever harness measured: see roofline.renewed_ms."""
    peak = peak_of(device)
    if not peak or not measured.workload.known_problem:
        return measured
    results = [_in_light(arm, measured.workload.known_problem, peak) for arm in measured.results]
    return measured.model_copy(update={"results": results})


def _in_light(arm: ArmResult, problem: Operation, peak: Peak) -> ArmResult:
    if not arm.limit_ms or not arm.limit_share or (limit_ms := renewed_ms(arm.limit_ms, problem, peak)) == arm.limit_ms:
        return arm
    return arm.model_copy(update={"limit_ms": limit_ms, "limit_share": arm.limit_share * limit_ms / arm.limit_ms})


# --- claims of others -------------------------------------------------------------------------------------------------

AT_ONCE = 500
"""Rows that are looked up and stored together."""
MOST_REFUSALS = 200
"""So many refusals are kept; the rest is counted."""


class TooMany(NotReadable):
    """More rows than may be imported at once. Nothing was stored."""


@dataclass
class Outcome:
    """What became of a file's rows."""

    format: str
    rows: int = 0
    taken: int = 0
    known: int = 0
    refused: int = 0
    refusals: list[tuple[str, str]] = field(default_factory=list)
    """(where, why) of rows, and of single kernels of rows: the first MOST_REFUSALS."""
    imported: Import | None = None
    """None: nothing in it is new."""
    before: Import | None = None
    """Where a claim that was known came from."""

    @property
    def sentence(self) -> str:
        """ "31 of 36 rows imported, 5 not." """
        if not self.rows:
            return "No row was found: nothing is imported."
        if not self.taken and self.known and not self.refused:
            return f"Nothing new: {'the row is' if self.known == 1 else f'all {self.known:,} rows are'} here already."
        parts = [f"{self.taken:,} of {self.rows:,} row{'s' if self.rows != 1 else ''} imported"]
        parts += [f"{self.known:,} {'was' if self.known == 1 else 'were'} here already"] if self.known else []
        parts += [f"{self.refused:,} not"] if self.refused else []
        return f"{', '.join(parts)}."

    def refuse(self, where: str, why: Exception) -> None:
        if len(self.refusals) < MOST_REFUSALS:
            self.refusals.append((where, str(why)))


@transaction.atomic
def import_claims(
    file: TextIO, name: str, *, about: str = "", user: Any = None, most: int | None = None, **more: str
) -> Outcome:
    """Stores the claims of a file that are new, with their origin. Memory does not grow with the file.

    about: words on every row, such as "attention fp16 D=64 on NVIDIA L4". more: other fields of the Import.
    Raises NotReadable; with `most`, TooMany.
    """
    kind, own, found = records.read(file)
    outcome = Outcome(kind)
    said = {**_of_name(name), **names.described(own), **names.described(about)}
    target = Import(name=name[:200], format=kind, about=" ".join(filter(None, (own, about)))[:500], user=user, **more)
    while some := list(islice(found, AT_ONCE)):
        if most and outcome.rows + len(some) > most:
            raise TooMany(f"It has more than {most:,} rows. Import it with: manage.py import_results FILE")
        _store(some, said, outcome, target)
    if target.pk:
        counts = {name: getattr(outcome, name) for name in ("rows", "known", "refused", "refusals")}
        Import.objects.filter(pk=target.pk).update(**counts)
        target.refresh_from_db()
        outcome.imported = target
        if user is not None:
            Audit.objects.note(
                user, Audit.Kind.IMPORTED, f"{name[:200]}: {outcome.taken} rows", target.get_absolute_url()
            )
    return outcome


def _of_name(name: str) -> dict[str, str]:
    """What the name of a file says, for rows that say less: its operation, and a kernel."""
    stem = Path(name).stem
    if stem == name:  # no file
        return {}
    return {key: value for key, value in names.described(stem).items() if key == "operation"} | {"kernel": stem[:100]}


def _store(some: list[Any], said: Mapping[str, str], outcome: Outcome, target: Import) -> None:
    """Stores the new claims of some rows, and counts the rows."""
    rows = []
    for one in some:
        read = list(claims(one, said)) if isinstance(one, Record) else [one]
        if read:  # a row of averages gives nothing
            rows.append(([claim for claim in read if isinstance(claim, Claimed)], read))
    digests = {claim.digest for row, _ in rows for claim in row}
    stored = {claim.digest: claim for claim in Claim.objects.filter(digest__in=digests).select_related("imported")}
    new: dict[str, Claim] = {}
    for row, read in rows:
        for where, why in (one for one in read if not isinstance(one, Claimed)):
            outcome.refuse(where, why)
        fresh = [claim for claim in row if claim.digest not in stored and claim.digest not in new]
        outcome.rows += 1
        outcome.taken += bool(fresh)
        outcome.known += bool(row and not fresh)
        outcome.refused += not row
        new |= {claim.digest: Claim(digest=claim.digest, body=claim.model_dump(mode="json")) for claim in fresh}
    if stored and outcome.before is None:
        outcome.before = next(iter(stored.values())).imported
    if new:
        if target.pk is None:
            target.save()
        for claim in new.values():
            claim.imported = target
        Claim.objects.bulk_create(new.values())


def samples() -> Path:
    return folder() / "claims"


def load_sample_sessions() -> list[Session]:
    """Makes the sessions that came with the site, once each, from documents and the claims that were typed from them."""
    there = set(Session.objects.exclude(sample="").values_list("sample", flat=True))
    loaded = []
    for path in sorted((folder() / "sessions").glob("*.json")):
        if path.name not in there:
            loaded.append(_load_session(json.loads(path.read_text()), path.name))
    return loaded


@transaction.atomic
def _load_session(document: dict[str, Any], name: str) -> Session:
    at = datetime.fromisoformat(document["at"])
    session = Session.objects.create(
        **{key: value for key, value in document.items() if key not in ("at", "claims", "notes")},
        sample=name, created_at=at, ended_at=at,
    )  # fmt: skip
    Import.objects.filter(sample__in=document["claims"]).update(session=session)
    for number, note in enumerate(document["notes"]):
        Note.objects.create(session=session, created_at=at + timedelta(minutes=number), **note)
    return session


def load_sample_claims() -> list[Outcome]:
    """Imports the tables of published documents that came with the site, once each."""
    there = set(Import.objects.exclude(sample="").values_list("sample", flat=True))
    loaded = []
    for path in sorted(samples().glob("*.json")):
        if path.name not in there:
            document = json.loads(path.read_text())
            with path.open() as file:
                loaded.append(import_claims(file, document["title"], sample=path.name, source=document["typed_from"]))
    return loaded

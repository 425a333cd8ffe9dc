"""What is answered. Rows whose columns can be chosen are open: kernels/report/measures.py names the columns."""

from __future__ import annotations

from typing import Any

from ninja import Schema
from pydantic import ConfigDict

ROW = dict[str, Any]


class ProblemOut(Schema):
    """An error: what is wrong, and what to change."""

    model_config = ConfigDict(extra="allow")
    title: str
    status: int
    detail: str
    field: str | None = None


class Me(Schema):
    user: str
    writes: bool
    expires_at: str | None
    """Of a token."""
    site: str


class RunLine(Schema):
    """A run in lists."""

    model_config = ConfigDict(extra="allow")
    id: int
    title: str
    state: str
    device: str
    config: str
    workloads: int
    measured: int
    by: str
    tags: str
    created_at: str
    url: str


class RunsPage(Schema):
    runs: list[RunLine]
    next: str | None


class Progress(Schema):
    """A run while it is measured."""

    id: int
    title: str
    state: str
    final: bool
    done: int
    total: int
    message: str
    device: str
    created_at: str
    url: str
    place: int | None
    progress: str
    """What its device does now."""
    contended: bool
    """Whether other processes used the device."""
    results: list[ROW]
    text: str
    """The table and the sentences about it, for a terminal."""


class RunOut(Schema):
    """An export: everything that the run has, with raw samples; another site can import it."""

    model_config = ConfigDict(extra="allow")
    title: str
    config: ROW
    environment: ROW
    measurements: list[ROW]
    table: list[ROW]


class ResultOut(Schema):
    """A result with everything that is stored of it."""

    run: int
    fingerprint: str
    samples_deleted_at: str | None
    """When its raw samples were deleted; its figures were computed before."""
    measurement: ROW
    result: ROW


class ProfileOut(Schema):
    run: int
    result: int
    profiled_by_run: int
    at: str
    diagnosis: str
    findings: list[ROW]
    profile: ROW


class SearchOut(Schema):
    """A search, whole: trials with what each promised, finalists with what new processes confirmed."""

    run: int
    state: str
    answer: str
    curse: str
    search: ROW


class TiersOut(Schema):
    scale: str
    tiers: list[ROW]


class SessionLine(Schema):
    id: int
    title: str
    objective: str
    by: str
    begun_at: str
    ended_at: str | None
    runs: int
    last_run_at: str | None
    url: str


class SessionsPage(Schema):
    sessions: list[SessionLine]
    next: str | None


class SessionOut(Schema):
    model_config = ConfigDict(extra="allow")
    title: str
    objective: str
    begun_at: str
    ended_at: str | None
    criteria: list[ROW]


class ImportLine(Schema):
    id: int
    name: str
    format: str
    by: str
    imported_at: str
    outcome: str
    url: str


class ImportsPage(Schema):
    imports: list[ImportLine]
    next: str | None


class ImportOut(Schema):
    name: str
    format: str
    imported_at: str
    outcome: str
    refusals: list[ROW]
    findings: list[ROW]
    claims: list[ROW]


class Judged(Schema):
    """The verdict with its arithmetic; without a claim, the limits of every GPU."""

    model_config = ConfigDict(extra="allow")
    gpus: list[ROW] | None = None
    verdict: str | None = None
    why: str | None = None


class NoticeOut(Schema):
    event: str
    id: int
    at: str
    sentence: str
    url: str
    run: int | None
    data: ROW


class StatusesPage(Schema):
    pages: list[ROW]
    """`url`, `badge` and `json` are null for a page whose link has ended."""
    next: str | None


class LinksPage(Schema):
    links: list[ROW]
    next: str | None


class AuditPage(Schema):
    lines: list[ROW]
    next: str | None


class PeoplePage(Schema):
    people: list[ROW]
    next: str | None


class NoticesPage(Schema):
    notices: list[NoticeOut]
    next: str | None


class MailOut(Schema):
    address: str
    kinds: list[str]


class WebhookOut(Schema):
    id: int
    url: str
    kinds: list[str]
    stopped: str
    """Why nothing is sent any more; empty: it is sent to."""


class Asked(Schema):
    mail: MailOut
    webhooks: list[WebhookOut]
    page: str


class ResultsPage(Schema):
    results: list[ROW]
    next: str | None


class KernelsOut(Schema):
    kernels: list[ROW]


class HistoryOut(Schema):
    kernel: str
    results: list[ROW]
    next: str | None


class BoardOut(Schema):
    leaderboard: list[ROW]


class ChangesOut(Schema):
    changes: list[ROW]


class DevicesOut(Schema):
    gpus: list[ROW]


class ConfigOut(Schema):
    name: str
    title: str
    operations: list[str]
    workloads: int
    kernels: list[str]


class ConfigsOut(Schema):
    configs: list[ConfigOut]


class LastResult(Schema):
    run: int
    workload: str
    device: str
    verdict: str
    why: str
    speedup: float | None
    low: float | None
    high: float | None
    confirmed: bool
    contended: bool


class SubmissionLine(Schema):
    submission: str
    kernel: str
    operation: str
    backend: str
    message: str
    by: str
    parent: str | None
    created_at: str
    url: str
    newest: LastResult | None
    """Of all its results, on whatever workload and device."""


class SubmissionsPage(Schema):
    submissions: list[SubmissionLine]
    next: str | None


class SubmissionOut(SubmissionLine):
    files: dict[str, str]
    git: dict[str, str] | None
    """Where the files lie, if not here."""


class ComparedMany(Schema):
    runs: list[ROW]
    """One for each run: `differ` names what is not the same in all, `why` says why it has no word against the first."""
    kernels: list[ROW]
    """Of each kernel `standings`, one sentence for each run, and `rows` by workload, with a result, or null, for each run."""


class Compared(Schema):
    before: int
    after: int
    rows: list[ROW]
    text: str
    url: str


class Submitted(Schema):
    submission: str
    kernel: str
    operation: str
    new: bool
    url: str
    run: RunLine | None


class GateOut(Schema):
    word: str
    """holds, fails, or cannot tell."""
    status: int
    """0, 1 or 2: the exit status of a command."""
    sentence: str
    max_regression: float
    rows: list[ROW]
    text: str
    markdown: str
    junit: str
    url: str
    """Of the run; empty for a file."""


class Cancelled(RunLine):
    said: str


class Imported(Schema):
    imported: int | None
    said: str
    rows: int
    taken: int
    known: int
    refused: int
    refusals: list[ROW]
    url: str | None

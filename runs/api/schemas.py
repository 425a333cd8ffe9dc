"""What is asked and answered. Rows whose columns can be chosen are open: kernels/report/measures.py names the columns."""

from __future__ import annotations

from typing import Any

from ninja import Field, Schema
from pydantic import ConfigDict

LISTED, MOST_LISTED = 50, 200
ROW = dict[str, Any]


class ProblemOut(Schema):
    """An error: what is wrong, and what to change."""

    model_config = ConfigDict(extra="allow")
    title: str
    status: int
    detail: str
    field: str | None = None


class Cursor(Schema):
    """Which part of a list."""

    limit: int = Field(LISTED, ge=1, le=MOST_LISTED, description="Rows of a page.")
    cursor: str = Field("", max_length=200, description="`next` of the page before.")


class RunsAsked(Cursor):
    state: str = Field("", max_length=20, description="State of the run: `queued`, `running`, `done`, `failed`, ...")
    device: str = Field("", max_length=20, description="Number of a device.")
    by: str = Field("", max_length=20, description="`me`: only runs of the asker.")
    tag: str = Field("", max_length=100, description="A tag of the run.")
    q: str = Field("", max_length=1000, description="Text in the title, config or note.")


class ResultsAsked(Cursor):
    """The filters of /results/. Each may be given several times; names are those of its search field."""

    q: str = Field("", max_length=500, description="Words, such as `sdpa-flash H200 S=4096 fp16`.")
    operation: list[str] = Field([], description="Such as `attention`.")
    kernel: list[str] = Field([], description="Name of a kernel.")
    backend: list[str] = Field([], description="Such as `triton`.")
    dtype: list[str] = Field([], description="Such as `fp16`.")
    gpu: list[str] = Field([], description="Name of a GPU, or a part of it.")
    host: list[str] = Field([], description="Name of a host.")
    shape: list[str] = Field([], description="Sizes, such as `S=4096 D=128` or `16384x4096`.")
    state: list[str] = Field(
        [],
        description="Of a result, such as `faster`, `incorrect`, `confirmed`, or of its run, such as `done`.",
    )
    mode: list[str] = Field([], description="Such as `cold` or `graph`.")
    person: list[str] = Field([], description="Who started the run; `me`: the asker.")
    label: list[str] = Field([], description="Text in the title of the run.")
    run: list[str] = Field([], description="Number of a run.")
    since: list[str] = Field([], description="First day (`2026-11-01`), or days until today (`30d`).")
    until: list[str] = Field([], description="Last day.")
    columns: str = Field("", max_length=1000, description="Measures, such as `p50_ms,speedup`.")
    sort: str = Field("", max_length=100, description="A measure or `measured_at`; `-` before it: descending.")


class HistoryAsked(Cursor):
    device: str = Field("", max_length=200, description="A GPU's name; default: of the newest result.")


class BoardAsked(Schema):
    operation: str = Field("", max_length=100, description="Such as `attention`; default: all.")
    gpu: str = Field("", max_length=200, description="A GPU's name; default: all.")
    dtype: str = Field("", max_length=20, description="Such as `float16`; default: all.")
    show: str = Field("", max_length=20, description="`confirmed` or `unconfirmed`.")


class ChangesAsked(Schema):
    kernel: str = Field("", max_length=200, description="Name of a kernel; default: all.")
    operation: str = Field("", max_length=100, description="Such as `attention`; default: all.")
    device: str = Field("", max_length=200, description="A GPU's name; default: all.")
    period: str = Field("30", max_length=5, description="Days: 7, 30, 90, 365; or `all`.")


class TiersAsked(Schema):
    scale: str = Field("", max_length=20, description="Number of a tier scale; default: the team's newest.")
    device: str = Field("", max_length=200, description="A GPU's name; default: of the newest result.")


class ClaimAsked(Schema):
    """A claim; the sizes of its operation are parameters of the same request."""

    model_config = ConfigDict(extra="allow")
    operation: str = Field("", max_length=100, description="Such as `attention`.")
    dtype: str = Field("", max_length=20, description="Such as `float16`.")
    gpu: str = Field("", max_length=200, description="A GPU's name.")
    ms: str = Field("", max_length=40, description="Time of one call.")
    tflops: str = Field("", max_length=40, description="Rate in TFLOP/s.")


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


class SubmissionsPage(Schema):
    submissions: list[SubmissionLine]
    next: str | None


class SubmissionOut(SubmissionLine):
    files: dict[str, str]
    git: dict[str, str] | None
    """Where the files lie, if not here."""


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

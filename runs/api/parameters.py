"""The parameters of reads."""

from __future__ import annotations

from ninja import Field, Schema
from pydantic import ConfigDict

LISTED, MOST_LISTED = 50, 200


class Cursor(Schema):
    """Which part of a list."""

    limit: int = Field(LISTED, ge=1, le=MOST_LISTED, description="Rows of a page.")
    cursor: str = Field("", max_length=200, description="`next` of the page before.")


class SubmissionsAsked(Cursor):
    operation: str = Field("", max_length=100, description="Such as `attention`.")
    q: str = Field("", max_length=200, description="Words in the name, version, message or person.")


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


class AuditAsked(Cursor):
    kind: str = Field("", max_length=20, description="What was done, such as `launched`; default: all.")
    who: str = Field("", max_length=150, description="Name of the person; default: all.")


class CompareAsked(Schema):
    runs: str = Field(max_length=200, description="Numbers of at most 8 runs: `1,2,3`.")

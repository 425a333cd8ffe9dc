"""The bodies of writes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from ninja import Field, Schema
from pydantic import BeforeValidator, ConfigDict, Discriminator, Tag, model_validator

TEXT = 2000
ROW = dict[str, Any]


def storable(value: Any) -> Any:
    """Raises ValueError for texts that a database cannot hold: with NUL, or with half a surrogate pair."""
    if isinstance(value, str):
        if "\x00" in value:
            raise ValueError("a text may not hold the character NUL")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("a text may not hold half a surrogate pair") from None
    elif isinstance(value, dict):
        storable([*value, *value.values()])
    elif isinstance(value, list):
        for one in value:
            storable(one)
    return value


class Sent(Schema):
    """The body of a write. A number is a JSON number: neither `false` nor "24"."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def can_be_stored(cls, values: Any) -> Any:
        return storable(getattr(values, "_obj", values))


class GitIn(Sent):
    """A kernel in a repository that the agent can reach."""

    url: str = Field(max_length=TEXT, description="https://, ssh:// or file://, without a password.")
    commit: str = Field(max_length=40, description="All 40 digits.")
    folder: str = Field(
        "", max_length=TEXT, description="The folder with the kernel's files. Empty: the whole repository."
    )
    operation: str = Field(max_length=TEXT, description="Such as attention.")
    kernel: str = Field(max_length=TEXT, description="Its name, as its file declares it.")


class SubmissionIn(Sent):
    """A kernel with its files, or a repository that has them; with a gpu, its run is queued."""

    files: dict[str, str] = Field({}, description="File name -> text.")
    git: GitIn | None = None
    gpu: str = Field(
        "", max_length=TEXT, description="Part of the device's name, its UUID or number. Empty: store, do not measure."
    )
    config: str = Field("", max_length=TEXT, description="Config to measure. Default: the smallest of the operation.")
    sweep: list[Annotated[str, Field(max_length=TEXT)]] = Field(
        [],
        max_length=40,
        description="Sizes instead of the config's, such as rows=1024,4096 or dtype=bfloat16; every combination is measured.",
    )
    effort: str = Field("", max_length=TEXT, description="quick (default), normal or thorough.")
    message: str = Field("", max_length=TEXT, description="What it changes.")
    parent: str = Field("", max_length=TEXT, description="The submission that it changes.")
    note: str = Field("", max_length=TEXT)


class RunIn(Sent):
    """A run of a config: the name of one of the site, or a whole one."""

    config: str | ROW
    gpu: str = Field(max_length=TEXT, description="A part of the device's name, its UUID or number.")
    kernels: list[str] = Field([], description="Only for a named config: kernels to measure instead of its own.")
    effort: str = Field("", max_length=20, description="Only for a named config: quick, normal or thorough.")
    title: str = Field("", max_length=200)
    note: str = Field("", max_length=5000)


class SearchIn(Sent):
    """A search for the best settings of a kernel."""

    kernel: str = Field(max_length=200, description="operation/name of a kernel that declares a space.")
    config: str = Field(
        max_length=TEXT, description="A config of its operation; each trial measures all its workloads."
    )
    gpu: str = Field(max_length=TEXT, description="A part of the device's name, its UUID or number.")
    sampler: str = Field("tpe", max_length=20, description="tpe, random, nsga2 or evolution.")
    trials: int = Field(24, description="Maximum number of trials.")
    minutes: int = Field(20, description="Maximum device time in minutes.")
    finalists: int = Field(3, description="Number of trials that new processes measure again.")
    processes: int = Field(5, description="Number of processes that confirm each finalist.")
    seed: int = Field(0, description="Seed of the sampler.")


class FileIn(Sent):
    """A run that is a file: what `python -m kernels run --json` writes. Without `samples_ns` and `source` it is smaller, and
    judged in the same way."""

    name: str = Field("file", max_length=200, description="What the answer calls it.")
    export: ROW


def _kind(value: Any) -> str:
    return "file" if isinstance(value, dict | FileIn) else "number"


Judged = Annotated[
    Annotated[int, Field(ge=0, lt=10**18), Tag("number")] | Annotated[FileIn, Tag("file")], Discriminator(_kind)
]
"""A run of the site by its number, or a run that is a file."""


def _share(value: Any) -> Any:
    """ "2%" is 0.02, as on the command line."""
    try:
        return float(value.strip().removesuffix("%")) / 100 if isinstance(value, str) and "%" in value else value
    except ValueError:
        return value


def _best(value: Any) -> Any:
    return "best" if value == ["best"] else value


class GateIn(Sent):
    """A run, and the earlier ones that it is compared with."""

    run: Judged
    against: Annotated[Literal["best"] | Annotated[list[Judged], Field(max_length=25)], BeforeValidator(_best)] = Field(
        "best",
        description="Earlier runs, or `best`: all comparable earlier runs of the site. With several runs, each kernel "
        "is compared with its best result.",
    )
    max_regression: Annotated[float, BeforeValidator(_share)] = Field(
        0.02, gt=0, lt=1, description='How much slower is allowed: 0.02, or "2%".'
    )
    kernels: list[str] = Field([], max_length=200, description="Only these; default: all.")


class ImportIn(Sent):
    """Results of others, as claims: text of a CSV, JSON or JSON lines file."""

    text: str = Field(min_length=1, max_length=2**20)
    name: str = Field("sent to the API", max_length=200)
    about: str = Field("", max_length=300, description="Used for every row that does not say otherwise.")

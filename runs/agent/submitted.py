"""What a run brings with it: its spec, and the submitted kernels, in a folder that only this run has."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kernels.catalog import AT
from kernels.formats.adding import with_declaration
from kernels.git_source import GitSource
from kernels.host.scratch import Scratch
from kernels.submission import Submission, Unreadable, kernel_of, reading, version_of
from kernels.workload import RunSpec, sentence
from runs.agent.fetching import NotFetched, fetch


class UnknownSpec(ValueError):
    """A spec that this agent cannot execute as it is meant. The message is a sentence for the run's page."""


def read_spec(raw: dict[str, Any]) -> RunSpec:
    """The spec of a message. Raises UnknownSpec: nothing of a spec is ignored."""
    if unknown := sorted(raw.keys() - RunSpec.model_fields.keys()):
        names = ", ".join(unknown)
        raise UnknownSpec(f"This agent does not know the field {names} of a run: update the repository on its host.")
    try:
        return RunSpec(**raw)
    except ValidationError as error:
        raise UnknownSpec(f"This agent cannot read the run: {sentence(error)}") from None


@contextmanager
def submitted(submissions: list[Submission]) -> Iterator[dict[str, str]]:
    """Writes the submissions where the measuring processes find them; removes them in the end. Yields the sha256 of the files
    of those that were fetched, by kernel. Raises NotFetched.

    A kernel has a user of its own, so everybody may read them who knows the folder's name. Nobody can list it.
    """
    if not submissions:
        yield {}
        return
    fetched, digests = {}, {}
    for one in submissions:
        if one.git:
            files = fetch(one.git)
            fetched[one.version] = _checked(one, one.git, files)
            digests[f"{one.git.kernel}{AT}{one.version}"] = version_of(files)
    scratch = Scratch()
    try:
        os.chmod(scratch.path, 0o711)
        folder = Path(scratch.path) / secrets.token_hex(16)
        folder.mkdir()
        with reading(folder, submissions, fetched):
            yield digests
    finally:
        scratch.remove()


def _checked(one: Submission, git: GitSource, files: dict[str, str]) -> dict[str, str]:
    """The files with the declaration that they may lack. Raises NotFetched if they are not of the kernel that was named."""
    try:
        whole = with_declaration(files)
        found = kernel_of(whole)
    except Unreadable as error:
        raise NotFetched(f"The files at {git.url} are not a kernel: {error}.") from None
    if (found.operation, found.name) != (one.operation, git.kernel):
        named = f"{one.operation}/{git.kernel}"
        raise NotFetched(f"The files at {git.url} declare {found.full_name}, not {named}. Use that name.")
    return whole

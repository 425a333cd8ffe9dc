"""What a run brings with it: its spec, and the submitted kernels, in a folder that only this run has."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kernels.host.scratch import Scratch
from kernels.submission import Submission, reading
from kernels.workload import RunSpec, sentence


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
def submitted(submissions: list[Submission]) -> Iterator[None]:
    """Writes the submissions where the measuring processes find them; removes them in the end.

    A kernel has a user of its own, so everybody may read them who knows the folder's name. Nobody can list it.
    """
    if not submissions:
        yield
        return
    scratch = Scratch()
    try:
        os.chmod(scratch.path, 0o711)
        folder = Path(scratch.path) / secrets.token_hex(16)
        folder.mkdir()
        with reading(folder, submissions):
            yield
    finally:
        scratch.remove()

"""What a parent asks of a template: one process, and what it becomes."""

from __future__ import annotations

from pydantic import BaseModel

from kernels.host.airlock import Spec


class Request(BaseModel):
    """Sent with the files of the new process: its pipe of commands, its pipe of answers, its output, the socket on which the
    template says its number and its end; behind an airlock the pipe of facts; then those of `numbers`."""

    environment: dict[str, str]
    module: str
    """Its `__main__` is what the process runs."""
    arguments: list[str]
    """Before the numbers of its pipes of commands and answers."""
    airlock: Spec | None = None
    """What it passes through first. The number of the pipe of facts is the process's own."""
    numbers: list[int] = []
    """Of further files, in the new process too."""

"""What the profiled process is asked, and what it answers."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from kernels.contract.arm_result import Text
from kernels.contract.profile import Timeline
from kernels.workload import Workload

MOST_SAID = 300
"""Characters of a reason that are shown."""


class Ask(BaseModel):
    model_config = ConfigDict(frozen=True)

    what: Literal["counters", "timeline"]
    device: Literal["cpu", "cuda"]
    workload: Workload
    kernel: str
    seed: int = 1


class Answer(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    sha256: str = ""
    """Of the kernel's file."""
    timeline: Timeline | None = None
    failed: Text | None = None
    """Why it is no answer."""


def answer_of(output: str) -> Answer | None:
    """The answer of the profiled process: its last line that is one."""
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            try:
                return Answer.model_validate_json(line)
            except ValueError:
                continue
    return None

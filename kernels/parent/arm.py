"""State of one kernel on one workload; maps errors to results."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from kernels import catalog
from kernels.analysis.memory import size
from kernels.contract.arm_result import Status
from kernels.host.device import Device
from kernels.parent.child_process import ChildTimedOut, CommandFailed, Forged
from kernels.workload import Workload

OWN_STATUS = {str(status): status for status in (Status.UNSUPPORTED, Status.OUT_OF_MEMORY, Status.SUSPECT)}
"""Kinds of failed commands that are a status."""


@dataclass
class Arm:
    """One kernel on one workload: its status and facts so far."""

    name: str
    status: Status = Status.OK
    why: str = ""
    log: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    """Fields of an ArmResult that the child has reported: sha256, source, compile_s, ..."""
    correctness: dict[str, Any] = field(default_factory=dict)
    """Result of analysis/correctness.py; empty before the first check."""
    leaves_threads: bool = False
    """Python threads of it live on between its calls."""
    rechecked: dict[str, Any] = field(default_factory=dict)
    """The same for outputs of timed calls, and after them; empty before."""

    @property
    def other_work(self) -> str:
        """What it does instead of the operation's work; empty: it does that."""
        return self.facts.get("other_work", "")

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that its process needs."""
        return self.facts.get("environment", {})

    @property
    def is_ok(self) -> bool:
        return self.status == Status.OK

    def fail(self, status: Status, why: str, log: str = "") -> None:
        self.status, self.why, self.log = status, why, log

    def judged(self, correctness: dict[str, Any]) -> None:
        """Stores the judgement of its outputs."""
        self.correctness = correctness
        if correctness["correct"] is False:
            self.fail(Status.INCORRECT, correctness["why"])

    def blame(self, doing: str, error: Exception, log: str) -> bool:
        """Turns an error of the child into this arm's result. True: the child must be replaced."""
        if isinstance(error, CommandFailed):
            message = str(error)
            unusable = "CUDA error" in message or "illegal memory access" in message  # the CUDA context
            if unusable and error.fault.kind != "out of memory":
                self.fail(Status.CRASHED, message, error.fault.traceback)
                return True
            status = OWN_STATUS.get(error.fault.kind, Status.FAILED)
            seen = _with_printed(error.fault.traceback, log) if status == Status.FAILED else ""
            self.fail(status, in_short(status, message), seen)
            return unusable or error.fault.must_replace
        if isinstance(error, ChildTimedOut):
            status = Status.TIMED_OUT
        else:
            status = Status.SUSPECT if isinstance(error, Forged) else Status.CRASHED
        self.fail(status, f"{doing}: {error}", log)
        return True


def _with_printed(traceback: str, log: str) -> str:
    """A traceback, and before it what the process printed: who looks for a fault prints values."""
    return f"{log.rstrip()}\n\n{traceback}" if log.strip() and log.strip() not in traceback else traceback


ASKED = re.compile(r"tried to allocate ([\d.]+) (bytes|[KMGT]iB)", re.IGNORECASE)
FREE = re.compile(r"total capaci?ty of ([\d.]+ \w+) of which ([\d.]+ \w+) is free")
"""PyTorch says both of a GPU, and only the first of a CPU. "capacty" is how its version 2.1 wrote it."""
ADDED = re.compile(r"; [\d.,]+ \w+ of [\d.,]+ \w+ were free$", re.MULTILINE)
"""What the child says where PyTorch does not."""


def in_short(status: Status, message: str) -> str:
    """The essential part of an exception's message, for a table. Of memory that ran out: what was asked for, and what
    was free."""
    if status == Status.OUT_OF_MEMORY and (asked := ASKED.search(message)):
        count, unit = asked.groups()
        said = f"tried to allocate {size(float(count)) if unit.lower() == 'bytes' else f'{count} {unit}'}"
        if free := FREE.search(message):
            return f"{said}; {free[2]} of {free[1]} were free"
        return said + (added[0] if (added := ADDED.search(message)) else "")
    return message.removeprefix("Unsupported: ")


def arm_of(device: Device, workload: Workload, name: str) -> Arm:
    """A kernel before its first run. What its declaration rules out fails without running it."""
    arm = Arm(name)
    try:
        info = catalog.get_kernel(workload.operation, name)
    except catalog.UnknownName as error:
        arm.fail(Status.UNSUPPORTED, str(error))
        return arm
    arm.facts |= {"sha256": info.sha256, "backend": info.backend}
    arm.facts |= {"other_work": info.other_work, "environment": info.environment}
    if info.error:
        arm.fail(Status.FAILED, info.error)
        return arm
    why = info.why_not_on(device.kind, device.capability)
    why = why or info.why_not_for(workload.dtype, workload.problem.model_dump())
    if why:
        arm.fail(Status.UNSUPPORTED, why)
    return arm

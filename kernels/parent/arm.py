"""One kernel on one workload while it is measured: what is known of it, and how an error becomes its result."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from kernels import catalog
from kernels.contract.events import Status
from kernels.host.device import Device
from kernels.parent.child_process import ChildTimedOut, CommandFailed, Forged
from kernels.workload import Workload

OWN_STATUS = {str(status): status for status in (Status.UNSUPPORTED, Status.OUT_OF_MEMORY, Status.SUSPECT)}
"""Kinds of failed commands that name a status."""


@dataclass
class Arm:
    """A kernel and what became of it so far."""

    name: str
    status: Status = Status.OK
    why: str = ""
    log: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    """Fields of an ArmResult that the child has reported: sha256, source, compile_s, ..."""
    correctness: dict[str, Any] = field(default_factory=dict)
    """As analysis/correctness.py judges it; empty before the first check."""
    rechecked: dict[str, Any] = field(default_factory=dict)
    """The same of its outputs while it was timed, and after; empty before."""

    @property
    def is_ok(self) -> bool:
        return self.status == Status.OK

    def fail(self, status: Status, why: str, log: str = "") -> None:
        self.status, self.why, self.log = status, why, log

    def judged(self, correctness: dict[str, Any]) -> None:
        """Takes a verdict on its outputs."""
        self.correctness = correctness
        if correctness["correct"] is False:
            self.fail(Status.INCORRECT, correctness["why"])

    def blame(self, doing: str, error: Exception, log: str) -> bool:
        """Makes an error of the child this arm's result. True: the child must be replaced."""
        if isinstance(error, CommandFailed):
            message = str(error)
            if "CUDA error" in message or "illegal memory access" in message:  # the context is gone
                self.fail(Status.CRASHED, message, error.traceback)
                return True
            status = OWN_STATUS.get(error.kind, Status.FAILED)
            self.fail(status, in_short(status, message), error.traceback if status == Status.FAILED else "")
            return error.must_replace
        if isinstance(error, ChildTimedOut):
            status = Status.TIMED_OUT
        else:
            status = Status.SUSPECT if isinstance(error, Forged) else Status.CRASHED
        self.fail(status, f"{doing}: {error}", log)
        return True


def in_short(status: Status, message: str) -> str:
    """What matters of an exception's message, for a table."""
    if status == Status.OUT_OF_MEMORY and (asked := re.search(r"[Tt]ried to allocate [\d.]+ \w+", message)):
        return asked.group().lower().replace("gib", "GiB").replace("mib", "MiB")
    return message.removeprefix("Unsupported: ")


def arm_of(device: Device, workload: Workload, name: str) -> Arm:
    """A kernel before it is tried. What its declaration rules out is said without running it."""
    arm = Arm(name)
    try:
        info = catalog.get_kernel(workload.operation, name)
    except catalog.UnknownName as error:
        arm.fail(Status.UNSUPPORTED, str(error))
        return arm
    arm.facts |= {"sha256": info.sha256, "backend": info.backend}
    if info.error:
        arm.fail(Status.FAILED, info.error)
        return arm
    why = info.why_not_on(device.kind, device.capability)
    why = why or info.why_not_for(workload.dtype, workload.problem.model_dump())
    if why:
        arm.fail(Status.UNSUPPORTED, why)
    return arm

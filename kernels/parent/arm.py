"""One kernel on one workload while it is measured: what is known of it, and how what goes wrong becomes its result."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from kernels.parent.child_process import ChildTimedOut, CommandFailed, Forged

SAID_OF_ITSELF = ("unsupported", "out of memory", "suspect")
"""Kinds of failed commands that are statuses as they are."""


@dataclass
class Arm:
    """A kernel and its standing so far."""

    name: str
    status: str = "ok"
    """ok, incorrect, suspect, unsupported, out of memory, timed out, crashed, impossible, failed"""
    why: str = ""
    log: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    def fail(self, status: str, why: str, log: str = "") -> None:
        self.status, self.why, self.log = status, why, log

    def judged(self, verdict: dict[str, Any]) -> None:
        """Takes what verify.judge says of it."""
        self.facts["correctness"] = verdict
        if not verdict["correct"]:
            self.fail("incorrect", verdict["why"])

    def blame(self, doing: str, error: Exception, log: str) -> bool:
        """Makes an error of the child this arm's result. True: that child is of no more use."""
        if isinstance(error, CommandFailed):
            message = str(error)
            if "CUDA error" in message or "illegal memory access" in message:  # the context is gone
                self.fail("crashed", message, error.traceback)
                return True
            status = error.kind if error.kind in SAID_OF_ITSELF else "failed"
            self.fail(status, in_short(status, message), error.traceback if status == "failed" else "")
            return error.lasting
        status = (
            "timed out" if isinstance(error, ChildTimedOut) else "suspect" if isinstance(error, Forged) else "crashed"
        )
        self.fail(status, f"{doing}: {error}", log)
        return True


def in_short(status: str, message: str) -> str:
    """What matters of an exception's message, for a table."""
    if status == "out of memory" and (asked := re.search(r"[Tt]ried to allocate [\d.]+ \w+", message)):
        return asked.group().lower().replace("gib", "GiB").replace("mib", "MiB")
    return message.removeprefix("Unsupported: ")

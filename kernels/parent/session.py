"""Where the arms of a workload run: in a measuring child, or (kernels/inprocess) in the caller's own process."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

from kernels.host.device import Device
from kernels.parent.arm import Arm
from kernels.parent.child_process import Child, ChildDied, ChildTimedOut, CommandFailed
from kernels.parent.drive import Commands
from kernels.workload import Workload

LOG_TAIL, ERROR_TAIL = 16_000, 4_000
"""Bytes kept of what a run, and a kernel that failed, printed."""


class Session(Commands, typing.Protocol):
    """Commands, and a process to take them that can be another one after a crash."""

    @property
    def replaceable(self) -> bool:
        """Whether `replace` can give a new process. If not, errors of an arm go through to the caller."""
        ...

    def attempt(self, arm: Arm, do: str, limit_s: float, **arguments: Any) -> dict[str, Any] | None:
        """A command that belongs to one arm. What goes wrong becomes the arm's result, and None comes back."""
        ...

    def blame(self, arm: Arm, doing: str, error: Exception) -> None:
        """Makes an error the arm's result, and replaces the process if it is of no more use."""
        ...

    def replace(self) -> None:
        """Ends the process; the next command goes to a new one."""
        ...

    def why_suspect(self, arm: str) -> str:
        """What the session itself has against an arm that was timed, as a sentence; empty if nothing."""
        ...


class ChildSession:
    """A measuring child at a time: the warm one first, a new one whenever that has ended."""

    replaceable = True

    def __init__(self, device: Device, should_stop: Callable[[], bool], warm: Child | None = None) -> None:
        self.device, self.should_stop, self._warm = device, should_stop, warm
        self._child: Child | None = None
        self._opened: tuple[Child, str] | None = None
        """A child and the key of the workload that it has open."""
        self._logs: list[str] = []

    @property
    def child(self) -> Child:
        if self._child is None or not self._child.alive:
            self.replace()
            self._child, self._warm = self._warm or Child(self.device), None
            self._child.should_stop = self.should_stop
        return self._child

    def wait_ready(self) -> dict[str, Any]:
        """The child's environment, once torch and the device are up."""
        return self.child.wait_ready()

    def call(self, do: str, limit_s: float = 120.0, **arguments: Any) -> dict[str, Any]:
        """To the child that the last commands went to, even if it has died: a new one knows nothing of them."""
        return (self._child or self.child).call(do, limit_s, **arguments)

    def open(self, workload: Workload, afresh: bool = False) -> None:
        child = self.child
        if afresh or self._opened != (child, workload.key):
            child.call("open", workload=workload.model_dump())
            self._opened = child, workload.key

    def attempt(self, arm: Arm, do: str, limit_s: float, **arguments: Any) -> dict[str, Any] | None:
        try:
            return self.child.call(do, limit_s, arm=arm.name, **arguments)
        except (CommandFailed, ChildDied, ChildTimedOut) as error:
            self.blame(arm, do, error)
            return None

    def blame(self, arm: Arm, doing: str, error: Exception) -> None:
        log = self._child.log.tail(ERROR_TAIL) if self._child else ""
        if arm.blame(doing, error, log):
            self.replace()

    def replace(self) -> None:
        if self._child is not None:
            self._logs.append(self._child.log.tail())
            self._child.close()
            self._child = None

    def why_suspect(self, arm: str) -> str:
        return ""

    def log_tail(self) -> str:
        parts = [*self._logs, self._child.log.tail() if self._child else ""]
        return "".join(parts)[-LOG_TAIL:]

    def close(self) -> None:
        for child in (self._child, self._warm):
            if child:
                child.close()

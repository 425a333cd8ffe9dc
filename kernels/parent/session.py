"""Where arms run: in a measuring child, or (kernels/inprocess) in the caller's process."""

from __future__ import annotations

import logging
import typing
from collections.abc import Callable
from typing import Any

from kernels.host.device import Device
from kernels.host.scratch import Scratch
from kernels.parent.arm import Arm
from kernels.parent.child_process import CannotStart, Child, ChildDied, ChildTimedOut, CommandFailed
from kernels.parent.drive import Commands
from kernels.parent.log import head_and_tail
from kernels.parent.stopwatch import Stopwatch
from kernels.workload import Workload

log = logging.getLogger(__name__)
LOG_MOST, ERROR_TAIL = 16_000, 4_000
"""Characters of output kept: of a run, its beginning and its end; of a failed kernel, its end."""
CHECK_LIMIT_S = 120.0
"""A command that looks at an arm may take this long, beside the calls that it makes."""
STARTS = 3
"""Children that may die in a row where no kernel runs."""
T = typing.TypeVar("T")


class Session(Commands, typing.Protocol):
    """Executes commands in a process that can be replaced after a crash."""

    @property
    def replaceable(self) -> bool:
        """Whether `replace` can start a new process. If not, errors of an arm propagate to the caller."""
        ...

    def attempt(self, arm: Arm, do: str, limit_s: float, **arguments: Any) -> Any | None:
        """A command for one arm, and its reply. An error becomes the arm's result; then returns None."""
        ...

    def blame(self, arm: Arm, doing: str, error: Exception) -> None:
        """Turns an error into the arm's result; replaces an unusable process."""
        ...

    def replace(self) -> None:
        """Ends the process. The next command starts a new one."""
        ...

    def why_suspect(self, arm: str) -> str:
        """Session's objection to an arm (global state changed), as a sentence; empty if none."""
        ...


class ChildSession:
    """One measuring child at a time: the warm one first, then a new one after each end."""

    replaceable = True

    def __init__(
        self,
        device: Device,
        should_stop: Callable[[], bool],
        warm: Child | None = None,
        stopwatch: Stopwatch | None = None,
        independent: bool = False,
    ) -> None:
        """independent: its processes share nothing of what chance decides at a start, such as where memory lies."""
        self.independent = independent
        self.device, self.should_stop, self._warm = device, should_stop, warm
        self.environment: dict[str, str] = {}
        """Further environment variables of the child."""
        self.stopwatch = stopwatch or Stopwatch()
        self._child: Child | None = None
        self._opened: tuple[Child, str] | None = None
        """(child, key of its open workload)."""
        self._compiled: Scratch | None = None
        """What the child before compiled, for those that come."""
        self._logs: list[str] = []

    @property
    def child(self) -> Child:
        if self._child is None or not self._child.alive:
            self.replace()
            self._child = self._fresh()
            self._child.should_stop = self.should_stop
        return self._child

    def _fresh(self) -> Child:
        compiled = self._compiled.path if self._compiled else ""
        if self.environment or compiled:
            return Child(self.device, environment=self.environment, compiled=compiled)
        warm, self._warm = self._warm, None
        if warm and warm.is_forked and self.independent:
            warm.close()
            warm = None
        return warm or Child(self.device, fresh=self.independent)

    def use(self, environment: dict[str, str]) -> None:
        """The child of the next command has these environment variables, and no others of a kernel."""
        if environment != self.environment:
            self.replace()
            self.environment = environment

    def wait_ready(self) -> dict[str, Any]:
        """The child's environment, once torch and the device are up."""
        with self.stopwatch.during("start"):
            return self._in_a_living_child(self._begun)

    def _begun(self, child: Child) -> dict[str, Any]:
        if child.ready is None:
            child.wait_ready()
            log.info("measuring process %s", child.process.pid, extra={"child": child.process.pid})
        return child.wait_ready()

    def _in_a_living_child(self, do: Callable[[Child], T]) -> T:
        """Does what runs no kernel. A child that dies meanwhile is replaced, at most twice."""
        for start in range(1, STARTS + 1):
            try:
                return do(self.child)
            except ChildDied as error:
                if start == STARTS or isinstance(error, CannotStart):
                    raise
                self.replace()
        raise AssertionError("unreachable")

    def call(self, do: str, limit_s: float = 120.0, **arguments: Any) -> Any:
        """Sends to the child of the previous commands, even if it has died: a new one lacks their state."""
        return self._timed(self._child or self.child, do, limit_s, **arguments)

    def _timed(self, child: Child, do: str, limit_s: float = 120.0, **arguments: Any) -> Any:
        """A command, with its time given to its phase. The start of a new process is a phase of its own."""
        if child.ready is None:
            with self.stopwatch.during("start"):
                self._begun(child)
        with self.stopwatch.command(do, arguments):
            return child.call(do, limit_s, **arguments)

    def open(self, workload: Workload, afresh: bool = False) -> None:
        def opened(child: Child) -> None:
            if afresh or self._opened != (child, workload.key):
                self._timed(child, "open", workload=workload.model_dump())
                self._opened = child, workload.key

        self._in_a_living_child(opened)

    def attempt(self, arm: Arm, do: str, limit_s: float, **arguments: Any) -> Any | None:
        try:
            return self._timed(self.child, do, limit_s, arm=arm.name, **arguments)
        except (CommandFailed, ChildDied, ChildTimedOut) as error:
            self.blame(arm, do, error)
            return None

    def blame(self, arm: Arm, doing: str, error: Exception) -> None:
        is_own = not isinstance(
            error, CommandFailed
        )  # of an exception: other kernels of this process have printed, too
        log = self._child.log.tail(ERROR_TAIL) if self._child and is_own else ""
        if arm.blame(doing, error, log):
            self.replace()

    def replace(self) -> None:
        if self._child is not None:
            self._logs.append(self._child.log.whole())
            self._child.close()
            self._child = None

    def replace_after_timing(self) -> None:
        """Replaces the child by one that need not compile again. Not before all timing: a kernel may have changed what
        another one's compiler wrote."""
        if self._child is not None and self._compiled is None:
            self._compiled = Scratch()
            self._child.hand_over(self._compiled.path)
        self.replace()

    def why_suspect(self, arm: str) -> str:
        return ""

    def log(self) -> str:
        """What all processes wrote; of much, the beginning and the end."""
        parts = [*self._logs, self._child.log.whole() if self._child else ""]
        return head_and_tail("".join(parts), LOG_MOST)

    def close(self) -> None:
        for child in (self._child, self._warm):
            if child:
                child.close()
        if self._compiled:
            self._compiled.remove()

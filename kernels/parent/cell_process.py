"""The processes of an isolated measurement, seen from the parent: the trusted one, and cells.

A cell runs only from a question to its answer. All of its processes are stopped otherwise. Nothing is timed while another cell
owes an answer.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from kernels import catalog
from kernels.analysis.memory import size
from kernels.contract.isolation import CELL_REPLIES, PROBLEM_REPLIES, TRUSTED_REPLIES, Armed, Batch
from kernels.contract.replies import Fault, Reply
from kernels.host import limits, processes
from kernels.host.airlock import Facts, Spec
from kernels.host.device import Device
from kernels.host.forking import Request
from kernels.host.needed import hidden, readable
from kernels.host.scratch import given
from kernels.parent.child_process import LOOK_EVERY_S, Child, ChildDied, ChildTimedOut, CommandFailed

ISOLATED = "kernels.isolated"
FIRST_UID = 1_500_000_000
"""Users of cells: far above those that hosts give to people."""
STOP_LIMIT_S = 10.0
"""A thread in a call of a driver stops when it returns from there."""
END_LIMIT_S = 5.0
"""On a busy machine a process lives on for a moment after it was killed."""
FACTS_LIMIT_S = 30.0
PROMPT_S = 0.01
"""Most processes stop within this time; others are asked less often."""
SETTLES_S = 0.002
"""A process is stopped once its CPU time has not grown for so long: a thread is said to be stopped right before it leaves its
core, and what it runs until then counts."""
MOST_PROCESSES = 64
"""Processes that a cell may have when a batch begins, ended ones included: to look at each takes time, in which others work."""
MOST_HEIRS = 20
"""Looks in which there may be a new process although all that were there before are stopped."""
RESTS_NS = 500_000
"""CPU time that processes may use while they are stopped."""


TOO_MANY = f"its calls have left {{}} processes, and at most {MOST_PROCESSES} can be stopped together"


class TrustedEnded(RuntimeError):
    """The trusted process has died."""


class Suspect(CommandFailed):
    """What a cell did cannot be believed."""

    def __init__(self, message: str) -> None:
        super().__init__(Fault(kind="suspect", message=message, must_replace=True))


class Trusted(Child):
    """The process that owns inputs, seeds and references."""

    replies = TRUSTED_REPLIES
    module, is_isolated = ISOLATED, True

    def call(self, do: str, limit_s: float = 120.0, **arguments: Any) -> Any:
        """As in Child. Raises TrustedEnded if it has died: no kernel is blamed for that."""
        try:
            return super().call(do, limit_s, **arguments)
        except (ChildDied, ChildTimedOut) as error:
            raise TrustedEnded(f"the process that holds inputs and references ended: {error}") from None

    def _arguments(self) -> list[str]:
        return ["trusted", *super()._arguments()]


class Cell(Child):
    """A process with one kernel, behind the airlock. `memory`: the file of its input sets, on a CPU."""

    module, is_isolated = ISOLATED, True
    replies: ClassVar[Mapping[str, type[Reply]]] = CELL_REPLIES
    worker: ClassVar[str] = "cell"
    line_bytes = 16 * 2**20

    def __init__(
        self,
        device: Device,
        should_stop: Callable[[], bool],
        memory: int | None = None,
        own_user: bool = True,
        environment: Mapping[str, str] | None = None,
        fresh: bool = False,
    ) -> None:
        self.memory = memory
        self.uid = free_uid() if own_user and os.geteuid() == 0 else None
        self.facts = Facts()
        self.groups = limits.new_groups(secrets.token_hex(4))
        self._used_ns: dict[int, int] | None = None
        """CPU time of each of its processes when they were stopped; None while they run."""
        self._facts_read, self._facts_write = os.pipe()
        super().__init__(device, should_stop, environment, fresh=fresh)
        os.close(self._facts_write)

    def _arguments(self) -> list[str]:
        return [self.worker, *super()._arguments()]

    def _request(self) -> Request:
        airlock, numbers = self._spec([sys.executable]), [] if self.memory is None else [self.memory]
        return super()._request().model_copy(update={"airlock": airlock, "numbers": numbers})

    def _command(self, arguments: list[str]) -> list[str]:
        spec = self._spec(super()._command(arguments))
        return [sys.executable, "-m", "kernels.host.airlock", spec.model_dump_json()]

    def _spec(self, command: list[str]) -> Spec:
        self.uid = given(self.scratch, self.uid)
        return Spec(
            command=command,
            scratch=self.scratch,
            readable=readable(catalog.KERNEL_PATH_VARIABLE, catalog.SUBMITTED_VARIABLE),
            hidden=hidden(),
            uid=self.uid,
            facts_fd=self._facts_write,
            kind=self.device.kind,
            groups=self.groups,
        )

    def _more_files(self) -> list[int]:
        return [self._facts_write, *([] if self.memory is None else [self.memory])]

    def wait_ready(self) -> dict[str, Any]:
        if self.ready is None and self._facts_read >= 0:
            readable, _, _ = select.select([self._facts_read], [], [], FACTS_LIMIT_S)
            line = os.read(self._facts_read, 1 << 16) if readable else b""
            self._forget_facts()
            if not line:
                raise self._death()
            self.facts = Facts.model_validate_json(line)
        return super().wait_ready()

    def _forget_facts(self) -> None:
        os.close(self._facts_read)
        self._facts_read = -1

    def close(self) -> None:
        super().close()
        limits.remove(self.groups)
        if self._facts_read >= 0:
            self._forget_facts()

    @property
    def pid(self) -> int:
        """Of the process with the kernel, behind the airlock."""
        return self.facts.pid or self.process.pid

    # --- limits -------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Ends a cell that takes more than limits.py grants: also where the host has no control group that would."""
        used = processes.memory_bytes(self.processes())
        said = (
            f"its processes take {size(used)} of memory; {size(limits.memory_bytes())} are allowed"
            if used > limits.memory_bytes()
            else f"it printed more than {size(limits.OUTPUT_BYTES)}"
            if self.log.total > limits.OUTPUT_BYTES
            else ""
        )
        if said:
            self.kill()
            raise ChildDied(said)

    def _death(self) -> ChildDied:
        found = super()._death()
        if limits.ran_out_of_memory(self.groups):
            return ChildDied(f"its processes take more than {size(limits.memory_bytes())} of memory")
        return found

    # --- it runs only from a question to its answer --------------------------------------------------------------------------

    def ask(self, do: str, limit_s: float = 120.0, **arguments: Any) -> None:
        self.wait_ready()
        self._look()
        self.thaw()
        try:
            super().ask(do, limit_s, **arguments)
        except BaseException:
            self.freeze()
            raise

    def told(self, do: str, limit_s: float = 120.0) -> Any:
        try:
            return super().told(do, limit_s)
        finally:
            self.freeze()

    def batch(self, calls: int, limit_s: float, between: Callable[[Armed], None]) -> tuple[Batch, int, int]:
        """A batch: (its reply, its length by this process's clock, when it ended), in ns. Afterwards the processes that
        existed before it are stopped; `freeze` stops all.

        between: what happens after the cell has prepared, while it is stopped: fresh inputs, a rest.
        """
        between(self.call("arm", limit_s, calls=calls))
        self.must_have_rested()
        known, self._used_ns = self.processes(), None
        if len(known) > MOST_PROCESSES:
            self.kill()
            raise CommandFailed(Fault(kind="unsupported", message=TOO_MANY.format(len(known)), must_replace=True))
        self._send(b"go\n", limit_s)
        begin = time.monotonic_ns()
        processes.end(known[::-1], signal.SIGCONT)
        try:
            line = self._line(limit_s)
            end = time.monotonic_ns()
        finally:
            processes.end(known, signal.SIGSTOP)
        self._must_have_left_none(known)
        answer = self._parsed(line)
        if answer.token != self._token or self._buffer:
            raise self._forged()
        if answer.error is not None:
            raise CommandFailed(answer.error)
        try:
            return Batch.model_validate(answer.ok), end - begin, end
        except ValueError:
            raise self._forged() from None

    def _must_have_left_none(self, known: list[int]) -> None:
        """Raises Suspect if a process runs that did not when the batch began: nobody has stopped it yet."""
        if born := [pid for pid in self.processes() if pid not in known and not processes.is_stopped(pid)]:
            self.kill()
            many = "a process that it" if len(born) == 1 else f"{len(born)} processes that it"
            raise Suspect(f"{many} started in a timed batch ran on after the batch's end")

    def freeze(self) -> int:
        """Stops all processes of this cell, and waits until they rest. Returns when all of them were stopped, in ns."""
        processes.end([self.pid], signal.SIGSTOP)
        begin, stopped_ns, heirs = time.monotonic(), 0, 0
        while True:
            if running := [pid for pid in self.processes() if not processes.is_stopped(pid)]:
                processes.end(running, signal.SIGSTOP)
                stopped_ns = 0
                if time.monotonic() - begin > PROMPT_S:
                    time.sleep(SETTLES_S)
            else:
                stopped_ns = stopped_ns or time.monotonic_ns()
                used = processes.cpu_ns(known := self.processes())
                time.sleep(SETTLES_S)
                heirs += bool(set(now := self.processes()) - set(known))
                if heirs > MOST_HEIRS:
                    self.kill()
                    raise Suspect("a process that it started cannot be stopped: it starts another one and ends")
                if set(now) == set(known) and processes.cpu_ns(now) == used:
                    self._used_ns = used
                    return stopped_ns
            if time.monotonic() - begin > STOP_LIMIT_S:
                self.kill()
                raise ChildDied("its processes could not be stopped")

    def must_have_rested(self) -> None:
        """Raises Suspect if its processes have worked while they were stopped: a signal of the system's own, such as
        a timer's, makes them go on."""
        # A process that ends uses time, too; the next question to it finds that it has ended.
        if self._used_ns is None or _state(self.pid) in "ZX":
            return
        now = processes.cpu_ns(self.processes())
        if now.keys() - self._used_ns.keys():
            raise Suspect("a process began while its processes were stopped")
        more_ns = sum(used - self._used_ns.get(pid, 0) for pid, used in now.items())
        if more_ns > RESTS_NS:
            raise Suspect(f"its processes worked for {more_ns / 1e6:.3g} ms while they were stopped")

    def thaw(self) -> None:
        self.must_have_rested()
        self._used_ns = None
        processes.end(self.processes()[::-1], signal.SIGCONT)

    def processes(self) -> list[int]:
        """The processes of this cell without the airlock, the one with the kernel first."""
        if self.facts.own_pids:  # none can leave the tree
            return [self.pid, *processes.descendants(self.pid)]
        theirs = _owned_by(self.uid) if self.uid is not None else []
        found = {self.process.pid, *processes.descendants(self.process.pid), *theirs}
        return sorted(found, key=lambda pid: pid != self.pid)

    def strike(self) -> None:
        """As in Child, and to those that left its group."""
        left = self.processes() if self.is_started else []
        super().strike()
        processes.end(left)

    def kill(self) -> None:
        """Kills all processes of this cell, also those that left its group."""
        left = self.processes()
        super().kill()
        deadline = time.monotonic() + END_LIMIT_S
        while left and time.monotonic() < deadline:
            processes.end(left, signal.SIGKILL)
            time.sleep(0.01)
            left = [pid for pid in self.processes() if _state(pid) not in "ZX"]


def first_to_answer(cells: Mapping[str, Cell], limit_s: float) -> str:
    """Waits until one of several cells has an answer, or will not have one: its name. `told` then gives the answer, or says why
    there is none."""
    deadline = time.monotonic() + limit_s
    by_pipe = {cell._answers: name for name, cell in cells.items()}
    while time.monotonic() < deadline:
        if readable := select.select(list(by_pipe), [], [], LOOK_EVERY_S)[0]:
            return by_pipe[readable[0]]
        for name, cell in cells.items():
            try:
                cell._look()
            except ChildDied:
                return name
            if not cell.alive or cell.should_stop():
                return name
    return next(iter(cells))


class ProblemCell(Cell):
    """The process of a problem that came with its kernels: as closed as a cell."""

    replies = PROBLEM_REPLIES
    worker = "problem"


def _owned_by(uid: int) -> list[int]:
    """The processes of a user."""
    found = []
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and entry.stat().st_uid == uid:
                found.append(int(entry.name))
    return found


def _stat(pid: int) -> list[str]:
    """State and parent of a process, and what follows in /proc/PID/stat."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _state(pid: int) -> str:
    try:
        return _stat(pid)[0]
    except OSError:
        return "X"


def free_uid() -> int:
    while True:
        uid = FIRST_UID + secrets.randbelow(100_000_000)
        try:
            pwd.getpwuid(uid)
        except KeyError:
            return uid

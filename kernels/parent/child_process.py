"""The measuring child, seen from the parent: start, commands, limits, end.

The child gets a minimal environment (no broker, no database, no secrets), its own process group and its own scratch folder.
A crash, a hang or a flood of output only raises an exception here.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ValidationError

from kernels.contract.replies import REPLIES, Answer, Fault, Reply
from kernels.host import processes
from kernels.host.cpu_cache import CPU_CACHE_VARIABLE
from kernels.host.device import Device
from kernels.host.forking import Request
from kernels.host.scratch import Scratch
from kernels.nvrtc.compiler import CACHE_VARIABLE
from kernels.parent.log import Log
from kernels.parent.template import Forked, fork, templates

ROOT = Path(__file__).resolve().parents[2]
PASSED_ON = (
    "PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "CUDA_HOME", "CUDA_PATH", "CC", "CXX", "LANG", "LC_ALL",
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "KERNEL_PATH", "SUBMITTED_KERNELS", "VIRTUAL_ENV", CPU_CACHE_VARIABLE,
)  # fmt: skip
READY_LIMIT_S = 180.0
LAST_WORDS_S, LOOK_EVERY_S = 1.0, 0.25


class ChildDied(Exception):
    """The child ended by itself. The message says how (signal or exit status)."""


class CannotStart(ChildDied):
    """The child said why it cannot measure: another one could not either."""


class Forged(ChildDied):
    """Other code than the bench wrote an answer. The child has been killed."""


class ChildTimedOut(Exception):
    """A command exceeded its time limit. The child has been killed."""


class CommandFailed(Exception):
    """The command raised in the child."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class Cancelled(Exception):
    """The run was cancelled. The child has been killed."""


COMPILED = {
    "triton": "TRITON_CACHE_DIR", "inductor": "TORCHINDUCTOR_CACHE_DIR", "cuda": "CUDA_CACHE_PATH", "nvrtc": CACHE_VARIABLE,
    "tilelang": "TILELANG_CACHE_DIR", "cute": "CUTE_DSL_CACHE_DIR", "quack": "QUACK_CACHE_DIR",
}  # fmt: skip
"""Folder of what a compiler made -> the variable that names it."""


def child_environment(device: Device, scratch: str) -> dict[str, str]:
    """What a process that runs kernels gets: this product's folder first, then the folders that this process was given."""
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return (
        passed
        | {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), passed.get("PYTHONPATH")])),
            "HOME": scratch,
            "TMPDIR": scratch,
            "USER": "benchsite",
            **{variable: f"{scratch}/{folder}" for folder, variable in COMPILED.items()},
            "CUDA_VISIBLE_DEVICES": device.uuid if device.kind == "cuda" else "",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "KINETO_LOG_LEVEL": "99",  # else the profiler writes into a kernel's log
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # else it leaves processes and a thread behind, beside which nothing is timed
        }
    )


def _name_of(number: int) -> str:
    """Of a signal; those for programs' own use have none."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


class Child:
    """One measuring process. `call` sends a command and waits for the answer."""

    replies: ClassVar[Mapping[str, type[Reply]]] = REPLIES
    """Its commands, and what each replies."""
    line_bytes: ClassVar[int] = 64 * 2**20
    """Longest answer."""
    module: ClassVar[str] = "kernels.child"
    """What it runs."""
    is_isolated: ClassVar[bool] = False
    """Whether no kernel in a shared process may reach what it is made of."""

    def __init__(
        self,
        device: Device,
        should_stop: Callable[[], bool] = lambda: False,
        environment: Mapping[str, str] | None = None,
        compiled: str = "",
        fresh: bool = False,
    ) -> None:
        """environment: further variables, as kernels declare them: kernels/catalog.py refuses those of the instrument.
        compiled: a folder of what another process compiled (`hand_over`). fresh: not forked by a template."""
        self.device, self.should_stop, self._compiled, self.fresh = device, should_stop, compiled, fresh
        self.environment = dict(environment or {})
        self._folder = Scratch()
        self.scratch = self._folder.path
        self.log = Log()
        self.ready: dict[str, Any] | None = None
        self._buffer, self._closed, self._token = b"", False, ""
        self._start()

    def _start(self) -> None:
        commands_read, commands_write = os.pipe()
        answers_read, answers_write = os.pipe()
        self.process = self._forked(commands_read, answers_write) or self._started(commands_read, answers_write)
        os.close(commands_read)
        os.close(answers_write)
        self._commands, self._answers = commands_write, answers_read
        for mine in (commands_write, answers_read):
            os.set_blocking(mine, False)
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()

    def _started(self, commands: int, answers: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command([*self._arguments(), str(commands), str(answers)]),
            env=self.environment | child_environment(self.device, self.scratch) | self._caches,
            cwd=self.scratch,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(commands, answers, *self._more_files()),
            start_new_session=True,
        )

    def _forked(self, commands: int, answers: int) -> Forked | None:
        """The process from a template, where that is as good: variables of a kernel may take effect at an import. The template
        does not touch the device, so each process begins CUDA anew."""
        if self.fresh or self.environment:
            return None
        environment, request = partial(child_environment, self.device), self._request()
        return fork(environment, self.scratch, request, commands, answers, self._more_files(), self.is_isolated)

    def _request(self) -> Request:
        """What a template is asked for."""
        return Request(environment=self._caches, module=self.module, arguments=self._arguments())

    @property
    def _caches(self) -> dict[str, str]:
        """The folders of what another process compiled; empty if there are none."""
        return {variable: f"{self._compiled}/{folder}" for folder, variable in COMPILED.items() if self._compiled}

    @property
    def is_forked(self) -> bool:
        return isinstance(self.process, Forked)

    def _arguments(self) -> list[str]:
        """Of its module, before the numbers of the pipes of commands and of answers."""
        return [self.device.kind]

    def _command(self, arguments: list[str]) -> list[str]:
        """The command line of a process that is started."""
        return [sys.executable, "-m", self.module, *arguments]

    def _more_files(self) -> list[int]:
        """Files that stay open in the process, beside its pipes."""
        return []

    def _read_log(self) -> None:
        assert self.process.stdout is not None
        while chunk := os.read(self.process.stdout.fileno(), 65536):
            self.log.add(chunk)

    def wait_ready(self) -> dict[str, Any]:
        """The child's environment, once torch and the device are up."""
        if self.ready is None:
            answer = self._answer(READY_LIMIT_S)
            if answer.failed is not None:
                hint = "; `make install` makes .venv/bin/python, which has it" if "'torch'" in answer.failed else ""
                raise CannotStart(f"the measuring process could not start: {answer.failed}{hint}")
            if answer.ready is None:
                raise self._forged()
            self.ready = answer.ready
        return self.ready

    def call(self, do: str, limit_s: float = 120.0, **arguments: Any) -> Any:
        """Runs a command on the bench; returns its model in REPLIES.

        Raises CommandFailed, ChildDied, ChildTimedOut or Cancelled.
        """
        self.ask(do, limit_s, **arguments)
        return self.told(do, limit_s)

    def ask(self, do: str, limit_s: float = 120.0, **arguments: Any) -> None:
        """Sends a command. `told` waits for its reply; nothing else is sent before."""
        self._stop_if_cancelled()
        self.wait_ready()
        if do == "load":
            templates.expose()
        self._token = secrets.token_hex(8)
        self._send(json.dumps({"token": self._token, "do": do, "with": arguments}).encode() + b"\n", limit_s)

    def told(self, do: str, limit_s: float = 120.0) -> Any:
        """The reply to the command that was sent. Raises what `call` raises."""
        answer = self._answer(limit_s)
        if answer.token != self._token or self._buffer:
            raise self._forged()
        if answer.error is not None:
            raise CommandFailed(answer.error)
        try:
            return self.replies[do].model_validate(answer.ok)
        except ValidationError:
            raise self._forged() from None

    def _send(self, line: bytes, limit_s: float) -> None:
        """Writes a command. The process may have filled its pipe, or not read it."""
        deadline = time.monotonic() + limit_s
        while line:
            try:
                line = line[os.write(self._commands, line) :]
            except BlockingIOError:
                select.select([], [self._commands], [], LOOK_EVERY_S)
                self._keep_waiting(deadline, limit_s)
            except BrokenPipeError:
                raise self._death() from None

    def _keep_waiting(self, deadline: float, limit_s: float) -> None:
        """Raises Cancelled, ChildTimedOut or ChildDied if there is nothing to wait for."""
        self._stop_if_cancelled()
        if time.monotonic() > deadline:
            self._abort()
            raise ChildTimedOut(f"no answer within {limit_s:g} s")
        self._look()

    def _stop_if_cancelled(self) -> None:
        if self.should_stop():
            self.kill()
            raise Cancelled

    def _forged(self) -> Forged:
        self.kill()
        return Forged("code other than the instrument wrote to the answer pipe")

    def _answer(self, limit_s: float) -> Answer:
        return self._parsed(self._line(limit_s))

    def _line(self, limit_s: float) -> bytes:
        """The next line of the process."""
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._buffer:
            readable, _, _ = select.select([self._answers], [], [], LOOK_EVERY_S)
            if readable:
                self._read_answer()
            elif not self.alive and not select.select([self._answers], [], [], 0)[0]:
                raise self._death()  # a process forked by the child may hold the pipe open
            if b"\n" not in self._buffer:  # not before: a batch is timed until its answer is here
                self._keep_waiting(deadline, limit_s)
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line

    def _look(self) -> None:
        """Called while it waits for an answer. May raise ChildDied."""

    def _parsed(self, line: bytes) -> Answer:
        try:
            return Answer.model_validate_json(line)
        except ValidationError:
            raise self._forged() from None

    def _read_answer(self) -> None:
        chunk = os.read(self._answers, 1 << 20)
        if not chunk:
            raise self._death()
        self._buffer += chunk
        if len(self._buffer) > self.line_bytes:
            self.kill()
            raise ChildDied("the measuring process sent an endless answer")

    def _death(self) -> ChildDied:
        try:
            status = self.process.wait(5)
        except subprocess.TimeoutExpired:
            status = None
        self.kill()
        self._reader.join(LAST_WORDS_S)
        if status is None:
            return ChildDied("the measuring process closed its pipe")
        if status < 0:
            return ChildDied(f"killed by {_name_of(-status)}")
        return ChildDied(f"exited with status {status}")

    def _abort(self) -> None:
        """Ends a hanging child. Its fault handler logs where it was."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self.process.send_signal(signal.SIGABRT)
            self.process.wait(LAST_WORDS_S)
        self.kill()
        self._reader.join(LAST_WORDS_S)

    def last_words(self, size: int) -> str:
        """Ends the process. The end of what it printed, as far as that arrived."""
        self.kill()
        self._reader.join(LAST_WORDS_S)
        return self.log.tail(size)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def is_started(self) -> bool:
        """Whether there is a process: a template may not have forked it yet."""
        return not isinstance(self.process, Forked) or self.process.is_there

    def strike(self) -> None:
        """Sends the signal that kills the process and its group, and does not wait for their end. `kill` does."""
        if not self.is_started:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:  # forked just now, it leads no group yet; or it has ended
                self.process.send_signal(signal.SIGKILL)

    def kill(self) -> None:
        """Kills the process, its group, and what is below it in other groups."""
        if isinstance(self.process, Forked) and not self.is_started:
            self.process.give_up()
            return
        below = processes.descendants(self.process.pid)
        self.strike()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        processes.end(below)

    def hand_over(self, folder: str) -> None:
        """Ends the child, and moves what it compiled into a folder."""
        self.kill()
        for name in COMPILED:
            with contextlib.suppress(OSError):
                os.rename(f"{self._compiled or self.scratch}/{name}", f"{folder}/{name}")

    def close(self) -> None:
        """Ends the child and removes its scratch folder."""
        if self._closed:
            return
        self._closed = True
        self.kill()
        for mine in (self._commands, self._answers):
            with contextlib.suppress(OSError):
                os.close(mine)
        self._folder.remove()

"""The template of measuring processes, seen from the parent (kernels/child/template.py is its own side).

A process that it forks starts in a tenth of a second: it has what the template has imported. It shares the template's address
layout and hash seed, so it is no independent process. A template serves for some minutes: runs of different hours share none.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kernels.catalog import KERNEL_PATH_VARIABLE, SUBMITTED_VARIABLE
from kernels.host.forking import Request
from kernels.host.scratch import Scratch

ROOT = Path(__file__).resolve().parents[2]
SERVES_S = 600.0
FORK_LIMIT_S = 180.0
"""A template may still be importing."""

OF_KERNELS = (KERNEL_PATH_VARIABLE, SUBMITTED_VARIABLE)
Environment = dict[str, str]


class Forked:
    """A process that a template forks, used like a subprocess.Popen."""

    def __init__(self, template: Template, said: socket.socket, output: int) -> None:
        self.template, self.stdout = template, os.fdopen(output, "rb", buffering=0)
        self.returncode: int | None = None
        self._said, self._pid = said, 0

    @property
    def pid(self) -> int:
        """Waits until there is such a process. Raises ProcessLookupError if there never was one."""
        while not self._pid and self.returncode is None and self._hear(FORK_LIMIT_S):
            pass
        if not self._pid:
            raise ProcessLookupError("no process was forked")
        return self._pid

    @property
    def is_there(self) -> bool:
        """Whether the template has forked it."""
        self.poll()
        return bool(self._pid)

    def poll(self) -> int | None:
        while self.returncode is None and self._hear(0):
            pass
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._hear(left):
                raise subprocess.TimeoutExpired("a forked process", timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Where the template has not forked it, the template hangs, and ends."""
        if self.poll() is not None:
            return
        if self._pid:
            os.kill(self._pid, number)
        else:
            self.template.process.kill()

    def give_up(self) -> None:
        """It is not to be forked any more."""
        self._end(-signal.SIGKILL)

    def _hear(self, limit_s: float | None) -> bool:
        """Whether the template said something within this time: its number, then how it ended. Its silence is its death, of
        which all of its processes die."""
        if not select.select([self._said], [], [], limit_s)[0]:
            return False
        said = b""
        with contextlib.suppress(OSError):
            said = self._said.recv(64)
        if not said:
            self._end(self.template.process.poll() or -signal.SIGKILL)
        elif not self._pid:
            self._pid = int(said)
        else:
            self._end(int(said))
        return True

    def _end(self, status: int) -> None:
        self.returncode = status
        self._said.close()


class Template:
    """One process. It ends with the thread that started it."""

    def __init__(self, environment: Callable[[str], Environment]) -> None:
        """environment: that of a process with this folder."""
        self._folder = Scratch()
        self.environment, self._began = self._own(environment), time.monotonic()
        self._owner = os.getpid()
        self.is_clean = True
        """No kernel has run in a shared process while it was there: as root, one could change it."""
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kernels.child", "template", str(theirs.fileno())],
                env=self.environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def _own(self, environment: Callable[[str], Environment]) -> Environment:
        """Without the folders of kernels: it reads none."""
        found = environment(self._folder.path)
        return {name: value for name, value in found.items() if name not in OF_KERNELS}

    def serves(self, environment: Callable[[str], Environment], folder: str, clean: bool) -> bool:
        """Whether it can fork processes that have this environment, in a folder beside its own: its name is as long."""
        return (
            self._owner == os.getpid()
            and (self.is_clean or not clean)
            and os.path.dirname(folder) == os.path.dirname(self._folder.path)
            and time.monotonic() - self._began < SERVES_S
            and self.environment == self._own(environment)
            and self.process.poll() is None
        )

    def fork(self, request: Request, commands: int, answers: int, more: Sequence[int]) -> Forked:
        """A process with these files. Raises OSError if the template has ended."""
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        read, write = os.pipe()
        try:
            with theirs:
                files = [commands, answers, write, theirs.fileno(), *more]
                socket.send_fds(self._requests, [request.model_dump_json().encode()], files)
        except OSError:
            mine.close()
            os.close(read)
            raise
        finally:
            os.close(write)
        return Forked(self, mine, read)

    def retire(self) -> None:
        """It forks no more, and ends after the last of its processes."""
        self._requests.close()

    def remove(self) -> bool:
        """Removes its folder. Returns False while it runs."""
        if self.process.poll() is None:
            return False
        self._folder.remove()
        return True

    def kill(self) -> None:
        if self._owner == os.getpid():
            self.process.kill()
            self.process.wait()
            self._folder.remove()


class _Templates:
    """The template of this process, and those that are not used any more."""

    def __init__(self) -> None:
        self.now: Template | None = None
        self.before: list[Template] = []
        atexit.register(self.end)

    def serving(self, environment: Callable[[str], Environment], folder: str, clean: bool) -> Template:
        if self.now is None or not self.now.serves(environment, folder, clean):
            if self.now is not None:
                self.now.retire()
                self.before.append(self.now)
            self.before = [one for one in self.before if not one.remove()]
            self.now = Template(environment)
        return self.now

    def expose(self) -> None:
        """A kernel is about to run in a shared process."""
        if self.now is not None:
            self.now.is_clean = False

    def end(self) -> None:
        for one in filter(None, (self.now, *self.before)):
            one.kill()
        self.now, self.before = None, []


templates = _Templates()


def fork(
    environment: Callable[[str], Environment],
    folder: str,
    request: Request,
    commands: int,
    answers: int,
    more: Sequence[int] = (),
    clean: bool = False,
) -> Forked | None:
    """A process with this environment, and what the request adds to it, in its folder. None where no template can serve: it
    would end with this thread. The request adds variables that take effect after imports. more: its further files. clean: from
    a template beside which no kernel has run in a shared process."""
    if threading.current_thread() is not threading.main_thread():
        return None
    for _ in range(2):
        with contextlib.suppress(OSError):  # it ended just now
            whole = request.model_copy(update={"environment": environment(folder) | request.environment})
            return templates.serving(environment, folder, clean).fork(whole, commands, answers, more)
    return None

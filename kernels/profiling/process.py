"""A profiler's process, from its start to its end: within a limit, in an environment of its own, and for a kernel that
nobody has read behind the airlock."""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from kernels import catalog
from kernels.host import limits, processes
from kernels.host.airlock import Spec
from kernels.host.device import Device
from kernels.host.needed import hidden, readable
from kernels.host.scratch import Scratch, given
from kernels.parent.cell_process import free_uid
from kernels.parent.child_process import child_environment
from kernels.parent.log import Log
from kernels.parent.template import templates

LOOK_S = 0.25
MOST_OUTPUT = 64 * 2**20
"""Bytes kept of what it writes to stdout."""
CHUNK = 65536


@dataclass(frozen=True)
class Ended:
    """How it ended, and what it wrote."""

    output: str
    log: str
    """The end of its stderr."""
    status: int | None
    """None: it was ended."""
    why: str = ""
    """Why it was ended: a clause."""


@dataclass(frozen=True)
class Launcher:
    """Starts profilers for kernels of one device."""

    device: Device
    limit_s: float
    """Seconds that each process may take."""
    should_stop: Callable[[], bool] = lambda: False
    isolated: bool = False
    """Behind the airlock."""

    def run(self, command: list[str], environment: Mapping[str, str]) -> Ended:
        """Runs a command to its end. environment: further variables, as a kernel declares them."""
        if not self.isolated:
            templates.expose()
        scratch = Scratch()
        groups = limits.new_groups(secrets.token_hex(4)) if self.isolated else []
        try:
            with self._wrapped(command, scratch.path, groups) as (wrapped, fds):
                process = subprocess.Popen(
                    wrapped,
                    env=dict(environment) | child_environment(self.device, scratch.path) | {"LC_ALL": "C"},
                    cwd=scratch.path,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=fds,
                    start_new_session=True,
                )
            try:
                return self._heard(process)
            finally:
                _end(process)
        finally:
            limits.remove(groups)
            scratch.remove()

    @contextlib.contextmanager
    def _wrapped(self, command: list[str], scratch: str, groups: list[str]) -> Iterator[tuple[list[str], list[int]]]:
        """The command behind the airlock, and the files that stay open in it; as it is, if it is not isolated."""
        if not self.isolated:
            yield command, []
            return
        with open(os.devnull, "w") as facts:  # what the host did not allow is said of the measurement
            spec = Spec(
                command=command,
                scratch=scratch,
                readable=[
                    *readable(catalog.KERNEL_PATH_VARIABLE, catalog.SUBMITTED_VARIABLE),
                    os.path.dirname(os.path.realpath(command[0])),
                ],
                hidden=hidden(),
                uid=given(scratch, free_uid() if os.geteuid() == 0 else None),
                facts_fd=facts.fileno(),
                kind=self.device.kind,
                groups=groups,
            )
            yield [sys.executable, "-m", "kernels.host.airlock", spec.model_dump_json()], [facts.fileno()]

    def _heard(self, process: subprocess.Popen[bytes]) -> Ended:
        """What it writes, until it ends or must end."""
        assert process.stdout is not None and process.stderr is not None
        output, log, deadline = bytearray(), Log(), time.monotonic() + self.limit_s
        why = ""
        with selectors.DefaultSelector() as selector:
            for stream in (process.stdout, process.stderr):
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map() and not why:
                ready = selector.select(LOOK_S)
                for key, _ in ready:
                    chunk = os.read(key.fd, CHUNK)
                    if not chunk:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is process.stderr:
                        log.add(chunk)
                    else:
                        output += chunk[: MOST_OUTPUT - len(output)]
                if not ready and process.poll() is not None:
                    break  # a process that it has started holds the pipes open
                why = self._why_end(deadline)
        status = None if why else _status(process, deadline)
        text = output.decode("utf-8", "replace")
        return Ended(text, log.tail(), status, why or ("" if status is not None else self._too_long()))

    def _why_end(self, deadline: float) -> str:
        if self.should_stop():
            return "it was cancelled"
        return self._too_long() if time.monotonic() > deadline else ""

    def _too_long(self) -> str:
        return f"it did not end within {self.limit_s:g} s"


def _status(process: subprocess.Popen[bytes], deadline: float) -> int | None:
    """Of a process that has closed its pipes; None if it lives on."""
    try:
        return process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills it with all that it has started."""
    below = processes.descendants(process.pid)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    processes.end(below)
    for stream in (process.stdout, process.stderr):
        if stream:
            stream.close()

"""Keeps the parts of a site running: starts them, starts again what ends, shows their output, ends all with itself.

Each part is a process group of its own, so Ctrl-C reaches only the keeper, and has a folder for temporary files, which is
removed with it. The kernel kills a part when the keeper dies, even by SIGKILL. A file in var/keepers says what runs, for
`make down`. No Django.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO

from kernels.host import logs, processes
from kernels.host.processes import Process
from kernels.host.scratch import SHARED_VARIABLE, Scratch, remove_abandoned, shared_folder

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "keepers"
LOOK_EVERY_S = 0.1
GRACE_S, LAST_S = 8.0, 3.0
"""Time for the parts to end after SIGTERM; then for those that come last."""
AGAIN_FIRST_S, AGAIN_MOST_S = 1.0, 15.0
"""Pause before a part starts again; doubled each time while it lives less than STEADY_S."""
STEADY_S = 10.0
"""A part that cannot start has ended by then. One that lives longer works, and ends for another reason."""
COLOURS = (36, 33, 32, 35, 34, 96, 93, 92)
ENDS_WITH = "from kernels.host.processes import become; become()"


@dataclass(frozen=True)
class Part:
    """One process of a site."""

    command: list[str]
    env: dict[str, str] = field(default_factory=dict)
    """In addition to the keeper's."""
    sockets: tuple[socket.socket, ...] = ()
    """Listening sockets; their numbers are appended to the command."""
    last: bool = False
    """Ends after the others: they need it to end."""


class _Running:
    """A part, and its present process."""

    def __init__(self, name: str, part: Part) -> None:
        self.name, self.part = name, part
        self.scratch: Scratch | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.identity: Process | None = None
        self.started, self.pause_s, self.due = 0.0, AGAIN_FIRST_S / 2, 0.0

    def start(self, env: dict[str, str]) -> None:
        descriptors = [one.fileno() for one in self.part.sockets]
        own = {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), env.get("PYTHONPATH")]))}
        with contextlib.suppress(OSError):  # a full disk
            self.scratch = Scratch()
            own |= {"TMPDIR": self.scratch.path, SHARED_VARIABLE: shared_folder()}
        self.process = subprocess.Popen(
            [sys.executable, "-c", ENDS_WITH, str(os.getpid()), *self.part.command, *map(str, descriptors)],
            env=env | self.part.env | own,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=descriptors,
            start_new_session=True,
        )
        self.started, self.identity = time.monotonic(), processes.identify(self.process.pid)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: int) -> None:
        if self.process and self.alive:
            self.process.send_signal(number)

    def kill(self) -> None:
        """Ends the part at once, and all that is left of its group."""
        if self.process:
            processes.end_group(self.process.pid)
            self.process.wait()
            self.clear()

    def clear(self) -> None:
        """Removes its temporary files: a process that was killed has left some."""
        if self.scratch:
            self.scratch.remove()
            self.scratch = None


class Keeper:
    """The parts of one site, from start to end. `run` must be called in the main thread."""

    def __init__(self, parts: dict[str, Part], env: dict[str, str], var: Path, out: IO[str] | None = None) -> None:
        self.parts = {name: _Running(name, part) for name, part in parts.items()}
        self.env, self.out = env, out or sys.stdout
        self.file = var / FOLDER / f"{os.getpid()}.json"
        self._stop = self._now = False
        self._hung: set[str] = set()
        self._width = max(map(len, parts), default=0)
        self._writing = threading.Lock()

    def run(self, watch: Callable[[Keeper], None] | None = None) -> int:
        """Keeps the parts until SIGINT, SIGTERM or SIGHUP (unless nohup ignores it). Returns the exit status.

        watch: runs in a thread beside, to call `restart`.
        """
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._asked_to_stop)
        on_terminal = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN and os.isatty(0)
        if watch:
            threading.Thread(target=watch, args=(self,), daemon=True).start()
        try:
            while not self._stop:
                self._step()
                time.sleep(LOOK_EVERY_S)
                if on_terminal and not os.isatty(0):  # it was closed, and the signal went to make alone
                    break
        finally:
            self._end()
        return 0

    def restart(self, name: str, why: str) -> None:
        """Ends a part that hangs; it starts again. Callable from any thread."""
        self.say(name, f"starting again: {why}")
        self._hung.add(name)

    def say(self, name: str, line: str) -> None:
        """A line of a part on the terminal; lost if there is no terminal any more."""
        if logs.is_json():
            self._write(logs.of_part(name or "keeper", line))
            return
        head = f"{time.strftime('%H:%M:%S')} {name:<{self._width}} |"
        if self.out.isatty() and name in self.parts:
            head = f"\033[{COLOURS[list(self.parts).index(name) % len(COLOURS)]}m{head}\033[0m"
        self._write(f"{head} {line}")

    def _write(self, line: str) -> None:
        with self._writing:
            try:
                self.out.write(f"{line}\n")
                self.out.flush()
            except (OSError, ValueError):
                pass

    def _asked_to_stop(self, number: int, frame: FrameType | None) -> None:
        self._now, self._stop = self._stop, True  # the second time: at once

    def _step(self) -> None:
        for one in self.parts.values():
            if one.name in self._hung:
                self._hung.discard(one.name)
                one.kill()
            if one.process is None or (not one.alive and one.due and time.monotonic() >= one.due):
                self._start(one)
            elif not one.alive and not one.due:
                one.kill()  # what it left
                lived = time.monotonic() - one.started
                one.pause_s = AGAIN_FIRST_S if lived > STEADY_S else min(AGAIN_MOST_S, 2 * one.pause_s)
                one.due = time.monotonic() + one.pause_s
                self.say(one.name, f"{_how(one.process.returncode)}; starting again in {one.pause_s:g} s")

    def _start(self, one: _Running) -> None:
        one.due = 0.0
        one.start(self.env)
        assert one.process is not None and one.process.stdout is not None
        threading.Thread(target=self._show, args=(one.name, one.process.stdout), daemon=True).start()
        self._note()

    def _show(self, name: str, output: IO[bytes]) -> None:
        for line in output:
            self.say(name, line.decode("utf-8", "replace").rstrip("\n"))

    def _note(self) -> None:
        """Writes down what runs, for `make down`."""
        parts = {one.name: one.identity for one in self.parts.values() if one.identity}
        about = {"boot": processes.boot(), "keeper": processes.identify(os.getpid()), "parts": parts}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(about))
        new.rename(self.file)

    def _end(self) -> None:
        self.say("", "stopping")
        ones = list(self.parts.values())
        self._end_some([one for one in ones if not one.part.last], GRACE_S)
        self._end_some([one for one in ones if one.part.last], LAST_S)
        remove_abandoned()
        self.file.unlink(missing_ok=True)

    def _end_some(self, ones: Iterable[_Running], within_s: float) -> None:
        ones = list(ones)
        for one in ones:
            one.signal(signal.SIGTERM)
        deadline = time.monotonic() + within_s
        while any(one.alive for one in ones) and time.monotonic() < deadline and not self._now:
            time.sleep(LOOK_EVERY_S / 2)
        for one in ones:
            one.kill()


def _how(status: int) -> str:
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"

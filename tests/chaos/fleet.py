"""A fleet on one machine: a site with PostgreSQL and a broker, and four hosts, each with an agent for its CPU.

The site is `manage.py up`, a host is `python -m runs.agent`: what people start. Each host has a name of its own (a UTS
namespace), a disk of its own (tmpfs) and, if wanted, a clock that is off. Needs root.
"""

from __future__ import annotations

import compileall
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from runs.hosting.setup import free_port
from tests.postgres_server import AS_IN_USE, Server, postgres

ROOT = Path(__file__).parents[2]
DISK = "700m"
"""Size of each disk: hosts ask for 500 MiB."""
DAY_S = 86_400
OTHERS = ("REDIS_URL", "DATABASE_URL", "TEST_DATABASE", "KERNEL_PATH", "PYTHONDONTWRITEBYTECODE")
"""Variables that would lead to another site, or have each process compile all modules again."""
COMPILED = ("benchsite", "kernels", "runs")
"""Folders whose modules are compiled, as `make install` and a site's first processes leave them."""


def table() -> dict[int, tuple[int, str]]:
    """pid -> (parent's pid, command line) of every process that is no zombie."""
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            after = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            if after[0] != "Z":
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                found[int(entry.name)] = (int(after[1]), line)
    return found


def below(*roots: int) -> dict[int, str]:
    """pid -> command line of these processes and of all below them."""
    processes, order = table(), list(roots)
    for parent in order:
        order += [pid for pid, (its_parent, _) in processes.items() if its_parent == parent]
    return {pid: processes[pid][1] for pid in order if pid in processes}


def marked(mark: str) -> list[int]:
    """Processes, wherever they hang now, whose environment has a mark."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return [pid for pid in found if pid in table()]


@contextlib.contextmanager
def disk(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=755", "chaos", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@dataclass
class Top:
    """A process that somebody starts by hand, or systemd: it is started again when it ends."""

    name: str
    command: list[str]
    env: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def keep(self) -> None:
        if self.process is None or self.process.poll() is not None:
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    self.command, env=self.env, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True,
                )  # fmt: skip

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def end(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(40)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)


@dataclass
class Fleet:
    """`disks`: the folder of each host (the first is the site's) and of the database."""

    folder: Path
    disks: dict[str, Path]
    postgres: Server
    port: int
    broker_port: int
    mark: str
    tops: dict[str, Top] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def broker(self) -> str:
        return f"redis://:{self.mark}@127.0.0.1:{self.broker_port}/0"

    def environment(self, host: str) -> dict[str, str]:
        var = self.disks[host]
        (var / "tmp").mkdir(exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if name not in OTHERS}
        return kept | {
            "BENCHSITE_VAR": str(var / "var"), "BENCHSITE_ENV": str(var / "env"), "TMPDIR": str(var / "tmp"),
            "BROKER_PASSWORD": self.mark, "BROKER_PORT": str(self.broker_port), "BROKER": self.broker,
            "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "CHAOS": self.mark, "DJANGO_SETTINGS_MODULE": "benchsite.settings",
        }  # fmt: skip

    def define(self, clocks: dict[str, int]) -> None:
        """The site with its own host, and the other hosts; clocks: seconds that a host's clock is off."""
        site = self.environment("host-0") | {"DATABASE_URL": self.postgres.url, "SECRET_KEY": self.mark}
        up = [sys.executable, "manage.py", "up", "--no-first-run", "--port", str(self.port)]
        self.tops["site"] = Top("site", up, site, self.folder / "site.log")
        for name in list(self.disks)[1:-1]:
            env = self.environment(name)
            if off := clocks.get(name):
                env |= {"PYTHONPATH": str(Path(__file__).parent / "clock"), "CLOCK_OFF_S": str(off)}
            start = f"hostname {name} && exec {sys.executable} -m runs.agent"
            self.tops[name] = Top(name, ["unshare", "--uts", "sh", "-c", start], env, self.folder / f"{name}.log")

    def keep(self) -> None:
        for top in self.tops.values():
            top.keep()

    def processes(self, of: str = "") -> dict[int, str]:
        """pid -> command line of all processes of the fleet, or of one host."""
        return below(*(top.pid for name, top in self.tops.items() if top.process and of in ("", name)))

    def end(self) -> list[str]:
        """Ends all; says what did not end by itself."""
        for top in reversed(self.tops.values()):
            top.end()
        deadline = time.monotonic() + 15
        while (left := marked(f"CHAOS={self.mark}")) and time.monotonic() < deadline:
            time.sleep(0.2)
        known = table()
        said = [f"still running: {pid} {known.get(pid, (0, '?'))[1][:150]}" for pid in left if pid != os.getpid()]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return said


@contextlib.contextmanager
def fleet(hosts: int = 4) -> Iterator[Fleet]:
    """Disks, a database and a Fleet whose parts are not started yet."""
    for name in COMPILED:
        compileall.compile_dir(ROOT / name, quiet=2)
    folder = Path(tempfile.mkdtemp(prefix="benchsite-chaos-"))
    folder.chmod(0o755)
    try:
        with contextlib.ExitStack() as stack:
            names = [*(f"host-{number}" for number in range(hosts)), "database"]
            disks = {name: stack.enter_context(disk(folder / name)) for name in names}
            server = stack.enter_context(postgres(inside=disks["database"], settings=AS_IN_USE))
            yield Fleet(folder, disks, server, free_port(), free_port(), secrets.token_hex(12))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def eventually(check: Callable[[], object], within: float, what: str) -> None:
    """Waits until `check` is true. Raises TimeoutError."""
    deadline = time.monotonic() + within
    while not check():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {within:g} s")
        time.sleep(0.2)

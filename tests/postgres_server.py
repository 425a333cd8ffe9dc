"""A private PostgreSQL on a loopback port, run by a user that PostgreSQL accepts."""

import getpass
import glob
import os
import shutil
import subprocess
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from runs.hosting.setup import free_port


def as_user() -> list[str]:
    """How a command is run as a user that PostgreSQL accepts."""
    return ["runuser", "-u", "postgres", "--"] if getpass.getuser() == "root" else []


SPARING = (
    "fsync=off", "synchronous_commit=off", "full_page_writes=off", "wal_level=minimal", "max_wal_senders=0",
    "autovacuum=off", "jit=off", "max_wal_size=4GB", "checkpoint_timeout=1h",
)  # fmt: skip
"""Nothing has to outlive a crash, and tests truncate every table again and again: statistics of the tables of one test would
mislead the planner in the next."""
AS_IN_USE = ("fsync=off", "max_wal_size=64MB")
"""For a site that is used as people use theirs; its disk is small."""


@dataclass(frozen=True)
class Server:
    programs: Path
    port: int
    data: Path
    options: str
    alone: threading.Lock = field(default_factory=threading.Lock)
    """Held while it starts or ends: whoever starts it in the middle of a restart has that wait for a minute."""

    @property
    def url(self):
        return f"postgres://benchsite@127.0.0.1:{self.port}/postgres"

    def control(self, *arguments: str) -> int:
        """Runs pg_ctl as PostgreSQL's user: its exit status."""
        command = [*as_user(), str(self.programs / "pg_ctl"), "-D", str(self.data), "-o", self.options]
        log = str(self.data.parent / "log")
        nowhere = subprocess.DEVNULL
        return subprocess.run(
            [*command, "-l", log, "-w", *arguments], cwd=self.data.parent, stdout=nowhere, stderr=nowhere
        ).returncode

    def restart(self, mode: str) -> None:
        with self.alone:
            self.control("-m", mode, "restart")

    def start_if_ended(self) -> None:
        with self.alone:
            if self.control("status"):
                self.control("start")


def programs():
    """The folder of PostgreSQL's programs; without one the test is skipped, or fails where it is required."""
    found = shutil.which("initdb") or next(
        iter(sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), reverse=True)), None
    )
    if found is None:
        if "postgres" in os.environ.get("BENCHSITE_REQUIRE", ""):
            pytest.fail("PostgreSQL is required here and is not installed")
        pytest.skip("no PostgreSQL server here: apt-get install postgresql")
    return Path(found).parent


@contextmanager
def postgres(password_file=None, inside=None, settings=SPARING):
    """A Server with the superuser benchsite; with a password file only who knows the password gets in. inside: the folder
    of its own one."""
    bin_, port = programs(), free_port()
    # pytest closes its own folders to other users
    folder = Path(tempfile.mkdtemp(prefix="benchsite-postgres-", dir=inside))
    auth = ["--auth=trust"]
    if password_file:
        shutil.copy(password_file, folder / "password")
        auth = ["--auth=scram-sha-256", f"--pwfile={folder / 'password'}"]
    if as_user():
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, "postgres")
    data = folder / "data"
    options = " -c ".join((f"-p {port} -k {folder}", "listen_addresses=127.0.0.1", *settings))
    make = [*as_user(), str(bin_ / "initdb"), "-D", str(data), "-U", "benchsite", *auth, "-E", "UTF8"]
    subprocess.run(make, check=True, capture_output=True, cwd=folder)
    server = Server(bin_, port, data, options)
    assert server.control("start") == 0
    try:
        yield server
    finally:
        server.control("-m", "immediate", "stop")
        shutil.rmtree(folder)

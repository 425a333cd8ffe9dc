"""A private PostgreSQL on a loopback port, run by a user that PostgreSQL accepts."""

import getpass
import glob
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from runs.hosting.setup import free_port


@dataclass(frozen=True)
class Server:
    programs: Path
    port: int

    @property
    def url(self):
        return f"postgres://benchsite@127.0.0.1:{self.port}/postgres"


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
def postgres(password_file=None):
    """A Server with the superuser benchsite; with a password file only who knows the password gets in."""
    bin_, port = programs(), free_port()
    folder = Path(tempfile.mkdtemp(prefix="benchsite-postgres-"))  # pytest closes its own folders to other users
    as_user = ["runuser", "-u", "postgres", "--"] if getpass.getuser() == "root" else []
    auth = ["--auth=trust"]
    if password_file:
        shutil.copy(password_file, folder / "password")
        auth = ["--auth=scram-sha-256", f"--pwfile={folder / 'password'}"]
    if as_user:
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, "postgres")
    data, options = folder / "data", f"-p {port} -c listen_addresses=127.0.0.1 -k {folder} -c fsync=off"

    def run(*command: str) -> None:
        subprocess.run([*as_user, *command], check=True, capture_output=True, cwd=folder)

    run(str(bin_ / "initdb"), "-D", str(data), "-U", "benchsite", *auth, "-E", "UTF8")
    subprocess.run(
        [*as_user, str(bin_ / "pg_ctl"), "-D", str(data), "-o", options, "-l", str(folder / "log"), "-w", "start"],
        check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield Server(bin_, port)
    finally:
        run(str(bin_ / "pg_ctl"), "-D", str(data), "-m", "immediate", "stop")
        shutil.rmtree(folder)

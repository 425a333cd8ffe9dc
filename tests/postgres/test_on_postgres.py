"""The database may be PostgreSQL: the tests of the recorder, the dispatcher and the pages pass there as well."""

import getpass
import glob
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from runs.hosting.setup import free_port

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.postgres,
    pytest.mark.thorough("the recorder, the dispatcher and the pages once more, on PostgreSQL"),
    pytest.mark.timeout(480),
]
DRAWN = tuple(f"--ignore=tests/site/test_{name}.py" for name in ("charts", "distribution", "result_page"))
"""Of what is drawn from rows that other tests have read there."""
SUITES = ("tests/pipeline/test_recorder.py", "tests/pipeline/test_dispatcher.py", "tests/site")

OURS = ("DJANGO_SETTINGS_MODULE", "BENCHSITE_VAR", "BENCHSITE_ENV", "DATABASE_URL", "PYTEST_ADDOPTS")


@pytest.fixture(scope="module")
def server():
    """A private cluster on a loopback port, run by a user that PostgreSQL accepts."""
    found = shutil.which("initdb") or next(
        iter(sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), reverse=True)), None
    )
    if found is None:
        if "postgres" in os.environ.get("BENCHSITE_REQUIRE", ""):
            pytest.fail("PostgreSQL is required here and is not installed")
        pytest.skip("no PostgreSQL server here: apt-get install postgresql")
    programs, port = Path(found).parent, free_port()
    folder = Path(tempfile.mkdtemp(prefix="benchsite-postgres-"))  # pytest closes its own folders to other users
    as_user = ["runuser", "-u", "postgres", "--"] if getpass.getuser() == "root" else []
    if as_user:
        shutil.chown(folder, "postgres")
    data, options = folder / "data", f"-p {port} -c listen_addresses=127.0.0.1 -k {folder} -c fsync=off"

    def run(*command: str) -> None:
        subprocess.run([*as_user, *command], check=True, capture_output=True, cwd=folder)

    run(str(programs / "initdb"), "-D", str(data), "-U", "benchsite", "--auth=trust", "-E", "UTF8")
    log = str(folder / "log")
    subprocess.run(
        [*as_user, str(programs / "pg_ctl"), "-D", str(data), "-o", options, "-l", log, "-w", "start"],
        check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield f"postgres://benchsite@127.0.0.1:{port}/postgres"
    finally:
        run(str(programs / "pg_ctl"), "-D", str(data), "-m", "immediate", "stop")
        shutil.rmtree(folder)


def test_recorder_dispatcher_and_pages_pass_on_postgres(server):
    suites = [suite for suite in SUITES if (ROOT / suite).exists()]
    inherited = {k: v for k, v in os.environ.items() if k not in OURS}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *DRAWN, *suites],
        cwd=ROOT, env=inherited | {"TEST_DATABASE_URL": server}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
    assert "database: postgresql" in done.stdout
    assert " passed" in done.stdout


def test_a_backup_of_postgres_can_be_restored(server, tmp_path):
    """Into another database of the same server, table by table."""
    inherited = {k: v for k, v in os.environ.items() if k not in OURS}
    own = {"BENCHSITE_VAR": str(tmp_path), "BENCHSITE_ENV": str(tmp_path / "env"), "SECRET_KEY": "only-for-tests"}

    def manage(*words, database="postgres"):
        env = inherited | own | {"DATABASE_URL": f"{server.rsplit('/', 1)[0]}/{database}"}
        command = [sys.executable, "manage.py", *words]
        return subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True, text=True)

    manage("migrate", "--verbosity=0")
    manage("createsuperuser", "--noinput", "--username=nina", "--email=")
    file = tmp_path / "backup"
    manage("backup", str(file))
    address = server.replace("postgres://", "postgresql://")
    subprocess.run(["psql", "-q", address, "-c", "CREATE DATABASE restored"], check=True, capture_output=True)
    restored = address.rsplit("/", 1)[0] + "/restored"
    subprocess.run(["pg_restore", "--no-owner", "-d", restored, str(file)], check=True, capture_output=True)
    ask = "from django.contrib.auth.models import User; print(User.objects.get().username)"
    assert manage("shell", "-v0", "-c", ask, database="restored").stdout.strip() == "nina"

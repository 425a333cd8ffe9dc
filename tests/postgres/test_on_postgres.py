"""The database may be PostgreSQL: the tests of the recorder, the dispatcher and the pages pass there as well."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from postgres_server import postgres

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
    with postgres() as found:
        yield found.url


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

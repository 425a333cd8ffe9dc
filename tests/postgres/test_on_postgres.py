"""The database may be PostgreSQL: the tests of the recorder, the dispatcher and the pages pass there as well."""

import json
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
    pytest.mark.timeout(2400),
]
LEFT = tuple(
    f"--ignore=tests/site/test_{name}.py"
    for name in (
        "api_fuzz", "charts", "columns", "compare_many", "distribution", "estimates", "forest", "form_page", "glossary",
        "history_page", "isolated_runs", "judge_page", "new_run", "outgoing", "session_form", "several_operations", "sharing",
        "submissions",
    )
)  # fmt: skip
"""They take a third of the time and send 3% of the statements that no other file sends."""
SUITES = ("tests/pipeline/test_recorder.py", "tests/pipeline/test_dispatcher.py", "tests/site")

OURS = ("DJANGO_SETTINGS_MODULE", "BENCHSITE_VAR", "BENCHSITE_ENV", "DATABASE_URL", "PYTEST_ADDOPTS")


TASK_TWICE = """
from runs.tasks import reap
reap.apply(throw=True)
print("first", flush=True)
input()
reap.apply(throw=True)
print("second", flush=True)
"""


@pytest.fixture(scope="module")
def running():
    with postgres() as found:
        yield found


@pytest.fixture
def server(running):
    return running.url


def test_recorder_dispatcher_and_pages_pass_on_postgres(server):
    suites = [suite for suite in SUITES if (ROOT / suite).exists()]
    inherited = {k: v for k, v in os.environ.items() if k not in OURS}
    options = ["-p", "no:cacheprovider", "-m", "not thorough"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *LEFT, *suites],
        cwd=ROOT, env=inherited | {"TEST_DATABASE_URL": server}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
    assert "database: postgresql" in done.stdout
    assert " passed" in done.stdout


def test_every_row_of_postgres_comes_back_from_a_backup(server, tmp_path):
    """Into the same database, which has other rows by then; what was there is kept."""
    inherited = {k: v for k, v in os.environ.items() if k not in OURS}
    own = {"BENCHSITE_VAR": str(tmp_path), "BENCHSITE_ENV": str(tmp_path / "env"), "SECRET_KEY": "only-for-tests"}
    address = f"{server.rsplit('/', 1)[0]}/copied"
    server = server.replace("postgres://", "postgresql://")
    subprocess.run(["psql", "-q", server, "-c", "CREATE DATABASE copied"], check=True, capture_output=True)

    def manage(*words):
        env = inherited | own | {"DATABASE_URL": address}
        done = subprocess.run([sys.executable, "manage.py", *words], cwd=ROOT, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def rows():
        return json.loads(manage("dumpdata", "--all"))

    manage("migrate", "--verbosity=0")
    manage("shell", "-v0", "-c", "from runs.pipeline.importer import load_demo_runs; load_demo_runs()")
    manage("createsuperuser", "--noinput", "--username=nina", "--email=")
    before = rows()
    assert len([row for row in before if row["model"] == "runs.result"]) > 10
    manage("backup", str(tmp_path / "backup"))
    manage("createsuperuser", "--noinput", "--username=later", "--email=")
    manage("shell", "-v0", "-c", "from runs.models import Result; Result.objects.all().delete()")
    between = rows()
    assert between != before
    said = manage("restore", str(tmp_path / "backup")).splitlines()
    assert rows() == before
    manage("restore", said[0].removeprefix("the previous database was saved to "))
    assert rows() == between
    manage("createsuperuser", "--noinput", "--username=newest", "--email=")  # sequences go on where they were


def test_a_task_after_a_restart_of_the_database_takes_a_new_connection(running, tmp_path):
    """Connections are kept between tasks."""
    inherited = {k: v for k, v in os.environ.items() if k not in OURS}
    own = {"BENCHSITE_VAR": str(tmp_path), "BENCHSITE_ENV": str(tmp_path / "env"), "SECRET_KEY": "only-for-tests"}
    env = inherited | own | {"DATABASE_URL": running.url}
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=env, check=True)
    command = [sys.executable, "manage.py", "shell", "-v0", "-c", TASK_TWICE]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, env=env, text=True, **pipes) as process:
        assert process.stdout.readline() == "first\n"
        running.restart("fast")
        out, err = process.communicate("\n", timeout=60)
    assert (out, process.returncode) == ("second\n", 0), err

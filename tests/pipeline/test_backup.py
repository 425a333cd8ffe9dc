"""A backup of a living site has the newest run."""

import sqlite3
import stat
from contextlib import closing

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from kernels.workload import Config
from runs.models import Run

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="tests/postgres looks at the backup of PostgreSQL"),
]
SIZES = {"batch": 1, "heads": 2, "seq_len": 16, "head_dim": 64}


def test_a_backup_is_complete_and_only_its_owner_can_read_it(tmp_path):
    config = Config(name="test", operation="attention", kernels=["sdpa"], workloads=[SIZES])
    newest = [Run.objects.submit(config, title=f"run {n}", wake=False).title for n in range(5)]
    file = tmp_path / "backup.sqlite3"
    call_command("backup", file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with closing(sqlite3.connect(file)) as copy:
        assert [title for (title,) in copy.execute("SELECT title FROM runs_run ORDER BY id")] == newest
    assert [path.name for path in tmp_path.iterdir()] == ["backup.sqlite3"]


def test_a_backup_replaces_no_file(tmp_path):
    file = tmp_path / "precious"
    file.write_text("")
    with pytest.raises(CommandError, match="exists; name another file"):
        call_command("backup", file)
    assert file.read_text() == ""

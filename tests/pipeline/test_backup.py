"""A backup of a living site has the newest run, and comes back row by row; runs in progress end truthfully."""

import sqlite3
import stat
from contextlib import closing

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import connection

from kernels.workload import Config
from runs.models import Gpu, Run

on_sqlite = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="tests/postgres looks at the backup of PostgreSQL"),
]
SIZES = {"batch": 1, "heads": 2, "seq_len": 16, "head_dim": 64}


def submitted(count):
    config = Config(name="test", operation="attention", kernels=["sdpa"], workloads=[SIZES])
    return [Run.objects.submit(config, title=f"run {n}", wake=False) for n in range(count)]


def rows(but=()):
    """Every row of every table, by table."""
    models = apps.get_models(include_auto_created=True)
    return {m._meta.label: list(m.objects.order_by("pk").values()) for m in models if m._meta.label not in but}


class TestOnSqlite:
    pytestmark = on_sqlite

    def test_a_backup_is_complete_and_only_its_owner_can_read_it(self, tmp_path):
        newest = [run.title for run in submitted(5)]
        file = tmp_path / "backup.sqlite3"
        call_command("backup", file)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        with closing(sqlite3.connect(file)) as copy:
            assert [title for (title,) in copy.execute("SELECT title FROM runs_run ORDER BY id")] == newest
        assert [path.name for path in tmp_path.iterdir()] == ["backup.sqlite3"]

    def test_a_backup_replaces_no_file(self, tmp_path):
        file = tmp_path / "precious"
        file.write_text("")
        with pytest.raises(CommandError, match="exists; name another file"):
            call_command("backup", file)
        assert file.read_text() == ""

    def test_every_row_comes_back_and_what_was_there_is_kept(self, tmp_path, capsys):
        for run in submitted(3):
            run.cancel()
        Gpu.objects.create(uuid="GPU-1", kind="cuda", name="NVIDIA H200")
        before = rows()
        call_command("backup", tmp_path / "one")
        Gpu.objects.all().delete()
        Run.objects.first().delete()
        submitted(2)
        between = rows()
        call_command("restore", tmp_path / "one")
        assert rows() == before and len(before["runs.Run"]) == 3
        said = capsys.readouterr().out.splitlines()
        assert said[-1] == f"{tmp_path / 'one'}: 3 runs restored"
        call_command("restore", said[-2].removeprefix("the previous database was saved to "))
        attempts = {run["id"]: run["attempt"] for run in rows()["runs.Run"]}
        for run in between["runs.Run"]:
            run["attempt"] = attempts[run["id"]]  # of those in progress
        assert rows() == between

    def test_runs_in_progress_get_numbers_that_no_agent_knows(self, tmp_path, capsys):
        sent, waiting, ended = submitted(3)
        gpu = Gpu.objects.create(uuid="GPU-1", kind="cuda", name="NVIDIA H200")
        Run.objects.filter(pk=sent.pk).update(state="running", gpu=gpu, sent_at=sent.created_at, attempt=2049, seq=7)
        ended.cancel()
        call_command("backup", tmp_path / "one")
        call_command("restore", tmp_path / "one")
        assert capsys.readouterr().out.splitlines()[-1].endswith("3 runs restored; 2 in progress continue")
        now = {run.pk: run for run in Run.objects.all()}
        assert now[sent.pk].attempt != 2049 and now[sent.pk].attempts == 1 and now[sent.pk].seq == 0
        assert now[waiting.pk].attempt != waiting.attempt and now[waiting.pk].attempts == 0
        assert now[ended.pk].attempt == ended.attempt

    @pytest.mark.parametrize(
        "content, why",
        (
            (b"", "is not a file that manage.py backup wrote"),
            (b"PGDMP and more", "is a copy of postgresql, and this site's database is sqlite"),
            (b"SQLite format 3\x00 and more", "is damaged"),
            (None, "cannot be read: No such file"),
        ),
    )
    def test_what_is_no_backup_replaces_nothing(self, tmp_path, content, why):
        submitted(1)
        if content is not None:
            (tmp_path / "file").write_bytes(content)
        with pytest.raises(CommandError, match=why):
            call_command("restore", tmp_path / "file")
        assert Run.objects.count() == 1

    def test_a_backup_of_a_newer_version_is_refused(self, tmp_path):
        call_command("backup", tmp_path / "one")
        with closing(sqlite3.connect(tmp_path / "one")) as db:
            db.execute("INSERT INTO django_migrations (app, name, applied) VALUES ('runs', '9999_later', '2030-01-01')")
            db.commit()
        with pytest.raises(CommandError, match="written by a newer version, with 9999_later: update this checkout"):
            call_command("restore", tmp_path / "one")


@pytest.mark.thorough("a restore under runs: `make test` restores a quiet site")
@pytest.mark.timeout(200)
def test_runs_that_were_in_progress_at_the_backup_end_truthfully_after_a_restore(site, tmp_path, monkeypatch):
    """One was measuring, one was waiting; both ended between backup and restore. The site lives all the time."""
    running = site.submit("eager", lengths=(32, 48, 64), protocol=site.SLOW)
    site.wait(running, "running", within=60)
    waiting = site.submit("eager")  # not before: short runs go first
    call_command("backup", tmp_path / "one")
    for run in (running, waiting):
        site.wait(run, "done", within=90)
    after = site.submit("eager")
    call_command("restore", tmp_path / "one")
    assert not Run.objects.filter(pk=after.pk).exists()
    assert {run.state for run in Run.objects.filter(pk__in=(running.pk, waiting.pk))} <= {"queued", "running"}
    for run, workloads in ((running, 3), (waiting, 1)):
        site.wait(run, "done", within=120)
        assert run.measurements.count() == run.done == workloads
        assert run.finished_at > run.started_at

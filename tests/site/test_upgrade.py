"""A database of the version before, as it was written then, is taken in by this one: every figure, every page."""

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.urls import reverse

from runs.models import Result, Run, Session, Share

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="the fixture is a database of SQLite"),
]
OLD = Path(__file__).parent / "version-1.sql.gz"
"""Migrations up to 0008: three runs (done, in progress, waiting), a share, a session, a person."""
FIGURES = "SELECT r.id, r.p50, r.speedup, r.tflops, r.status FROM runs_result r ORDER BY r.id"


@pytest.fixture
def before(tmp_path):
    """The old database's figures; this site has its rows."""
    file = tmp_path / "old"
    with closing(sqlite3.connect(file)) as db:
        db.executescript(gzip.decompress(OLD.read_bytes()).decode())
        figures = db.execute(FIGURES).fetchall()
    call_command("restore", file)
    return figures


@pytest.fixture
def nina(before):
    client = Client()
    assert client.post(reverse("login"), {"username": "nina", "password": "of-the-fixture"}).status_code == 302, (
        "passwords stay"
    )
    return client


def test_every_figure_is_the_same(before):
    assert (
        len(before) == 6
        and list(Result.objects.order_by("pk").values_list("pk", "p50_ms", "speedup", "tflops", "status")) == before
    )
    assert Result.objects.exclude(samples_ns=None).count() == 6, "raw samples, under their new name"
    assert not Run.objects.get(state="done").demo


@pytest.mark.journey
def test_every_page_shows_it(nina):
    done = Run.objects.get(state="done")
    result = Result.objects.select_related("kernel", "measurement__workload").get(
        kernel__name="triton-flash", measurement__pk=1
    )
    kernel = [result.kernel.operation, result.kernel.name]
    pages = [
        reverse(name)
        for name in ("overview", "runs", "results", "kernels", "tiers", "gpus", "sessions", "status", "new_run")
    ]
    pages += [reverse(name, args=[done.pk]) for name in ("run", "run_csv", "run_md", "run_json", "run_yaml")]
    pages += [reverse("run", args=[one.pk]) for one in Run.objects.all()]
    pages += [reverse(name, args=[done.pk, result.pk]) for name in ("result", "result_csv", "result_json")]
    pages += [reverse("result_chart_svg", args=[done.pk, result.pk, name]) for name in ("samples", "rounds")]
    pages += [
        reverse("kernel", args=kernel),
        reverse("kernel_workload", args=[*kernel, result.measurement.workload.key]),
    ]
    pages += [reverse("session", args=[Session.objects.get().pk]), reverse("compare", args=[done.pk, done.pk])]
    assert {page: status for page in pages if (status := nina.get(page).status_code) != 200} == {}
    told = json.loads(nina.get(reverse("run_json", args=[done.pk])).getvalue())
    assert told["state"] == "done" and len(told["measurements"]) == 2


def test_what_was_shared_and_in_progress_stays_so(before):
    assert Client().get(Share.objects.get().get_absolute_url()).status_code == 200
    running, waiting = Run.objects.get(title="in progress"), Run.objects.get(title="waiting")
    assert (running.state, waiting.state) == ("running", "queued")
    assert running.attempts == 1 and waiting.attempts == 0
    assert running.run_spec().workloads and running.gpu.uuid == "GPU-1"

"""make speed: how long the product takes for what people wait for. Prints figures, asserts nothing.

Starts a site of its own (a folder, a port, a broker of its own) and ends it. `--install` also times a clean clone;
`--results 1000000` times pages once more with so many results, copies of the demo run's. `--database URL`: in this database,
an empty one, and not in SQLite.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE_REQUESTS = 30
PAGES = {
    "overview": "/",
    "list of runs": "/runs/",
    "new run": "/runs/new/",
    "results": "/results/",
    "results of one kernel, by speedup": "/results/?q=sdpa-flash&sort=-speedup",
    "leaderboard": "/leaderboard/",
    "list of kernels": "/kernels/",
    "page of a kernel": "/kernels/attention/sdpa/",
    "changes": "/changes/",
    "tiers": "/tiers/",
    "GPUs": "/gpus/",
    "status": "/status/",
    "sessions": "/sessions/",
    "session's report": "/sessions/1/report/",
}

READS = (
    "/api/runs", "/api/results", "/api/results?q=sdpa-flash&sort=-speedup", "/api/leaderboard", "/api/changes", "/api/kernels",
    "/api/kernels/attention/sdpa", "/api/tiers", "/api/devices", "/api/configs", "/api/sessions",
)  # fmt: skip
"""Of the API."""
DEMO, RECORDED_RUNS = "h200-2026-11-22.json", 8
"""The run whose results are recorded, and how often."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def written(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds < 2 else f"{seconds:.1f} s"


def say(what: str, seconds: float, goal_s: float | None = None) -> None:
    goal = "" if goal_s is None else f"   goal {written(goal_s)}{', missed' if seconds > goal_s else ''}"
    print(f"{what:66} {written(seconds):>9}{goal}", flush=True)


class Site:
    """`manage.py up` somewhere else."""

    def __init__(
        self, folder: Path, python: str = sys.executable, root: Path = ROOT, database: str | None = None
    ) -> None:
        self.port = free_port()
        inherited = {k: v for k, v in os.environ.items() if k not in ("SECRET_KEY", "DATABASE_URL", "REDIS_URL")}
        places = {"BENCHSITE_VAR": str(folder / "var"), "BENCHSITE_ENV": str(folder / "env"), "TMPDIR": str(folder)}
        self.database = {"DATABASE_URL": database} if database else {}
        self.env = inherited | places | self.database | {"PORT": str(self.port), "PYTHONUNBUFFERED": "1"}
        self.log, self.command, self.root = folder / "up.log", [python, "manage.py", "up"], root

    def start(self) -> float:
        begun = time.monotonic()
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(self.command, cwd=self.root, env=self.env, stdout=log, stderr=log)
        while not self._answers():
            time.sleep(0.05)
        return time.monotonic() - begun

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/accounts/login/", timeout=2) as page:
                return page.status == 200
        except OSError:
            return False

    def stop(self) -> float:
        begun = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)
        return time.monotonic() - begun

    def use(self) -> None:
        """Makes this process a client of the site's database and broker."""
        sys.path.insert(0, str(self.root))
        from benchsite.env_file import read

        os.environ |= read(self.log.parent / "env")
        os.environ |= {name: self.env[name] for name in ("BENCHSITE_VAR", "BENCHSITE_ENV")} | self.database
        os.environ["DJANGO_SETTINGS_MODULE"] = "benchsite.settings"
        import django

        django.setup()


def wait_for(check: Any, limit: float = 120.0) -> Any:
    deadline = time.monotonic() + limit
    while not (found := check()):
        if time.monotonic() > deadline:
            raise SystemExit("speed: gave up waiting")
        time.sleep(0.01)
    return found


def time_runs() -> None:
    """From Run to running, to the first timed call, to a result in the database, with a warm agent."""
    from django.conf import settings

    from kernels.config_files import load_config
    from runs.broker import BrokerKeys
    from runs.models import Gpu, Run

    gpu = Gpu.objects.get()
    wait_for(lambda: not Run.objects.active().exists())
    time.sleep(6)  # the child of the next run warms up
    to_running, to_timing, to_page = [], [], []
    notes = BrokerKeys(settings.REDIS_URL)
    for _ in range(3):
        begun = time.time()
        run = Run.objects.submit(load_config("smoke"), gpu=gpu)
        wait_for(lambda run=run: Run.objects.get(pk=run.pk).started_at)
        to_running.append(time.time() - begun)
        wait_for(lambda run=run: notes.shown(run.pk).get("step", "").startswith(("estimate", "warm-up", "round")))
        to_timing.append(time.time() - begun)
        first = wait_for(lambda run=run: Run.objects.get(pk=run.pk).measurements.first())
        measured = first.created_at.timestamp()
        wait_for(lambda run=run: not Run.objects.get(pk=run.pk).is_active)
        to_page.append(measured - begun)
        time.sleep(6)
    say("Run pressed to running (median of 3)", statistics.median(to_running), 1)
    say("Run pressed to the first timed call of smoke", statistics.median(to_timing), 2)
    say("Run pressed to the first result of smoke stored", statistics.median(to_page))


def time_pages(beside: str = "") -> None:
    """Server time of pages, in process; without the network and without charts."""
    from django.contrib.auth import get_user_model
    from django.test import Client
    from django.test.utils import setup_test_environment, teardown_test_environment

    from runs.hosting.web import settle
    from runs.models import Measurement, Run

    setup_test_environment()
    settle()  # as the web server does
    client = Client()
    client.force_login(get_user_model().objects.first())
    largest = max(Run.objects.exclude(config={}), key=lambda run: run.total)
    last = Measurement.objects.order_by("-pk").select_related("workload")[0]
    pages = PAGES | {
        f"run page, {largest.total} workloads x 8 kernels": f"/runs/{largest.pk}/",
        "history of a kernel on a workload": f"/kernels/{last.workload.operation}/sdpa/on/{last.workload.key}/",
    }
    for name, path in pages.items():
        time_requests(client, path, f"{name}{beside}", 0.15)
    for path in READS:
        time_requests(client, path, f"{path}{beside}", 0.1)
    teardown_test_environment()


def time_requests(client: Any, path: str, name: str, goal_s: float) -> None:
    """Of as many requests, after a first one."""
    from django.core.cache import cache

    cache.clear()  # else it asks for pauses
    client.get(path)
    times = []
    for _ in range(PAGE_REQUESTS):
        begun = time.perf_counter()
        assert client.get(path).status_code == 200, path
        times.append(time.perf_counter() - begun)
    p95 = statistics.quantiles(times, n=20)[18]
    say(f"{name}: server time, p50 {written(statistics.median(times))}, p95", p95, goal_s)


def fill(results: int) -> str:
    """Adds copies of the demo run's results. Returns how many there are, as words."""
    sys.path.insert(0, str(ROOT / "tests/site"))
    from django.db import connection
    from django.db.models import Max
    from many import many

    from runs.models import Measurement, Newest, Result, Run

    template = Run.objects.exclude(demo="").first()
    assert template is not None
    many(template, -(-results // Result.objects.filter(measurement__run=template).count()))
    last = Measurement.objects.filter(run__demo="").order_by().values("workload", "run__gpu").annotate(last=Max("pk"))
    for measurement in Measurement.objects.filter(pk__in=[one["last"] for one in last]).select_related("run"):
        Newest.objects.note([measurement])
    with connection.cursor() as cursor:  # as the database does by itself within a minute, and the site once a day
        cursor.execute("VACUUM ANALYZE" if connection.vendor == "postgresql" else "ANALYZE")
    return f", of {Result.objects.count():,} results"


def time_recording() -> None:
    """Records the demo run's events with their samples, a run in one message."""
    from kernels.contract.events import Ending, Finished, Line, SentLine, Started
    from kernels.contract.export import read_export
    from runs.models import Gpu, Result, Run
    from runs.pipeline import dispatcher, importer, recorder

    export = read_export((importer.folder() / DEMO).read_bytes())
    gpu = Gpu.objects.create(uuid="GPU-speed", kind="cuda", name=export.environment["device"])
    start = Started(environment=export.environment, fingerprint=export.fingerprint, preflight=export.preflight)
    spent, before = 0.0, Result.objects.count()
    for _ in range(RECORDED_RUNS):
        run = Run.objects.submit(export.config, gpu=gpu)
        assert dispatcher.claim(run, gpu)
        lines = []
        for seq, event in enumerate([start, *export.measurements, Finished(state=Ending.DONE)], 1):
            line = Line(run=run.pk, attempt=run.attempt, seq=seq, at=datetime.now(UTC), event=event)
            lines.append([*SentLine(run.pk, run.attempt, seq, line.model_dump_json(by_alias=True))])
        begun = time.perf_counter()
        recorder.record(lines)
        spent += time.perf_counter() - begun
    stored = Result.objects.count() - before
    say("recording 1,000 results", 1000 * spent / stored, 1)


def time_charts() -> None:
    from runs.charts.run_charts import NAMES
    from runs.charts.run_stored import chart_of
    from runs.models import Chart, Run

    run = max(Run.objects.filter(done__gt=0), key=lambda run: run.total)
    Chart.objects.filter(run=run).delete()
    for name in NAMES:
        begun = time.perf_counter()
        chart_of(run, name, "light")
        say(f"chart {name}, drawn and stored", time.perf_counter() - begun)


def time_clean_clone(folder: Path) -> None:
    """From a clean clone, with a warm package cache, to the first result in the database."""
    clone, begun = folder / "clone", time.monotonic()
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    subprocess.run(["make", "-s", "install"], cwd=clone, check=True, stdout=subprocess.DEVNULL)
    say("clean clone: make install", time.monotonic() - begun)
    (folder / "site").mkdir()
    site = Site(folder / "site", str(clone / ".venv/bin/python"), clone)
    site.start()
    asked = "measurement__run__demo='', p50_ms__gt=0"
    command = f"from runs.models import *; print('first:', Result.objects.filter({asked}).exists())"
    from benchsite.env_file import read

    env = site.env | read(folder / "site/env")
    ask = [str(clone / ".venv/bin/python"), "manage.py", "shell", "-c", command]

    def is_there() -> bool:
        return "first: True" in subprocess.run(ask, cwd=clone, env=env, capture_output=True, text=True).stdout

    wait_for(is_there, 300)
    say("clean clone to the first result on a page", time.monotonic() - begun, 180)
    site.stop()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--install", action="store_true", help="also time a clean clone")
    options.add_argument("--results", type=int, default=0, help="time pages once more with so many results")
    options.add_argument("--database", default=None, help="URL of an empty database; default: SQLite")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="benchsite-speed-") as name:
        folder = Path(name)
        site = Site(folder, database=chosen.database)
        say("make up, the first time, to an answering page", site.start())
        site.use()
        try:
            time_runs()
            time_pages()
            time_recording()
            time_charts()
            if chosen.results:
                time_pages(fill(chosen.results))
        finally:
            say("Ctrl-C to everything stopped", site.stop())
        say("make up again", site.start(), 25)
        site.stop()
        if chosen.install:
            time_clean_clone(folder)


if __name__ == "__main__":
    main()

"""`make load`: a site under load, on this machine's loopback, for a bounded time.

50 people poll and read pages; 8 agents send 200 events a second together; 100,000 rows are imported; 8 clients are slow.
python -m tests.load [--seconds 600]. The last line is `load: events=N lost=0 page_p95_ms=X`; the exit status is 0 if no
event was lost and none was late, the pages' p95 is at most 300 ms, no page failed, and memory was flat.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

import django

from kernels.host.device import find_device
from kernels.host.processes import descendants
from kernels.parent.supervisor import Supervisor
from kernels.workload import Config, RunSpec
from runs.hosting.setup import free_port
from tests.load.people import Reader, Slow, rows_to_import
from tests.postgres_server import AS_IN_USE, postgres

ROOT = Path(__file__).parents[2]
PEOPLE, AGENTS, SLOW, ROWS = 50, 8, 8, 100_000
RATE = 200.0
"""Events per second, of all agents."""
PAGE_GOAL_MS, GROWTH = 300.0, 1.1
"""Memory is flat if the mean of the last quarter is at most so many times that of the second."""
WORKLOADS = 500
"""Of a run; each is one event."""
START_LIMIT_S, STORE_LIMIT_S = 120.0, 300.0
PROTOCOL = {"warmup_s": 0.02, "min_rounds": 8, "max_rounds": 8, "verify_seeds": 1, "block_ms": 0.5}


def config(rows: list[int]) -> Config:
    workloads = [{"rows": count, "cols": 64, "dtype": "float32"} for count in rows]
    return Config(
        name="load", operation="softmax", kernels=["eager", "functional"], protocol=PROTOCOL, workloads=workloads
    )


def store_events(path: Path) -> None:
    """The events of a real run on this CPU, without its end, which the agent adds."""
    device, events = find_device("cpu"), []
    Supervisor(RunSpec.of(config([64]), device.uuid), device, events.append).run()
    path.write_text(json.dumps([event.model_dump(mode="json") for event in events]))


class Site:
    """`manage.py up` on PostgreSQL, and agents beside it."""

    def __init__(self, folder: Path, database: str) -> None:
        self.folder, self.port, self.broker_port, self.mark = folder, free_port(), free_port(), secrets.token_hex(12)
        kept = {name: value for name, value in os.environ.items() if name not in ("REDIS_URL", "KERNEL_PATH")}
        self.env = kept | {
            "BENCHSITE_VAR": str(folder / "var"), "BENCHSITE_ENV": str(folder / "env"), "DATABASE_URL": database,
            "BROKER_PASSWORD": self.mark, "BROKER_PORT": str(self.broker_port), "SECRET_KEY": self.mark,
            "DJANGO_SETTINGS_MODULE": "benchsite.settings", "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def broker(self) -> str:
        return f"redis://:{self.mark}@127.0.0.1:{self.broker_port}/0"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, name: str, command: list[str], **env: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            one = subprocess.Popen(
                command,
                env=self.env | env,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # as the service, or the terminal, that starts each of them
            )
        self.processes.append(one)
        return one

    def start_all(self) -> None:
        self.start("site", [sys.executable, "manage.py", "up", "--no-first-run", "--port", str(self.port)])
        wait_for(self._broker_answers, START_LIMIT_S, "the broker")
        for number in range(AGENTS):
            uuid = f"CPU-load-{number}"
            command = [sys.executable, "-m", "celery", "-q", "-A", "tests.load.agent", "worker", "-c", "1"]
            options = [
                "--without-gossip",
                "--without-mingle",
                "--without-heartbeat",
                "-Q",
                f"device.{uuid}",
                "-n",
                f"{uuid}@%h",
            ]
            more = {
                "LOAD_DEVICE": str(number),
                "LOAD_RATE": str(RATE / AGENTS),
                "LOAD_EVENTS": str(self.folder / "events.json"),
            }
            var = str(self.folder / f"agent-{number}")
            (self.folder / f"agent-{number}" / "agent").mkdir(parents=True)
            self.start(f"agent-{number}", [*command, *options], BROKER=self.broker, BENCHSITE_VAR=var, **more)

    def _broker_answers(self) -> bool:
        from redis import Redis

        with contextlib.suppress(Exception), Redis.from_url(self.broker, socket_timeout=2) as client:
            return bool(client.ping())
        return False

    def memory_mb(self) -> float:
        """Of the site's processes, without agents and their children."""
        total = 0
        for pid in [self.processes[0].pid, *descendants(self.processes[0].pid)]:
            with contextlib.suppress(OSError, IndexError, ValueError):
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"runs.agent" not in line and b"kernels.child" not in line:
                    total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return total / 2**20

    def end(self) -> None:
        for one in self.processes[::-1]:
            one.send_signal(signal.SIGTERM)
        for one in self.processes:
            try:
                one.wait(30)
            except subprocess.TimeoutExpired:
                one.kill()


def wait_for(check: Any, limit_s: float, what: str) -> Any:
    deadline = time.monotonic() + limit_s
    while not (found := check()):
        if time.monotonic() > deadline:
            raise SystemExit(f"load: {what}: not within {limit_s:g} s")
        time.sleep(0.25)
    return found


def cookie_of(user: Any) -> str:
    from django.conf import settings
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
    from django.contrib.sessions.backends.db import SessionStore

    session = SessionStore()
    session[SESSION_KEY], session[HASH_SESSION_KEY] = str(user.pk), user.get_session_auth_hash()
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session.create()
    return f"{settings.SESSION_COOKIE_NAME}={session.session_key}"


class Load:
    """The load on a started site."""

    def __init__(self, site: Site, seconds: float) -> None:
        self.site, self.seconds, self.over = site, seconds, threading.Event()
        self.runs: list[int] = []
        self.memory: list[float] = []

    def submit(self) -> None:
        """For each agent, runs for the whole time."""
        from runs.models import Gpu, Run

        gpus = wait_for(self._all_online, START_LIMIT_S, "the agents")
        wanted = int(self.seconds * RATE / AGENTS)
        for gpu in Gpu.objects.filter(pk__in=gpus):
            for first in range(0, wanted, WORKLOADS):
                rows = list(range(1, 1 + min(WORKLOADS, wanted - first)))
                self.runs.append(Run.objects.submit(config(rows), gpu=gpu).pk)

    def _all_online(self) -> list[int]:
        from runs.models import Gpu

        found = list(Gpu.objects.online().filter(uuid__startswith="CPU-load-").values_list("pk", flat=True))
        return found if len(found) == AGENTS else []

    def run(self) -> None:
        from django.contrib.auth.models import User

        cookie = cookie_of(User.objects.create_superuser("load"))
        self.submit()
        self.readers = [
            Reader(self.site.url, cookie, self.runs[number % len(self.runs)], self.over, number)
            for number in range(PEOPLE)
        ]
        slow = [Slow(self.site.port, self.over) for _ in range(SLOW)]
        for thread in [*self.readers, *slow]:
            thread.start()
        rows_to_import(self.site.folder / "rows.jsonl", ROWS)
        began = time.monotonic()
        command = [sys.executable, "manage.py", "import_results", str(self.site.folder / "rows.jsonl")]
        importing = self.site.start("import", command)
        end, imported_s = began + self.seconds, None
        while time.monotonic() < end:
            time.sleep(5)
            self.memory.append(self.site.memory_mb())
            if imported_s is None and importing.poll() is not None:
                imported_s = time.monotonic() - began
                print(f"imported {ROWS} rows in {imported_s:.0f} s (exit status {importing.returncode})", flush=True)
        self.over.set()

    def report(self) -> bool:
        from runs.models import Result, Run
        from runs.models.run import ACTIVE

        def ended() -> bool:
            return not Run.objects.filter(pk__in=self.runs, state__in=ACTIVE).exists()

        stored_late = time.monotonic()
        with contextlib.suppress(SystemExit):
            wait_for(ended, STORE_LIMIT_S, "the runs end")
        late_s = time.monotonic() - stored_late
        runs = list(Run.objects.filter(pk__in=self.runs))
        events = sum(run.total for run in runs)
        missing = {run: run.total - run.measurements.count() for run in runs}
        late = sum(count for run, count in missing.items() if run.state in ACTIVE)
        lost = sum(missing.values()) - late
        results = Result.objects.filter(measurement__run__in=self.runs).count()
        pages = [took for one in self.readers for took in one.pages_s]
        polls = [took for one in self.readers for took in one.polls_s]
        errors = [error for one in self.readers for error in one.errors]
        page_p95, poll_p95 = (1e3 * quantiles(times, n=20)[-1] for times in (pages, polls))
        quarter = max(1, len(self.memory) // 4)
        early, last = fmean(self.memory[quarter : 2 * quarter] or self.memory), fmean(self.memory[-quarter:])
        print(
            f"{len(polls)} polls, p95 {poll_p95:.0f} ms; {len(pages)} pages, p95 {page_p95:.0f} ms; {len(errors)} errors"
        )
        print(*errors[:5], sep="\n")
        print(
            f"{results} results stored, the last {late_s:.0f} s after the load; memory {early:.0f} MB, then {last:.0f} MB"
        )
        if late:
            print(f"{late} events of {events} were not stored in time: the agents keep them")
        print(f"load: events={events - late} lost={lost} page_p95_ms={page_p95:.0f}")
        return not lost and not late and not errors and page_p95 <= PAGE_GOAL_MS and last <= GROWTH * early


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="benchsite-load-") as name, postgres(settings=AS_IN_USE) as server:
        site = Site(Path(name), server.url)
        store_events(site.folder / "events.json")
        os.environ |= {key: site.env[key] for key in ("DATABASE_URL", "SECRET_KEY", "BENCHSITE_VAR", "BENCHSITE_ENV")}
        os.environ |= {"DJANGO_SETTINGS_MODULE": "benchsite.settings", "REDIS_URL": site.broker}
        try:
            site.start_all()
            django.setup()
            load = Load(site, asked.seconds)
            load.run()
            return 0 if load.report() else 1
        finally:
            for log in site.folder.glob("*.log"):
                if sys.exc_info()[0]:
                    print(f"--- {log.name}\n{log.read_text(errors='replace')[-2000:]}")
            site.end()


if __name__ == "__main__":
    sys.exit(main())

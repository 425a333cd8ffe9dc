"""A real site: broker, recorder, site worker, beat and a CPU agent, as the processes that `make up` starts.

They run beside the tests with a database, a broker, a folder and kernels of their own. A test that kills one of them
leaves it running again or not: whoever asks for the site next finds it whole.
"""

import contextlib
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection
from redis import Redis
from redis.exceptions import RedisError
from selection import PATIENCE

from benchsite.queues import make_app
from kernels.host.device import find_device
from kernels.workload import Config
from runs import messages
from runs.broker import BrokerKeys
from runs.hosting.setup import free_port
from runs.hosting.stack import Stack
from runs.models import Gpu, RejectedEvent, Run

ROOT = Path(__file__).parents[2]
ZOO = ROOT / "tests" / "zoo"
QUICK = {"warmup_s": 0.02, "min_rounds": 8, "max_rounds": 8, "verify_seeds": 1, "block_ms": 0.5}


def pytest_collection_modifyitems(items):
    for item in items:
        if "site" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.pipeline)


# --- processes --------------------------------------------------------------------------------------------------------


def process_table():
    """pid -> (parent's pid, state, name), of every process."""
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            before, after = (entry / "stat").read_text().rsplit(")", 1)
            state, parent = after.split()[:2]
            found[int(entry.name)] = (int(parent), state, before.split("(", 1)[1])
    return found


def descendants(pid):
    """Processes below one, nearest first."""
    table, found = process_table(), [pid]
    for parent in found:
        found += [child for child, (its_parent, _, _) in table.items() if its_parent == parent]
    return found[1:]


def is_alive(pid):
    return process_table().get(pid, (0, "Z", ""))[1] != "Z"


def eventually(check, within, what):
    """Waits until `check` returns something true, and returns it. A machine of CI may be busy: it has PATIENCE times as long."""
    within *= PATIENCE
    deadline = time.monotonic() + within
    while not (answer := check()):
        assert time.monotonic() < deadline, f"{what}: not within {within} s"
        time.sleep(0.05)
    return answer


@contextlib.contextmanager
def database(path, blocker):
    """The tests' own queries go to another database for a while."""
    before = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = str(path)
    try:
        with blocker.unblock():
            yield
            connection.close()
    finally:
        connection.settings_dict["NAME"] = before


# --- the site ---------------------------------------------------------------------------------------------------------


class Site:
    """The processes by their names in runs/stack.py: broker, recorder, worker, beat, agent-cpu."""

    NOBODY = "postgresql://nobody:secret@127.0.0.1:1/none"
    """The agent's database: it must not care that nothing answers there."""
    SLOW = {"name": "fixed", "warmup": 0, "iters": 4, "verify_seeds": 1}
    """A protocol that calls a kernel about 140 times, nearly all of them to look for caching."""

    def __init__(self, folder):
        self.folder, self.port, self.password = folder, free_port(), secrets.token_urlsafe(12)
        self.git_port = free_port()
        """Of the git server that its agents may fetch from; a test starts it."""
        self.url = f"redis://:{self.password}@127.0.0.1:{self.port}/0"
        self.database = folder / "db.sqlite3"
        self.device = find_device("cpu")
        (folder / "tmp").mkdir()
        self.env = os.environ | {
            "BENCHSITE_VAR": str(folder),
            "BROKER_PASSWORD": self.password,
            "DATABASE_URL": f"sqlite:///{self.database}",
            "KERNEL_PATH": ":".join(
                str(room) for room in sorted(ZOO.iterdir()) if room.is_dir() and room.name[0] != "_"
            ),
            "GIT_SOURCES": f"http://127.0.0.1:{self.git_port}/team/",
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "REDIS_URL": self.url,
            "TMPDIR": str(folder / "tmp"),
        }
        self.parts = Stack([self.device], folder, broker=(["127.0.0.1"], self.port)).parts()
        self.shells = {}
        # Ends its process group, which all the others join, when the tests end or are killed: its input closes.
        leash = ["sh", "-c", "read _; kill -9 0"]
        self.leash = subprocess.Popen(leash, stdin=subprocess.PIPE, process_group=0)
        self.app = make_app("tests", self.url)

    def start(self, name):
        part = self.parts[name]
        env = self.env | part.env | ({"DATABASE_URL": self.NOBODY} if name == "agent-cpu" else {})
        with open(self.folder / f"{name}.log", "ab") as log:
            self.shells[name] = subprocess.Popen(
                f"while :; do {shlex.join(part.command)}; sleep 1; done",
                shell=True,
                env=env,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=self.leash.pid,
            )
        if name == "broker":
            eventually(self.broker_answers, 20, "the broker answers")

    def make_whole(self):
        """Starts what does not run."""
        for name in self.parts:
            if name not in self.shells or self.shells[name].poll() is not None:
                self.start(name)
        eventually(lambda: self.gpu() and self.gpu().is_online, 60, "the agent says hello")

    def process(self, name):
        """The pid of a process itself: the shell around it starts it again when it ends."""
        shell = self.shells[name].pid
        return eventually(
            lambda: next((p for p in [shell, *descendants(shell)] if process_table().get(p, " sh")[2] != "sh"), None),
            20,
            f"{name} runs",
        )

    def pool_process(self, name):
        """The process of a worker that does its tasks."""
        main = self.process(name)
        return eventually(lambda: next(iter(descendants(main)), None), 20, f"{name} has a pool process")

    def measuring(self):
        """Pids of the measuring children, without the template that forks them."""
        found = [p for p in self.below(self.process("agent-cpu")) if b"kernels.child" in command_line(p)]
        return [p for p in found if b"template" not in command_line(p) or process_table()[p][0] in found]

    def below(self, pid):
        """Pids of all processes below one."""
        return descendants(pid)

    def lose_the_broker(self):
        """Kills the broker, with what would start it again, and removes all that it had on disk."""
        shell, broker = self.shells["broker"], self.process("broker")
        shell.kill()
        shell.wait(10)
        os.kill(broker, signal.SIGKILL)
        eventually(lambda: not is_alive(broker), 10, "the broker is gone")
        shutil.rmtree(self.folder / "broker")

    def stop(self):
        """Ends every process that was started; the measuring child, which has a group of its own, follows its parent."""
        below = [pid for shell in self.shells.values() for pid in descendants(shell.pid)]
        self.leash.stdin.close()
        for process in (self.leash, *self.shells.values()):
            process.wait(10)
        eventually(lambda: not any(map(is_alive, below)), 10, "every process has ended")

    def broker_answers(self):
        with contextlib.suppress(RedisError), Redis.from_url(self.url) as client:
            return client.ping()

    def logs(self):
        return "\n".join(f"--- {p.stem}\n{p.read_text(errors='replace')[-3000:]}" for p in self.folder.glob("*.log"))

    def flush_the_broker(self):
        with Redis.from_url(self.url) as client:
            client.flushall()

    # --- runs ---

    eventually = staticmethod(eventually)
    is_alive = staticmethod(is_alive)

    def gpu(self):
        return Gpu.objects.filter(uuid=self.device.uuid).first()

    def submit(self, *kernels, lengths=(32,), protocol=QUICK, **options):
        """A run of these kernels beside the baseline, on one workload for each length."""
        workloads = [{"batch": 1, "heads": 2, "seq_len": s, "head_dim": 64, "dtype": "float32"} for s in lengths]
        config = Config(
            name="test", operation="attention", kernels=["sdpa", *kernels], protocol=protocol, workloads=workloads
        )
        return Run.objects.submit(config, gpu=self.gpu(), **options)

    def wait(self, run, *states, within=60):
        """Waits until a run is in one of these states (or has ended), and demands that it is one of these."""

        def there():
            run.refresh_from_db()
            return run.state in states or not run.is_active

        eventually(there, within, f"run {run.pk} is {' or '.join(states)}")
        assert run.state in states, f"run {run.pk} is {run.state}: {run.message}"
        return run

    def live(self, run):
        """What the agent says that it does now."""
        return BrokerKeys(self.url).shown(run.pk)

    def wait_for_workloads(self, run, count, within=60):
        """Waits until so many workloads of a run are in the database."""
        eventually(lambda: run.measurements.count() >= count, within, f"run {run.pk} has measured {count} workloads")


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture(scope="package")
def processes(tmp_path_factory, django_db_blocker):
    site = Site(tmp_path_factory.mktemp("site"))
    try:
        with database(site.database, django_db_blocker):
            call_command("migrate", verbosity=0)
        yield site
    finally:
        site.stop()


@pytest.fixture
def site(processes, django_db_blocker, settings, monkeypatch, request):
    """The site, whole, with an idle agent; this test's queries and tasks go to it."""
    settings.REDIS_URL = processes.url
    monkeypatch.setattr(messages, "celery_app", lambda: processes.app)
    with database(processes.database, django_db_blocker):
        processes.make_whole()
        RejectedEvent.objects.all().delete()
        failed = request.session.testsfailed
        yield processes
        for run in Run.objects.active():
            run.cancel()
        if request.session.testsfailed > failed:
            print(processes.logs())

"""The faults: each breaks one thing of a fleet for some seconds, and says what. Any time is as good as another for them."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
from redis import Redis

from benchsite.queues import RECORD_QUEUE, make_app
from tests.chaos.fleet import Fleet, table

Fault = Callable[[Fleet, random.Random], str]
LONG_LOCK_S = 45.0
KINDS = {
    "measuring child": "kernels.child",
    "agent": "runs.agent.worker",
    "recorder": "-Q record",
    "site worker": "-Q site",
    "beat": " beat ",
    "web server": "runs.hosting.web",
}
"""What is killed or stopped, and what its command line has. A worker's pool process has its worker's command line."""


def some(fleet: Fleet, rng: random.Random) -> tuple[str, int] | None:
    """A process of a kind, each kind as likely."""
    processes = fleet.processes()
    for kind in rng.sample(list(KINDS), len(KINDS)):
        if found := [pid for pid, line in processes.items() if KINDS[kind] in line and "unshare" not in line]:
            return kind, rng.choice(found)
    return None


def send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def killed(fleet: Fleet, rng: random.Random) -> str:
    if (found := some(fleet, rng)) is None:
        return "nothing to kill"
    send(found[1], signal.SIGKILL)
    return f"{found[0]} killed"


def child_killed(fleet: Fleet, rng: random.Random) -> str:
    children = [pid for pid, line in fleet.processes().items() if KINDS["measuring child"] in line]
    if children:
        send(rng.choice(children), signal.SIGKILL)
    return "measuring child killed"


def asked_to_end(fleet: Fleet, rng: random.Random) -> str:
    if (found := some(fleet, rng)) is None:
        return "nothing to end"
    send(found[1], signal.SIGTERM)
    return f"{found[0]} asked to end"


def stopped(fleet: Fleet, rng: random.Random) -> str:
    """SIGSTOP for some seconds."""
    if (found := some(fleet, rng)) is None:
        return "nothing to stop"
    seconds = rng.uniform(1, 12)
    send(found[1], signal.SIGSTOP)
    time.sleep(seconds)
    send(found[1], signal.SIGCONT)
    return f"{found[0]} stopped for {seconds:.0f} s"


def host_killed(fleet: Fleet, rng: random.Random) -> str:
    """The process that keeps a host's agent."""
    name = rng.choice([name for name in fleet.tops if name != "site"])
    send(fleet.tops[name].pid, signal.SIGKILL)
    return f"{name} killed"


def site_killed(fleet: Fleet, rng: random.Random) -> str:
    send(fleet.tops["site"].pid, signal.SIGKILL)
    return "the whole site killed"


def _brokers(fleet: Fleet) -> list[int]:
    return [pid for pid, line in table().items() if f":{fleet.broker_port}" in line or "embedded_broker" in line]


def broker_killed(fleet: Fleet, rng: random.Random) -> str:
    for pid in fleet.processes("site"):
        if pid in _brokers(fleet):
            send(pid, signal.SIGKILL)
    return "broker killed"


def broker_lost(fleet: Fleet, rng: random.Random) -> str:
    broker_killed(fleet, rng)
    shutil.rmtree(fleet.disks["host-0"] / "var" / "broker", ignore_errors=True)
    return "broker killed, its data removed"


def broker_emptied(fleet: Fleet, rng: random.Random) -> str:
    with contextlib.suppress(Exception), Redis.from_url(fleet.broker, socket_timeout=5) as client:
        client.flushall()
    return "broker emptied"


def database_restarted(fleet: Fleet, rng: random.Random) -> str:
    mode = rng.choice(("fast", "immediate"))
    fleet.postgres.restart(mode)
    return f"PostgreSQL restarted ({mode})"


def _locked_table(fleet: Fleet, seconds: float) -> str:
    with psycopg.connect(fleet.postgres.url) as connection:
        connection.execute("LOCK TABLE runs_run IN ACCESS EXCLUSIVE MODE")
        time.sleep(seconds)
    return f"table of runs locked for {seconds:.0f} s"


def table_locked(fleet: Fleet, rng: random.Random) -> str:
    return _locked_table(fleet, rng.uniform(2, 8))


def table_locked_long(fleet: Fleet, rng: random.Random) -> str:
    return _locked_table(fleet, LONG_LOCK_S)


def journal_locked_long(fleet: Fleet, rng: random.Random) -> str:
    journals = [path for disk in fleet.disks.values() for path in disk.glob("var/agent/*.sqlite3")]
    if not journals:
        return "no journal to lock"
    with contextlib.closing(sqlite3.connect(rng.choice(journals), timeout=10, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        time.sleep(LONG_LOCK_S)
        db.execute("ROLLBACK")
    return f"a journal locked for {LONG_LOCK_S:.0f} s"


@contextlib.contextmanager
def full(disk: Path) -> Iterator[None]:
    filler = disk / "filler"
    try:
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(b"\0" * 2**16):
                pass
        yield
    finally:
        filler.unlink(missing_ok=True)


def host_disk_full(fleet: Fleet, rng: random.Random) -> str:
    """Journal and scratch of a host; of the first one, the broker's, too."""
    name, seconds = rng.choice(list(fleet.disks)[:-1]), rng.uniform(3, 10)
    with full(fleet.disks[name]):
        time.sleep(seconds)
    return f"disk of {name} full for {seconds:.0f} s"


def database_disk_full(fleet: Fleet, rng: random.Random) -> str:
    seconds = rng.uniform(3, 8)
    with full(fleet.disks["database"]):
        time.sleep(seconds)
    fleet.postgres.start_if_ended()
    return f"disk of the database full for {seconds:.0f} s"


def events_twice_and_reversed(fleet: Fleet, rng: random.Random) -> str:
    """Stops the recorder until some events wait, then sends each of them once more, the last one first."""
    recorders = [pid for pid, line in fleet.processes("site").items() if KINDS["recorder"] in line]
    for pid in recorders:
        send(pid, signal.SIGSTOP)
    time.sleep(5)
    sent = 0
    with contextlib.suppress(Exception), Redis.from_url(fleet.broker, socket_timeout=5) as client:
        app = make_app("chaos", fleet.broker)
        for message in client.lrange(RECORD_QUEUE, 0, -1):
            envelope = json.loads(message)
            arguments = json.loads(base64.b64decode(envelope["body"]))[0]
            app.send_task(envelope["headers"]["task"], args=arguments)
            sent += 1
    for pid in recorders:
        send(pid, signal.SIGCONT)
    return f"{sent} messages of events sent again, reversed"


ONCE: list[Fault] = [
    database_disk_full, host_disk_full, table_locked_long, journal_locked_long, site_killed, broker_lost, broker_emptied,
    database_restarted, events_twice_and_reversed, host_killed, broker_killed,
]  # fmt: skip
"""Each comes at least once, in any order, if there is time."""
LONG: list[Fault] = [table_locked_long, journal_locked_long, site_killed, database_disk_full]
"""Not more than once."""
OFTEN: list[Fault] = [killed, killed, killed, child_killed, child_killed, stopped, stopped, asked_to_end, table_locked]

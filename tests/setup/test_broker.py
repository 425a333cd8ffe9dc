"""The embedded broker starts whatever its data are like, and only its owner can read them."""

import os
import secrets
import stat
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis
from selection import telling

from benchsite.queues import make_app
from runs.hosting.setup import free_port, is_ours

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(60)
PASSWORD = secrets.token_hex(8)


@contextmanager
def broker(folder):
    """A client of the broker, and where its output goes."""
    port = free_port()
    command = [sys.executable, "-m", "runs.hosting.embedded_broker", str(folder), str(port), "127.0.0.1"]
    env = os.environ | {"BROKER_PASSWORD": PASSWORD, "PYTHONPATH": str(ROOT)}
    log = folder.parent / "log"
    with open(log, "w") as out, subprocess.Popen(command, env=env, stdout=out, stderr=out, umask=0o077) as server:
        url = f"redis://:{PASSWORD}@127.0.0.1:{port}/0"
        try:
            deadline = time.monotonic() + 20
            while not is_ours(url):
                assert server.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            with Redis.from_url(url) as client:
                yield client, log
        finally:
            server.kill()


def test_it_goes_on_with_its_data_after_it_was_killed(tmp_path):
    folder = tmp_path / "broker"
    with broker(folder) as (client, _):
        client.set("kept", "yes")
        client.execute_command("WAITAOF", 1, 0, 5000)
    with broker(folder) as (client, log):
        assert client.get("kept") == b"yes"
        assert "damaged" not in log.read_text()
    modes = {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in folder.rglob("*")}
    assert modes == {0}


FILES = ["appendonly.aof.1.incr.aof", "appendonly.aof.manifest", "appendonly.aof.1.base.rdb"]
MORE = "more damaged files of the broker: `make test` has one"


@pytest.mark.parametrize("file", telling(FILES, FILES[0], why=MORE))
def test_damaged_data_are_put_aside_and_it_starts(tmp_path, file):
    folder = tmp_path / "broker"
    with broker(folder) as (client, _):
        client.set("kept", "yes")
        client.execute_command("WAITAOF", 1, 0, 5000)
    path = folder / "appendonlydir" / file
    path.write_bytes(b"garbage" * 100)
    with broker(folder) as (client, log):
        assert client.get("kept") is None
        assert "no run and no result is lost" in log.read_text()
    (aside,) = folder.glob("appendonlydir.damaged-*")
    assert (aside / file).read_bytes() == b"garbage" * 100


def test_a_worker_without_its_broker_tries_again_every_few_seconds(monkeypatch):
    """Kombu's own pauses grow to 30 s: a broker that is back would wait as long for its workers."""
    pauses = []

    class Enough(Exception):
        pass

    def note(error, pause):
        pauses.append(pause)
        if len(pauses) == 8:
            raise Enough

    monkeypatch.setattr("kombu.utils.functional.sleep", lambda s: None)
    app = make_app("nobody", f"redis://127.0.0.1:{free_port()}/0")
    with pytest.raises(Enough), app.connection_for_read() as connection:
        connection.ensure_connection(note, app.conf.broker_connection_max_retries)
    assert pauses == [1, 2, 3, 4, 5, 5, 5, 5]

"""LISTEN may be any address of this host: the site's own processes find the broker, and people the pages."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from runs.hosting import addresses
from runs.hosting.checks import SetupError
from runs.hosting.setup import free_port

ROOT = Path(__file__).parents[2]


@pytest.fixture
def taken():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


def test_a_taken_port_names_the_port_and_another(taken):
    with pytest.raises(SetupError, match=rf"port {taken} .*make down.* make up PORT={taken + 1}"):
        addresses.listening("127.0.0.1", taken)


def test_a_broker_port_that_is_taken_is_said_before_the_start(taken):
    addresses.check_free(["127.0.0.1"], free_port())
    with pytest.raises(SetupError, match=rf"port {taken} "):
        addresses.check_free(["127.0.0.1", "-::"], taken)


@pytest.mark.parametrize("host", ["203.0.113.7", "no such host"])
def test_an_address_that_is_not_of_this_host_is_said(host):
    with pytest.raises(SetupError, match=f"{host}"):
        addresses.listening(host, free_port())


def test_the_broker_always_listens_where_this_sites_own_processes_look():
    assert addresses.of_broker("127.0.0.1") == addresses.of_broker("localhost") == ["127.0.0.1"]
    assert addresses.of_broker("0.0.0.0") == ["0.0.0.0"]
    assert addresses.of_broker("::") == ["0.0.0.0", "-::"]
    assert addresses.of_broker("10.1.2.3") == ["127.0.0.1", "10.1.2.3"]
    assert addresses.of_broker("fd00::7") == ["127.0.0.1", "fd00::7"]


def test_an_ipv6_address_is_written_as_a_url_needs_it():
    assert (addresses.shown("fd00::7"), addresses.shown("10.1.2.3")) == ("[fd00::7]", "10.1.2.3")
    assert addresses.shown("0.0.0.0") not in addresses.ANY


# --- in a network of its own ------------------------------------------------------------------------------------------

RARER = pytest.mark.thorough("more addresses to listen on: `make test` has one of each kind")
ALONE = ["unshare", "--user", "--map-root-user", "--net"]
INSIDE = """
import os, subprocess, sys, time, signal
subprocess.run("ip link set lo up && ip addr add 10.9.8.7/24 dev lo && ip -6 addr add fd00::7/64 dev lo nodad", shell=True)
import redis
from runs.hosting import addresses, setup
host, port, folder = sys.argv[1], 8123, sys.argv[2]
web = addresses.listening(host, port)
broker = [sys.executable, "-m", "runs.hosting.embedded_broker", folder, "7654", *addresses.of_broker(host)]
server = subprocess.Popen(broker, env=os.environ | {"BROKER_PASSWORD": "secret"})
pages = subprocess.Popen(
    [sys.executable, "-m", "runs.hosting.web", *(str(s.fileno()) for s in web)], pass_fds=[s.fileno() for s in web]
)
try:
    deadline = time.monotonic() + 30
    def wait(check):
        while not check():
            assert time.monotonic() < deadline, check
            time.sleep(0.05)
    def broker_at(address):
        return setup.is_ours(f"redis://:secret@{address}:7654/0")
    wait(lambda: addresses.page_answers(addresses.own(host), port))
    wait(lambda: broker_at("127.0.0.1"))
    others = {"10.9.8.7": ["10.9.8.7"], "0.0.0.0": ["10.9.8.7"], "::": ["10.9.8.7", "[fd00::7]"], "fd00::7": ["[fd00::7]"]}
    reached = [a for a in ("10.9.8.7", "[fd00::7]") if broker_at(a) and addresses.page_answers(a.strip("[]"), port)]
    assert reached == others.get(host, []), reached
    print("all reached", flush=True)
finally:
    for process in (server, pages):
        process.terminate()
        process.wait(10)
"""


def why_not_alone():
    if not (shutil.which("unshare") and shutil.which("ip")):
        return "no `unshare` or no `ip` on the PATH: apt-get install util-linux iproute2"
    done = subprocess.run([*ALONE, "ip", "link", "set", "lo", "up"], capture_output=True, text=True)
    return f"this user may not make a network namespace: {done.stderr.strip()}" if done.returncode else ""


@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    "host", ["10.9.8.7", "0.0.0.0", "fd00::7", *(pytest.param(host, marks=RARER) for host in ("127.0.0.1", "::"))]
)
def test_a_site_on_any_address_answers_there_and_its_own_processes_reach_the_broker(tmp_path, host):
    if why := why_not_alone():
        pytest.skip(why)
    env = os.environ | {"PYTHONPATH": str(ROOT), "BENCHSITE_VAR": str(tmp_path)}
    done = subprocess.run(
        [*ALONE, sys.executable, "-c", INSIDE, host, str(tmp_path)], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert "all reached" in done.stdout, done.stdout[-2000:] + done.stderr[-3000:]


UP = """
import os, signal, sqlite3, subprocess, sys, time
from contextlib import closing
subprocess.run("ip link set lo up && ip addr add 10.9.8.7/24 dev lo", shell=True)
from runs.hosting import addresses
var = sys.argv[1]
up = subprocess.Popen([sys.executable, "manage.py", "up", "--no-first-run"])
def seen():
    with closing(sqlite3.connect(f"file:{var}/db.sqlite3?mode=ro", uri=True)) as db:
        return db.execute("SELECT count(*) FROM runs_gpu WHERE seen_at IS NOT NULL").fetchone()[0]
try:
    deadline = time.monotonic() + 90
    while not (addresses.page_answers("10.9.8.7", 8000) and seen()):
        assert up.poll() is None and time.monotonic() < deadline
        time.sleep(0.2)
    print("the agent is heard", flush=True)
finally:
    up.send_signal(signal.SIGTERM)
    up.wait(30)
"""


@pytest.mark.thorough("a whole site on an address of its own: `make test` starts its broker and its web server there")
@pytest.mark.timeout(150)
def test_a_whole_site_works_on_an_address_that_is_not_loopback(tmp_path):
    if why := why_not_alone():
        pytest.skip(why)
    inherited = {k: v for k, v in os.environ.items() if k not in ("SECRET_KEY", "DATABASE_URL", "REDIS_URL")}
    own = {"PYTHONPATH": str(ROOT), "BENCHSITE_VAR": str(tmp_path), "BENCHSITE_ENV": str(tmp_path / "env")}
    env = inherited | own | {"LISTEN": "10.9.8.7", "PORT": "8000", "TMPDIR": str(tmp_path)}
    command = [*ALONE, sys.executable, "-c", UP, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert "the agent is heard" in done.stdout, done.stdout[-2000:] + done.stderr[-3000:]
    assert "BROKER='redis://" in done.stdout and "@10.9.8.7:" in done.stdout, "what another host needs"

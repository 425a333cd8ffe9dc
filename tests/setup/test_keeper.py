"""What the keeper starts ends with it, whatever ends it; `make down` ends what is left, and nothing else."""

import io
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernels.host import processes
from runs.hosting import keeper
from runs.hosting.down import down

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(60)
KEEPER = """
import os, sys
from pathlib import Path
from runs.hosting.keeper import Keeper, Part
var = Path(sys.argv[1])
DEAF = f"trap '' TERM; touch {var}/deaf; while :; do sleep 1; done"
part = lambda code: Part(["sh", "-c", code])
sys.exit(Keeper({
    "plain": part(f"echo begun; touch {var}/begun-$$; exec sleep 300"),
    "family": part(f"{sys.executable} -c 'from kernels.host.processes import become; become()' $$ sleep 300 & wait"),
    "ends": part("sleep 0.3; exit 3"),
    "last": Part(["sh", "-c", "exec sleep 300"], last=True),
    "perhaps deaf": part(DEAF if len(sys.argv) > 2 else "exec sleep 300"),
}, dict(os.environ), var).run())
"""


def wait_until(check, what, within=15):
    deadline = time.monotonic() + within
    while not (found := check()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return found


def hear_hangups():
    """These tests may themselves run under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Kept:
    """A keeper, in a process of its own."""

    def __init__(self, var, *more, inside=()):
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [*inside, sys.executable, "-c", KEEPER, str(var), *more],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=hear_hangups,
        )
        wait_until(lambda: len(self.below()) >= 6, "the parts run")
        self.known = [processes.identify(pid) for pid in self.below()]

    def below(self):
        return [pid for pid in processes.descendants(self.process.pid) if processes.identify(pid)]

    def left(self):
        return [one.pid for one in self.known if one and processes.is_alive(one)]


@pytest.fixture
def kept(tmp_path):
    found = []

    def start(*more, **options):
        found.append(Kept(tmp_path, *more, **options))
        return found[-1]

    yield start
    for one in found:
        processes.end([p.pid for p in one.known if p and processes.is_alive(p)])
        one.process.kill()
        one.process.communicate()


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_nothing_outlives_a_keeper(kept, number):
    one = kept()
    one.process.send_signal(getattr(signal, number))
    wait_until(lambda: not one.left(), f"all has ended after {number}")
    assert one.process.wait(10) == (-9 if number == "SIGKILL" else 0)


def test_a_keeper_ends_with_its_terminal_though_the_signal_goes_to_another(tmp_path):
    """The kernel sends SIGHUP to the leader of the session alone, which is make where nobody typed the command."""
    pid, terminal = pty.fork()
    if pid == 0:
        if os.fork():
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.wait()
            os._exit(0)
        hear_hangups()
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        os.execve(sys.executable, [sys.executable, "-c", KEEPER, str(tmp_path)], env)
    below = []
    try:
        wait_until(lambda: len(processes.descendants(pid)) >= 6, "the parts run")
        wait_until(lambda: len(list(tmp_path.glob("begun-*"))) == 1, "they have begun")
        below = [one for p in processes.descendants(pid) if (one := processes.identify(p))]
        os.close(terminal)
        wait_until(lambda: not any(map(processes.is_alive, below)), "all has ended")
    finally:
        processes.end([*(one.pid for one in below if processes.is_alive(one)), pid])
        os.waitpid(pid, 0)


def test_a_part_that_does_not_listen_is_killed_and_the_second_ctrl_c_waits_for_nobody(kept, tmp_path):
    one = kept("deaf")
    wait_until((tmp_path / "deaf").exists, "it does not listen")
    one.process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert one.process.poll() is None
    one.process.send_signal(signal.SIGINT)
    wait_until(lambda: not one.left(), "all has ended", within=4)


def test_nohup_is_respected(kept):
    one = kept(inside=["nohup"])
    one.process.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    assert one.process.poll() is None
    assert one.left()


def test_what_ends_starts_again_and_its_output_is_shown(kept, tmp_path):
    one = kept()
    wait_until(lambda: len(list(tmp_path.glob("begun-*"))) == 1, "it has begun")
    os.kill(parts_of(tmp_path)["plain"][0], signal.SIGKILL)
    wait_until(lambda: len(list(tmp_path.glob("begun-*"))) == 2, "it has started again")
    one.process.send_signal(signal.SIGTERM)
    said = one.process.communicate(timeout=20)[0]
    assert said.count("| begun") == 2
    assert "killed by SIGKILL; starting again" in said
    assert "ended with status 3; starting again" in said
    assert not list((tmp_path / "keepers").glob("*.json"))


def test_only_a_part_that_cannot_start_waits_longer_each_time(tmp_path, monkeypatch):
    monkeypatch.setattr(keeper, "STEADY_S", 0.5)
    monkeypatch.setattr(keeper, "AGAIN_FIRST_S", 0.1)
    said = io.StringIO()
    parts = {"fails": keeper.Part(["false"]), "works": keeper.Part(["sleep", "0.8"])}
    one = keeper.Keeper(parts, dict(os.environ), tmp_path, said)
    try:
        wait_until(lambda: one._step() or said.getvalue().count("works | ended") == 3, "it has ended three times")
    finally:
        one._end()
    pauses = {name: re.findall(rf"{name} \| ended .* again in (\S+) s", said.getvalue()) for name in parts}
    assert pauses["works"] == ["0.1"] * 3
    assert pauses["fails"][:4] == ["0.1", "0.2", "0.4", "0.8"]


def parts_of(var):
    (file,) = (var / "keepers").glob("*.json")
    return json.loads(file.read_text())["parts"]


# --- make down --------------------------------------------------------------------------------------------------------


def test_down_ends_a_site_in_order(kept, tmp_path):
    one = kept()
    assert down(tmp_path) == [f"the site of process {one.process.pid}"]
    assert one.process.wait(5) == 0
    assert not one.left()
    assert down(tmp_path) == []


def test_down_ends_what_a_killed_keeper_left(tmp_path):
    """As if the kernel had not killed it: a part that has left its parent."""
    left = subprocess.Popen(["sh", "-c", "sleep 300 & sleep 300"], start_new_session=True)
    wait_until(lambda: processes.descendants(left.pid), "it has begun")
    family = [processes.identify(pid) for pid in [left.pid, *processes.descendants(left.pid)]]
    note(tmp_path, parts={"web": processes.identify(left.pid)})
    assert down(tmp_path) == [f"web (process group {left.pid})"]
    left.wait(5)
    wait_until(lambda: not any(map(processes.is_alive, family)), "all has ended")


@pytest.mark.parametrize("case", ["another process has its number", "the host has started again", "another checkout"])
def test_down_ends_nothing_that_is_not_of_this_checkout(tmp_path, case):
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as other:
        mine = processes.identify(other.pid)
        if case == "another process has its number":
            note(tmp_path, parts={"web": mine._replace(started=mine.started - 5)})
        elif case == "the host has started again":
            note(tmp_path, parts={"web": mine}, boot="earlier")
        else:
            note(tmp_path / "another", parts={"web": mine})
        assert down(tmp_path) == []
        assert processes.is_alive(mine)
        other.kill()


def note(var, parts, boot=None):
    """What a keeper that has ended wrote down."""
    (var / "keepers").mkdir(parents=True)
    about = {"boot": boot or processes.boot(), "keeper": [999_999_999, 1], "parts": parts}
    (var / "keepers" / "1.json").write_text(json.dumps(about))


# --- a whole site -----------------------------------------------------------------------------------------------------


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@pytest.mark.pipeline
@pytest.mark.timeout(300)
def test_make_up_dies_with_make_and_leaves_the_port_free(tmp_path):
    """make itself is killed: nothing can tell it to end its site."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    makefile = tmp_path / "Makefile"
    makefile.write_text(f"up:\n\t@exec {sys.executable} manage.py up --with-make --no-first-run\n")
    env = {k: v for k, v in os.environ.items() if k not in ("SECRET_KEY", "DATABASE_URL", "REDIS_URL")} | {
        "BENCHSITE_VAR": str(tmp_path / "var"),
        "BENCHSITE_ENV": str(tmp_path / "env"),
        "TMPDIR": str(tmp_path),
        "PORT": str(port),
    }
    log = tmp_path / "up.log"
    with open(log, "wb") as out:
        make = subprocess.Popen(["make", "-f", str(makefile), "up"], cwd=ROOT, env=env, stdout=out, stderr=out)
    below = []
    try:
        wait_until(lambda: "Benchsite is at" in log.read_text() or make.poll() is not None, "the site answers", 180)
        assert make.poll() is None, log.read_text()
        below = [one for pid in processes.descendants(make.pid) if (one := processes.identify(pid))]
        assert len(below) >= 10
        modes = {
            p.name: oct(p.stat().st_mode & 0o077) for p in (tmp_path / "var").rglob("*") if "static" not in p.parts
        }
        assert set(modes.values()) == {"0o0"}, "others can read nothing"
        make.kill()
        make.wait()
        wait_until(lambda: not any(map(processes.is_alive, below)), "all has ended", 25)
        wait_until(lambda: is_free(port), "the port is free", 5)  # the last threads of what ended may still end
        assert down(tmp_path / "var") == []
    finally:
        make.kill()
        processes.end([one.pid for one in below if processes.is_alive(one)])


LEAVES = """
import os, sys
from pathlib import Path
from runs.hosting.keeper import Keeper, Part
kills = "import os, tempfile; open(tempfile.mkdtemp() + '/left', 'w'); os.kill(os.getpid(), 9)"
stays = "import sys, tempfile, time; open(sys.argv[1] + '/here', 'w').write(tempfile.mkdtemp()); time.sleep(300)"
parts = {"kills": Part([sys.executable, "-c", kills]), "stays": Part([sys.executable, "-c", stays, sys.argv[1]])}
sys.exit(Keeper(parts, dict(os.environ), Path(sys.argv[1])).run())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_temporary_files_of_a_part_go_with_it(tmp_path, number):
    """Those of a keeper that was killed go when the next process of this host makes some."""
    shared = tmp_path / "shared"
    shared.mkdir()
    env = os.environ | {"PYTHONPATH": str(ROOT), "BENCHSITE_TMP": str(shared)}
    process = subprocess.Popen(
        [sys.executable, "-c", LEAVES, str(tmp_path)], env=env, stdout=subprocess.PIPE, text=True
    )
    try:
        seen = iter(process.stdout.readline, "")
        assert any("killed by SIGKILL" in line for line in seen)
        assert any("killed by SIGKILL" in line for line in seen)
        here = wait_until(lambda: (tmp_path / "here").exists() and (tmp_path / "here").read_text(), "a part writes")
        assert Path(here).parent.parent == shared
        assert not list(shared.glob("*/*/left"))
    finally:
        process.send_signal(number)
        process.wait(20)
    if number == signal.SIGKILL:
        wait_until(lambda: not processes.with_environment(f"TMPDIR={Path(here).parent}"), "the part has ended")
        sweep = "from kernels.host.scratch import Scratch; Scratch().remove()"
        subprocess.run([sys.executable, "-c", sweep], env=env, check=True)
    assert list(shared.iterdir()) == []

"""A measuring process leaves nothing behind: neither its folder nor what was started in it, even if its owner is killed."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from kernels.host import processes
from kernels.host.scratch import Scratch

pytestmark = pytest.mark.timeout(30)
DAEMON = "import os, time; os.setsid(); os.fork() and os._exit(0); os.setsid(); print(os.getpid(), flush=True); time.sleep(60)"


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def start_daemon(folder):
    """The number of a process that has left its session, its group and its parent."""
    env = {"TMPDIR": folder, "PATH": os.environ["PATH"]}
    with subprocess.Popen([sys.executable, "-c", DAEMON], env=env, stdout=subprocess.PIPE, text=True) as first:
        return processes.identify(int(first.stdout.readline()))


def wait_until(check):
    deadline = time.monotonic() + 10
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_daemon_ends_with_the_folder_it_was_started_in():
    mine, others = Scratch(), Scratch()
    daemon, other = start_daemon(mine.path), start_daemon(others.path)
    mine.remove()
    wait_until(lambda: not processes.is_alive(daemon))
    assert processes.is_alive(other)
    assert not Path(mine.path).exists()
    others.remove()
    wait_until(lambda: not processes.is_alive(other))


def test_what_a_killed_owner_left_is_removed_by_the_next(temporary):
    code = "from kernels.host.scratch import Scratch; import time; print(Scratch().path, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=os.environ | {
        "TMPDIR": str(temporary), "PYTHONPATH": str(Path(__file__).parents[2])
    }) as owner:  # fmt: skip
        folder = owner.stdout.readline().strip()
        daemon = start_daemon(folder)
        living = Scratch()
        assert Path(folder).exists(), "its owner lives"
        owner.kill()
    stranger = temporary / "benchsite-of-something-else"
    stranger.mkdir()
    next_one = Scratch()
    assert not Path(folder).exists()
    wait_until(lambda: not processes.is_alive(daemon))
    assert stranger.exists() and Path(living.path).exists()
    living.remove()
    next_one.remove()


def test_what_a_killed_agent_tried_the_airlock_in_is_removed_by_the_next(temporary):
    code = (
        "from kernels.host import containment; import time\n"
        "containment._tried = lambda scratch: (print(scratch, flush=True), time.sleep(60))\n"
        "containment.probe()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=os.environ | {
        "TMPDIR": str(temporary), "PYTHONPATH": str(Path(__file__).parents[2])
    }) as agent:  # fmt: skip
        folder = agent.stdout.readline().strip()
        assert Path(folder).exists()
        agent.kill()
    Scratch().remove()
    assert not Path(folder).exists()


def test_on_a_full_disk_no_folder_is_left(temporary, monkeypatch):
    def full(path, *more):
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(OSError, match="No space left"):
        Scratch()
    assert not list(temporary.iterdir())


def test_descendants_are_found_the_slow_way_too(monkeypatch):
    with subprocess.Popen(["sh", "-c", "sleep 60 & wait"]) as shell:
        wait_until(lambda: processes.descendants(shell.pid))
        fast = processes.descendants(shell.pid)
        monkeypatch.setattr(os.path, "exists", lambda path: False)
        assert processes.descendants(shell.pid) == fast
        processes.end([*fast, shell.pid])


def test_a_number_that_is_used_again_is_another_process():
    with subprocess.Popen(["sleep", "60"]) as sleep:
        found = processes.identify(sleep.pid)
        assert processes.is_alive(found)
        assert not processes.is_alive(found._replace(started=found.started - 1))
        sleep.kill()
    assert processes.identify(sleep.pid) is None

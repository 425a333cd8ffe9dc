"""A measuring process that a template forks is what one is that was started, and both end as they should."""

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

import pytest

from kernels.child.template import _rename_folder
from kernels.contract.arm_result import Status
from kernels.contract.events import Measured
from kernels.host import processes, scratch
from kernels.host.device import find_device
from kernels.parent import template
from kernels.parent.child_process import Child, ChildDied, CommandFailed
from kernels.parent.isolated_session import IsolatedSession
from kernels.parent.session import ChildSession
from kernels.parent.supervisor import Supervisor
from kernels.workload import Ceilings, Config, RunSpec, Workload

ROOT = Path(__file__).resolve().parents[2]
CPU = find_device("cpu")
CEILINGS = Ceilings(copy_gb_per_s=100, read_gb_per_s=100)
SIZES = {"rows": 8, "cols": 16, "dtype": "float32"}
WORKLOAD = Workload(operation="softmax", dtype="float32", sizes={"rows": 8, "cols": 16})
QUICK = {"name": "fixed", "warmup": 0, "iters": 2, "verify_seeds": 1}
ACTS = '''import os, random, signal, sys, tempfile, time
from kernels.catalog import kernel

@kernel("softmax", backend="pytorch")
def acts(x):
    """Does what its file of orders says, once."""
    orders = os.environ["KERNEL_PATH"] + "/orders"
    if os.path.exists(orders):
        with open(orders) as file:
            code = file.read()
        if os.access(os.path.dirname(orders), os.W_OK):
            os.unlink(orders)
        exec(code)
    return x.softmax(-1)
'''


def wait_until(check, within=10.0):
    deadline = time.monotonic() + within
    while not check() and time.monotonic() < deadline:
        time.sleep(0.02)
    return check()


@pytest.fixture
def child():
    """Makes measuring processes, and ends them."""
    made = []

    def make(**how):
        made.append(Child(CPU, **how))
        made[-1].wait_ready()
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def orders(monkeypatch, tmp_path):
    """Lets the kernel `acts` execute code in its first call."""
    (tmp_path / "softmax").mkdir()
    (tmp_path / "softmax" / "acts.py").write_text(ACTS)
    monkeypatch.setenv("KERNEL_PATH", str(tmp_path))
    return (tmp_path / "orders").write_text


def loaded(child):
    child.call("open", workload={"operation": "softmax", "sizes": {"rows": 8, "cols": 16}, "dtype": "float32"})
    child.call("load", arm="acts")


def called(child):
    loaded(child)
    child.call("compile", arm="acts", seed=1)


def seen(pid):
    """What the operating system shows of a process, without what is another in each."""
    proc = Path(f"/proc/{pid}")
    status = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines() if ":\t" in line)
    stat = (proc / "stat").read_text().rpartition(")")[2].split()
    return {
        "files": sorted(os.readlink(file).partition(":[")[0] for file in (proc / "fd").iterdir()),
        "limits": (proc / "limits").read_text(),
        "first to end": (proc / "oom_score_adj").read_text(),
        "threads": len(list((proc / "task").iterdir())),
        "leads": (int(stat[2]) == pid, int(stat[3]) == pid),
        "signals": {name: status[name] for name in ("SigBlk", "SigIgn", "SigCgt")},
        "rights": {name: status[name] for name in ("Uid", "CapEff", "NoNewPrivs", "Seccomp")},
        "can be read": proc.stat().st_uid,
        "environment": sorted((proc / "environ").read_bytes().split(b"\0")),
        "in": os.readlink(proc / "cwd"),
    }


def test_the_operating_system_shows_no_difference_to_a_process_that_was_started(child, monkeypatch):
    monkeypatch.delenv("KERNEL_PATH", raising=False)  # of the environment that was, the template has none of kernels
    forked, fresh = child(), child(fresh=True)
    assert (forked.is_forked, fresh.is_forked) == (True, False)
    shown = json.dumps(seen(forked.process.pid), default=str).replace(forked.scratch, "its folder")
    assert shown == json.dumps(seen(fresh.process.pid), default=str).replace(fresh.scratch, "its folder")


STATE = """
import json, signal, sys, warnings
import torch
with open({path!r}, "w") as file:
    json.dump({{
        "environment": dict(os.environ), "temporary": tempfile.gettempdir(), "home": os.path.expanduser("~"), "path": sys.path,
        "arguments": len(sys.argv), "handlers": [str(signal.getsignal(n)) for n in sorted(signal.valid_signals())],
        "filters": len(warnings.filters), "threads": torch.get_num_threads(),
        "modules": sorted(name for name in sys.modules if not name.startswith("benchsite_kernel")), "umask": os.umask(0o22),
    }}, file)
"""


@pytest.fixture
def isolated():
    """Makes the processes of an isolated measurement: (the trusted one, a cell with a file of input sets)."""
    made = []

    def make(**how):
        session = IsolatedSession(CPU, WORKLOAD, lambda: False, 0.0, 1, **how)
        made.append(session)
        return session.trusted, session.start("eager").cell

    yield make
    for one in made:
        one.close()


def test_isolated_processes_show_no_difference_either(isolated, monkeypatch):
    monkeypatch.delenv("KERNEL_PATH", raising=False)
    forked, started = isolated(), isolated(independent=True)
    assert [one.is_forked for one in (*forked, *started)] == [True, True, False, False]
    for one, other in zip(forked, started, strict=True):
        pids = [getattr(it, "facts", it.process).pid for it in (one, other)]
        shown = [json.dumps(seen(pid), default=str) for pid in pids]
        for number, it in enumerate((one, other)):
            shown[number] = (
                shown[number].replace(it.scratch, "its folder").replace(str(getattr(it, "uid", "")), "its user")
            )
        assert shown[0] == shown[1]
    cells = [pair[1].facts.model_dump(exclude={"pid"}) for pair in (forked, started)]
    assert cells[0] == cells[1]


def test_a_kernel_finds_no_difference_either(child, orders, tmp_path):
    found = []
    for how in ({}, {"fresh": True}):
        one = child(**how)
        orders(STATE.format(path=str(tmp_path / "state")))
        called(one)
        found.append(json.loads((tmp_path / "state").read_text().replace(one.scratch, "its folder")))
    assert found[0] == found[1]


def test_two_forked_processes_have_other_random_numbers(child, orders, tmp_path):
    drawn = tmp_path / "drawn"
    for _ in range(2):
        orders(f"import numpy.random\nprint(random.random(), numpy.random.rand(), file=open({str(drawn)!r}, 'a'))")
        called(child())
    assert len(set(drawn.read_text().split())) == 4


def test_each_has_the_kernels_of_its_own_run(child, orders, monkeypatch):
    loaded(child())
    used = template.templates.now
    monkeypatch.delenv("KERNEL_PATH")
    with pytest.raises(CommandFailed, match="acts"):
        loaded(child())
    assert template.templates.now is used


@pytest.mark.parametrize(
    ("order", "why"),
    [("os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV"), ("os._exit(7)", "exited with status 7")],
    ids=["signal", "status"],
)
def test_how_it_ended_is_told(child, orders, order, why):
    orders(order)
    one = child()
    with pytest.raises(ChildDied, match=why):
        called(one)


def test_a_hang_is_ended_and_its_log_says_where(child, orders):
    orders("time.sleep(1000)")
    one = child()
    loaded(one)
    with pytest.raises(Exception, match="no answer within 1 s"):
        one.call("compile", limit_s=1, arm="acts", seed=1)
    assert "Fatal Python error: Aborted" in one.log.tail() and not one.alive


@pytest.mark.parametrize(
    "leave",
    ["os.fork() or (os.setsid(), time.sleep(1000))", "os.spawnlp(os.P_NOWAIT, 'setsid', 'setsid', 'sleep', '1000')"],
    ids=["forked", "started"],
)
def test_what_a_kernel_leaves_is_found_by_its_folder_when_its_process_is_gone(orders, leave):
    orders(leave)
    one = Child(CPU)
    called(one)
    mark = f"TMPDIR={one.scratch}"
    assert wait_until(lambda: len(processes.with_environment(mark)) == 2)
    os.kill(one.process.pid, signal.SIGKILL)
    assert wait_until(lambda: not one.alive)
    assert len(processes.with_environment(mark)) == 1
    scratch.end_all_of(one.scratch)
    assert processes.with_environment(mark) == []
    one.close()


# --- the template -----------------------------------------------------------------------------------------------------


LOOKS = """
import json, os, socket, time
from kernels.child import template
template.import_all()
if not os.geteuid():
    os.setgroups([])
    os.setresgid(1000, 1000, 1000)
    os.setresuid(1000, 1000, 1000)
template._be_readable(True)
mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
ready, its_output = os.pipe()
os.environ["TMPDIR"] = {folder!r}
if not (pid := os.fork()):
    mine.close()
    template.become(theirs.detach())
    print("ready", flush=True)
    time.sleep(60)
said, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
request = {{"environment": {{"TMPDIR": {folder!r}}}, "module": "", "arguments": []}}
socket.send_fds(mine, [json.dumps(request).encode()], [os.dup(2), os.dup(2), its_output, its.fileno()])
os.close(its_output)
forked = int(said.recv(64))
os.read(ready, 1)
for one in (forked, pid):
    try:
        print(bool(os.listdir(f"/proc/{{one}}/fd")))
    except PermissionError as error:
        print(type(error).__name__)
"""


def test_kernels_of_the_same_user_cannot_reach_into_it():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        line = [sys.executable, "-c", LOOKS.format(folder=folder)]
        done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["True", "PermissionError"], done.stderr


def test_one_that_is_killed_takes_its_processes_along_and_is_replaced(child):
    one = child()
    before = template.templates.now.process.pid
    os.kill(before, signal.SIGKILL)
    assert wait_until(lambda: not one.alive)
    with pytest.raises(ChildDied, match="killed by SIGKILL"):
        one.call("open", workload={})
    assert child().alive and template.templates.now.process.pid != before


def test_a_run_goes_on_when_it_is_killed_where_no_kernel_runs(monkeypatch):
    call, killed = Child.call, []

    def called(child, do, *arguments, **more):
        if do == "open" and not killed:
            killed.append(child.process.pid)
            template.templates.now.process.kill()
            assert wait_until(lambda: not child.alive)
        return call(child, do, *arguments, **more)

    monkeypatch.setattr(Child, "call", called)
    assert {arm.status for arm in results(["eager"])} == {Status.OK} and killed


def results(kernels, **protocol):
    config = Config(name="t", operation="softmax", kernels=kernels, workloads=[SIZES], protocol=QUICK | protocol)
    events = []
    Supervisor(RunSpec.of(config, CPU.uuid, ceilings=CEILINGS), CPU, events.append).run()
    (found,) = [event for event in events if isinstance(event, Measured)]
    return found.results


def test_one_that_hangs_while_it_starts_holds_up_one_start_alone(monkeypatch, child):
    template.templates.end()
    one = Child(CPU)
    os.kill(template.templates.now.process.pid, signal.SIGSTOP)
    begin = time.monotonic()
    one.kill()
    assert time.monotonic() - begin < 5, "a cancel does not wait for it"
    assert not one.alive
    one.close()
    two = Child(CPU)
    monkeypatch.setattr("kernels.parent.child_process.READY_LIMIT_S", 0.5)
    with pytest.raises(Exception, match="no answer within"):
        two.wait_ready()
    two.close()
    monkeypatch.undo()
    assert child().alive


def test_an_older_one_ends_after_its_last_process(child, monkeypatch):
    one = child()
    older = template.templates.now
    monkeypatch.setattr(template, "SERVES_S", 0.0)
    two = child()
    assert template.templates.now is not older
    assert one.alive and two.alive and older.process.poll() is None
    one.close()
    assert wait_until(lambda: older.process.poll() == 0)
    assert two.alive


ENDS = """
import os, sys, time
from kernels.host.device import find_device
from kernels.parent.child_process import Child
child = Child(find_device("cpu"))
child.wait_ready()
from kernels.parent.template import templates
print(child.process.pid, templates.now.process.pid, child.scratch, templates.now.environment["TMPDIR"], flush=True)
{then}
"""


@pytest.mark.parametrize(
    ("then", "number"), [("time.sleep(1000)", signal.SIGKILL), ("child.close()", None)], ids=["killed", "ended"]
)
def test_both_end_with_their_parent(then, number):
    parent = subprocess.Popen(
        [sys.executable, "-c", ENDS.format(then=then)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    *pids, of_child, of_template = parent.stdout.readline().split()
    if number:
        parent.send_signal(number)
    parent.wait(20)
    parent.stdout.close()
    assert wait_until(lambda: not any(processes.is_alive_number(int(pid)) for pid in pids))
    scratch.remove_abandoned()
    assert not os.path.exists(of_child) and not os.path.exists(of_template)


# --- which processes are forked -----------------------------------------------------------------------------------------


def test_kernels_with_variables_and_independent_processes_are_started(child, monkeypatch):
    assert not child(environment={"MY_SWITCH": "1"}).is_forked
    assert not child(fresh=True).is_forked
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert child().ready["threads"] == 2, "a template has the variables of its parent"


def test_a_thread_that_may_end_starts_its_own(child):
    made = []
    thread = threading.Thread(target=lambda: made.append(child()))
    thread.start()
    thread.join(60)
    assert not made[0].is_forked


def test_each_of_several_processes_is_started_and_one_alone_is_forked(monkeypatch):
    start, forked = Child._start, []
    monkeypatch.setattr(Child, "_start", lambda child: (start(child), forked.append(child.is_forked)))
    results(["eager"], name="paired", processes=2, min_rounds=8, max_rounds=8, warmup_s=0.01)
    assert forked == [False, False, True], "two measure, one cross-checks"
    forked.clear()
    results(["eager"])
    assert forked == [True, True]


@pytest.mark.thorough("isolated, half a minute: `make test` has it in the shared process")
def test_of_several_isolated_processes_each_is_started(monkeypatch):
    start, forked = Child._start, []
    monkeypatch.setattr(Child, "_start", lambda child: (start(child), forked.append(child.is_forked)))
    results(["eager"], name="paired", isolated=True, processes=2, min_rounds=8, max_rounds=8, warmup_s=0.01)
    assert forked and not any(forked)
    forked.clear()
    results(["eager"], name="paired", isolated=True, min_rounds=8, max_rounds=8, warmup_s=0.01)
    assert forked and all(forked)


def test_no_isolated_process_is_forked_from_what_a_kernel_could_have_changed(child, isolated):
    """As root, a kernel in a shared process can change the template."""
    isolated()
    used = template.templates.now
    one = child()
    isolated()
    assert template.templates.now is used
    one.call("open", workload=WORKLOAD.model_dump())
    one.call("load", arm="eager")
    isolated()
    assert template.templates.now is not used
    now = template.templates.now
    isolated()
    child()
    assert template.templates.now is now


SEARCHES = """
import contextlib, re
found = 0
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb") as memory:
    for line in maps:
        where, rights, *_ = line.split()
        begin, end = (int(part, 16) for part in where.split("-"))
        if rights.startswith("rw"):
            memory.seek(begin)
            with contextlib.suppress(OSError):
                found += len(re.findall({prefix!r}.encode() + b"[0-9a-f]{{16}}", memory.read(end - begin)))
raise RuntimeError(f"found {{found > 0}}")
"""


@pytest.mark.parametrize("knows", [False, True])
def test_what_the_parent_knows_is_not_in_the_memory_of_a_cell(knows, orders, tmp_path, monkeypatch):
    """A fork has the memory of the process that forked it: that is the template, not the agent."""
    secret = secrets.token_hex(16)
    monkeypatch.setenv("CELERY_BROKER_URL", f"redis://:{secret}@127.0.0.1")
    (tmp_path / "orders").touch(0o666)
    orders((f"kept = {secret!r}\n" if knows else "") + SEARCHES.format(prefix=secret[:16]))
    tmp_path.chmod(0o755)
    session = IsolatedSession(CPU, WORKLOAD, lambda: False, 0.0, 1)
    try:
        session.start("acts")
        assert session.slots["acts"].cell.is_forked
        with pytest.raises(CommandFailed, match=f"found {knows}"):
            session.verify("acts", 60.0, 7)
    finally:
        session.close()


def test_a_long_request_arrives_whole(isolated, monkeypatch):
    """The folders of PATH are in it twice: in the environment, and among the files that a cell may read."""
    folders = [f"/nowhere/{number:05}" for number in range(70_000 // 15)]
    monkeypatch.setenv("PATH", ":".join([os.environ["PATH"], *folders]))
    trusted, cell = isolated()
    assert trusted.is_forked and cell.is_forked and cell.alive


def test_a_forked_child_that_waits_is_not_one_of_several(monkeypatch):
    warm = Child(CPU)
    assert warm.is_forked
    session = ChildSession(CPU, lambda: False, warm, independent=True)
    assert not session.child.is_forked and not warm.alive
    session.close()


def test_a_child_that_was_forked_just_now_can_be_killed(child):
    """It does not lead a process group yet."""
    child()
    for _ in range(10):
        made = Child(CPU)
        assert made.process.pid  # waits until it has been forked
        made.kill()
        assert not made.alive
        made.close()


def test_where_scratch_lies_elsewhere_another_template_serves(child, monkeypatch, tmp_path):
    child()
    used = template.templates.now
    monkeypatch.setenv("BENCHSITE_TMP", str(tmp_path))
    assert child().alive and template.templates.now is not used


def test_a_folder_whose_name_has_another_length_is_refused():
    with pytest.raises(ValueError, match="different lengths"):
        _rename_folder("/tmp/a", "/tmp/ab")

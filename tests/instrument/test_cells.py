"""Isolated measurements: the airlock, cells, and what the parent makes of their answers. Attacks: tests/zoo."""

import gc
import itertools
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import pytest
import torch

from kernels.analysis.isolation import Host, host_half_width, is_slower_beside, why_too_short, with_host
from kernels.catalog import Unsupported
from kernels.contract.arm_result import Ratio, Status, Verdict
from kernels.contract.events import Measured
from kernels.contract.isolation import Opened, Output
from kernels.contract.replies import Fault
from kernels.host import processes
from kernels.host.airlock import Facts, Spec
from kernels.host.device import find_device
from kernels.host.view import closed_folders
from kernels.isolated.memory import Layout
from kernels.parent import cell_process, idleness, isolated_session
from kernels.parent.arm import Arm
from kernels.parent.batches import estimated, lengths
from kernels.parent.capturing import captured_at_once
from kernels.parent.cell_process import Cell, Suspect, TrustedEnded
from kernels.parent.child_process import Cancelled, ChildDied, ChildTimedOut, CommandFailed
from kernels.parent.drive import AA
from kernels.parent.idleness import Idleness
from kernels.parent.isolated_run import IsolatedRun
from kernels.parent.isolated_session import IsolatedSession
from kernels.parent.reading import Reading
from kernels.parent.results import Limits, arm_results
from kernels.parent.slot import overlap
from kernels.protocol import EFFORTS, Protocol
from kernels.workload import Workload

ROOT = Path(__file__).parents[2]
SMALL = Workload(operation="layer_norm", dtype="float32", sizes={"rows": 64, "cols": 256})
LAYOUT = [Output(address=0, shape=[2, 4], strides=[4, 1], dtype="float32", device="cpu")]


@pytest.fixture(scope="module")
def session():
    made = IsolatedSession(find_device("cpu"), SMALL, lambda: False, 1.0, cells=2)
    made.start("eager")
    yield made
    made.close()


def test_checks_use_input_sets_drawn_by_chance_and_seeds_of_64_bits(session, monkeypatch):
    """No set may be known to be of timed calls only, and no seed may be found by trying all of them."""
    cell, asked = session.slots["eager"].cell, []
    call = cell.call
    monkeypatch.setattr(cell, "call", lambda do, *a, **more: (asked.append((do, more)), call(do, *a, **more))[1])
    seeds = [session.fresh_seed() for _ in range(16)]
    for seed in seeds:
        assert session.verify("eager", 60.0, seed)[0]["frobenius"] < 1e-5
    firsts = {more["first"] for do, more in asked if do == "run"}
    assert len(firsts) > 4 and max(firsts) > 2 and max(firsts) + 2 <= session.room
    assert max(seeds) > 2**48


def test_a_batch_on_another_distribution_is_checked_and_not_timed(session):
    slot = session.slots["eager"]
    session.verify("eager", 60.0, 7)
    before = (len(slot.walls_ns), len(slot.readings))
    readings = session.batch_on("eager", 4, session.fresh_seed(), ["large", "normal"])
    assert len(readings) == 2 and all(one["frobenius"] < 1e-5 for one in readings)
    assert (len(slot.walls_ns), len(slot.readings)) == before
    assert len(session.batch_on("eager", 1, session.fresh_seed(), ["large", "normal"])) == 2


def test_a_batch_on_other_distributions_has_usual_inputs_too(session, monkeypatch):
    """A kernel that looked at the first inputs of a batch knew that all of them were unusual."""
    session.verify("eager", 60.0, 7)
    asked, call = [], session.trusted.call
    monkeypatch.setattr(
        session.trusted, "call", lambda do, *a, **more: (asked.append((do, more)), call(do, *a, **more))[1]
    )
    places = set()
    for _ in range(8):
        session.batch_on("eager", 16, session.fresh_seed(), ["large"])
    for do, more in asked:
        if do == "write":
            assert more["calls"] == 16 and list(more["odd"].values()) == ["large"]
            places |= set(more["odd"])
    assert len(places) > 2


def test_a_kernel_that_looks_at_the_first_calls_of_a_batch_is_wrong_in_the_others(monkeypatch):
    monkeypatch.setenv("KERNEL_PATH", str(Path(__file__).parents[1] / "zoo" / "judge"))
    name = "looks-at-the-first-calls"
    sizes = {"batch": 1, "heads": 2, "seq_len": 64, "head_dim": 64}
    made = IsolatedSession(
        find_device("cpu"), Workload(operation="attention", dtype="float32", sizes=sizes), lambda: False, 1.0, cells=1
    )
    try:
        made.start(name)
        assert made.verify(name, 60.0, 7, "outliers")[0]["frobenius"] < 1e-5
        errors = [made.batch_on(name, 32, made.fresh_seed(), ["outliers"])[0]["frobenius"] for _ in range(6)]
        assert max(errors) > 0.01
    finally:
        made.close()


def test_a_second_cell_makes_its_first_calls_while_the_first_one_is_checked(session):
    session.start("eager" + AA)
    session.warm("eager" + AA)
    reading, _ = session.verify("eager", 60.0, 7)
    assert reading["frobenius"] < 1e-5 and session.warmed("eager" + AA, 60.0)
    assert not session.slots["eager" + AA].layout, "its outputs have not been looked at"
    assert session.verify("eager" + AA, 60.0, 7)[0]["frobenius"] < 1e-5
    session.stop("eager" + AA)


def test_a_second_cell_whose_first_calls_fail_is_ended_and_nobody_is_to_blame(session):
    cell = session.start("eager" + AA).cell
    session.warm("eager" + AA)
    cell.told("run")  # so the next reply never comes
    cell.kill()
    assert not session.warmed("eager" + AA, 60.0) and "eager" + AA not in session.slots
    assert session.verify("eager", 60.0, 7)[0]["frobenius"] < 1e-5


def test_several_cells_are_asked_at_once_and_each_is_stopped_when_it_has_answered(session):
    """On a CPU no graph can be captured: each says so."""
    names = ["eager", "eager" + AA]
    session.start(names[1])
    cells = {name: session.slots[name].cell for name in names}
    failed = captured_at_once(cells, dict.fromkeys(names, 4), 60.0)
    assert sorted(failed) == sorted(names) and all(isinstance(error, CommandFailed) for error in failed.values())
    states = {processes._stat(pid)[0] for cell in cells.values() for pid in cell.processes()}
    assert states == {"T"}
    cells[names[1]].kill()
    failed = captured_at_once(cells, dict.fromkeys(names, 4), 60.0)
    assert isinstance(failed[names[1]], ChildDied) and isinstance(failed[names[0]], CommandFailed)
    session.stop(names[1])
    assert session.verify("eager", 60.0, 7)[0]["frobenius"] < 1e-5, "it can be asked again"


def test_an_estimate_grows_to_long_batches_and_takes_the_shortest_of_three():
    taken = []

    def batch(calls):
        taken.append(calls)
        return 250_000 + calls * 24_000 + 1_000_000 * (len(taken) == 4)

    call_ns = estimated(batch, lambda call_ns: max(1, round(10e6 / call_ns)))
    assert taken == [1, 16, 252, 252, 252] and 24_000 < call_ns < 25_100


INTO = """
import torch
from kernels.catalog import kernel

@kernel("layer_norm", backend="pytorch")
def into(x, weight, bias, *, eps, out):
    out.copy_(torch.nn.functional.layer_norm(x, weight.shape, weight, bias, eps))
"""


def test_a_kernel_that_writes_into_out_gets_a_tensor_in_a_cell_too(session, tmp_path, monkeypatch):
    (tmp_path / "layer_norm").mkdir()
    (tmp_path / "layer_norm" / "into.py").write_text(INTO)
    tmp_path.chmod(0o755)
    monkeypatch.setenv("KERNEL_PATH", str(tmp_path))
    session._end_spares()  # they have the environment from before
    session.start("into")
    reading, _ = session.verify("into", 60.0, 7, "normal", thorough=True)
    assert not reading.get("wrong_kind") and reading["frobenius"] < 1e-5


def open_files():
    """How many this process has, without those that nobody uses any more."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_cells_start_before_their_kernel_is_known_each_is_used_once_and_none_is_left():
    IsolatedSession(find_device("cpu"), SMALL, lambda: False, 1, 1).close()  # there is a template now
    descriptors = open_files()
    made = IsolatedSession(find_device("cpu"), SMALL, lambda: False, 1, 3)
    spare = [cell for cell, _ in made.spares]
    used = [made.start(name).cell for name in ("eager", "compiled")]
    assert len(spare) == 3 and set(used) < set(spare) and len(set(used)) == 2
    made.close()
    assert all(cell.process.poll() is not None for cell in spare)
    del made, spare, used
    deadline = time.monotonic() + 5
    while (left := open_files()) > descriptors and time.monotonic() < deadline:
        time.sleep(0.05)  # the thread that reads what a cell printed ends after the cell
    assert left <= descriptors


def behind_airlock(tmp_path, code, uid=None):
    """(facts, output) of a program behind the airlock."""
    read, write = os.pipe()
    tmp_path.chmod(0o755)
    if uid:
        os.chown(tmp_path, uid, uid)
    readable = [sys.executable, sys.prefix, sys.base_prefix, str(ROOT)]
    command = [sys.executable, "-c", code]
    spec = Spec(command=command, scratch=str(tmp_path), readable=readable, uid=uid, facts_fd=write)
    done = subprocess.run(
        [sys.executable, "-m", "kernels.host.airlock", spec.model_dump_json()],
        pass_fds=[write], cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    os.close(write)
    facts = os.read(read, 1 << 16)
    os.close(read)
    return Facts.model_validate_json(facts), done


def test_a_program_behind_the_airlock_writes_into_its_scratch_folder_only(tmp_path):
    if os.geteuid():
        pytest.skip("without root the airlock closes nothing")
    code = (
        "import os\nopen('mine', 'w').write('x')\nprint(os.getuid(), os.path.abspath('mine'), os.listdir('.'))\n"
        f"open('{ROOT}/kernels/theirs', 'w')"
    )
    facts, done = behind_airlock(tmp_path, code, uid=1_500_000_123)
    if not facts.read_only:
        pytest.skip("this host allows no read-only files: " + "; ".join(facts.missing))
    assert done.stdout == f"{1_500_000_123 if facts.own_user else 0} {tmp_path}/mine ['mine']\n"
    assert "Read-only file system" in done.stderr
    assert not (ROOT / "kernels" / "theirs").exists()


def test_a_program_behind_the_airlock_ends_as_it_would_without(tmp_path):
    facts, done = behind_airlock(
        tmp_path, "import os; os.kill(os.getpid(), 9)" if os.geteuid() else "raise SystemExit(3)"
    )
    assert done.returncode == (-9 if os.geteuid() else 3)
    assert facts.pid > 0


def test_folders_that_others_cannot_enter_are_found(tmp_path):
    (tmp_path / "closed" / "inner").mkdir(parents=True)
    (tmp_path / "open").mkdir()
    for folder in (*tmp_path.parents, tmp_path):
        if not folder.stat().st_mode & 1:
            folder.chmod(folder.stat().st_mode | 0o11)
    (tmp_path / "closed").chmod(0o700)
    paths = [str(tmp_path / "closed" / "inner"), str(tmp_path / "open")]
    assert closed_folders(paths) == {str(tmp_path / "closed"): [str(tmp_path / "closed" / "inner")]}


def test_a_cell_runs_only_while_the_parent_waits(session):
    reading, _ = session.verify("eager", 60, seed=1, thorough=True)
    assert reading["frobenius"] < 1e-6
    cell = session.slots["eager"].cell
    assert cell.pid in cell.processes()
    assert {processes._stat(pid)[0] for pid in cell.processes()} == {"T"}


WITHOUT_A_LEADER = """
import ctypes, os, threading, time
threading.Thread(target=lambda: [None for _ in iter(int, 1)]).start()
print(flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


def wait_until(check):
    deadline = time.monotonic() + 10
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_process_whose_first_thread_has_ended_is_stopped_when_its_others_are():
    child = subprocess.Popen([sys.executable, "-c", WITHOUT_A_LEADER], stdout=subprocess.PIPE)
    try:
        child.stdout.readline()
        wait_until(lambda: Path(f"/proc/{child.pid}/stat").read_text().split()[2] == "Z")
        assert not processes.is_stopped(child.pid)
        processes.end([child.pid], signal.SIGSTOP)
        wait_until(lambda: processes.is_stopped(child.pid))
        before = processes.cpu_ns([child.pid])
        time.sleep(0.05)
        assert processes.cpu_ns([child.pid]) == before
    finally:
        child.kill()
        child.wait()
    assert processes.is_stopped(child.pid), "there is no such process"


IN_A_CALL_OF_THE_SYSTEM = """
import os, sys, threading, time
opened = [(os.POSIX_SPAWN_OPEN, 3, sys.argv[1], os.O_RDONLY, 0)]  # waits there for a writer, and its parent for it
print(flush=True)
threading.Thread(target=lambda: os.posix_spawn("/bin/true", ["true"], {}, file_actions=opened)).start()
time.sleep(60)
"""


def test_a_process_is_not_stopped_while_a_thread_is_in_a_call_that_no_signal_ends(tmp_path):
    os.mkfifo(fifo := tmp_path / "fifo")
    child = subprocess.Popen([sys.executable, "-c", IN_A_CALL_OF_THE_SYSTEM, str(fifo)], stdout=subprocess.PIPE)
    try:
        child.stdout.readline()
        wait_until(lambda: "D" in [state_of(task) for task in Path(f"/proc/{child.pid}/task").iterdir()])
        processes.end([child.pid], signal.SIGSTOP)
        wait_until(lambda: state_of(Path(f"/proc/{child.pid}")) == "T")
        assert not processes.is_stopped(child.pid)
        fifo.write_bytes(b"")
        wait_until(lambda: processes.is_stopped(child.pid))
    finally:
        child.kill()
        child.wait()


def state_of(folder):
    return (folder / "stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("slow_s, accused", [(0.2, False), (60.0, True)])
def test_a_device_that_is_busy_for_a_moment_accuses_nobody(slow_s, accused, monkeypatch):
    """As if a driver cleared freed memory for a while."""
    monkeypatch.setattr(idleness, "PATIENCE_S", 0.4)
    ns = [3e6] * idleness.SAMPLES
    device = Idleness(SimpleNamespace(call=lambda do: SimpleNamespace(ns=ns.pop() if ns else is_slow())), "cuda")
    begin = time.monotonic()

    def is_slow():
        return 6e6 if time.monotonic() - begin < slow_s else 3e6

    if not accused:
        device.must_be()
        assert time.monotonic() - begin >= slow_s
        return
    with pytest.raises(Suspect, match=r"left work running .*: copies took 2 times as long as usual, for 0\.4 s"):
        device.must_be()


@pytest.mark.parametrize(("kind", "long_ns", "usual_ns"), [("cpu", 104, 102.9), ("cuda", 101.6, 101.4)])
def test_a_batch_that_took_longer_than_usual_is_taken_once_more_and_the_shorter_counts(
    kind, long_ns, usual_ns, session, monkeypatch
):
    took_ns = [100, 101, 99, long_ns, 100.5, usual_ns, 150, 140, 101]
    monkeypatch.setattr(session, "call_ns", lambda *of: took_ns.pop(0))
    monkeypatch.setattr(session, "device", replace(session.device, kind=kind))
    slot = session.slots["eager"]
    slot.clear()
    assert [session.block("eager", 1) for _ in range(6)] == [100, 101, 99, 100.5, usual_ns, 140]
    assert (slot.retaken, took_ns) == (2, [101])
    slot.clear()
    assert slot.retaken == 0 and session.block("eager", 1) == 101


def test_a_cell_that_worked_while_it_was_stopped_is_suspect(session):
    cell = session.slots["eager"].cell
    cell.must_have_rested()
    processes.end([cell.pid], signal.SIGCONT)
    cell._used_ns[cell.pid] -= 1_000_000  # as if it had worked since
    with pytest.raises(CommandFailed, match=r"worked for 1[.\d]* ms while they were stopped") as failed:
        cell.must_have_rested()
    assert failed.value.fault.kind == "suspect"
    cell.freeze()


def test_a_cell_that_the_system_killed_while_it_was_stopped_is_no_suspect(session):
    """Its end takes processor time, too: it was said to have worked."""
    session.start("eager" + AA)
    cell = session.slots["eager" + AA].cell
    used = dict(cell._used_ns)
    os.kill(cell.pid, signal.SIGKILL)
    wait_until(lambda: cell_process._state(cell.pid) in "ZX")
    cell._used_ns = {pid: ns - 10_000_000 for pid, ns in used.items()}
    cell.must_have_rested()
    with pytest.raises(ChildDied):
        session.verify("eager" + AA, 60.0, 7)
    session.stop("eager" + AA)


def test_a_cell_that_a_hypervisor_held_while_it_stopped_is_no_suspect(session, monkeypatch):
    """Its thread is said to be stopped, but has not left its core: for 9 ms its CPU time grows. On an H100's host honest
    kernels were called suspect for 1.9 to 17 ms."""
    cell, held, cpu_ns = session.slots["eager"].cell, iter([3_000_000, 6_000_000]), processes.cpu_ns

    def still_growing(pids):
        late_ns = next(held, 9_000_000)
        return {pid: used + late_ns for pid, used in cpu_ns(pids).items()}

    cell.thaw()
    monkeypatch.setattr("kernels.parent.cell_process.processes.cpu_ns", still_growing)
    cell.freeze()
    cell.must_have_rested()


def test_a_batch_has_inputs_of_its_own_and_its_outputs_are_checked(session):
    session.verify("eager", 60, seed=2)
    slot = session.slots["eager"]
    slot.clear()
    assert session.batch("eager", 10) > 0
    assert len(slot.readings) == 3
    assert all(reading["frobenius"] < 1e-6 for reading in slot.readings)
    assert not (slot.inputs_changed or slot.shared)
    assert slot.batches(10).checked == 3
    slot.clear()
    assert session.estimate("eager", 60) > 0 and not slot.readings, "an estimate takes no time for checks"


def test_addresses_that_a_cell_does_not_have_are_refused(session):
    session.verify("eager", 60, seed=3)
    with pytest.raises(Suspect, match="its outputs cannot be read"):
        session._take("eager", [[session.slots["eager"].layout[0].model_copy(update={"address": 4096})]])
    huge = session.slots["eager"].layout[0].model_copy(update={"shape": [2**40], "strides": [0]})
    with pytest.raises(Suspect, match="too large"):
        session._take("eager", [[huge]])


def test_batches_that_only_estimate_a_time_do_not_rest(session, monkeypatch):
    """A GPU's rest is for what is compared."""
    slept = []
    monkeypatch.setattr(session, "rest_s", 0.02)
    monkeypatch.setattr(isolated_session.time, "sleep", slept.append)
    session.verify("eager", 60.0, 3)
    session.estimate("eager", 60.0)
    assert 0.02 not in slept
    session.batch("eager", 4)
    assert slept.count(0.02) == 1


@pytest.mark.parametrize(
    ("kind", "effort", "batch_ms", "rest_s"),
    [("cuda", "normal", 20, 0.02), ("cuda", "quick", 10, 0.01), ("cpu", "normal", 50, 0.0), ("cpu", "quick", 50, 0.0)],
)
def test_a_quick_measurement_has_shorter_batches_on_a_gpu(kind, effort, batch_ms, rest_s):
    plan = Protocol(**EFFORTS[effort])
    assert lengths(kind, plan.rest, plan.is_wide) == (batch_ms * 1e6, rest_s)


def test_batches_may_take_more_of_a_gpus_memory_than_of_a_hosts():
    """A share of 0.4 / 6 for the input sets of each of three cells, and of 0.75 / 6."""
    sizes = Opened(set_bytes=2**20, output_bytes=2**20, free_bytes=2**30)
    trusted = SimpleNamespace(call=lambda do: SimpleNamespace(ns=1))
    for kind, room in (("cpu", 68), ("cuda", 128)):
        made = SimpleNamespace(device=SimpleNamespace(kind=kind), trusted=trusted)
        IsolatedSession._open(made, sizes, 3)
        assert made.room == room


def test_tensors_of_input_sets_begin_where_pytorchs_allocator_would_place_them():
    """x of LayerNorm began at odd places behind the weights of the set before; isolated it was slower than elsewhere."""
    large, small = ((16384, 4096), torch.bfloat16), ((4096,), torch.bfloat16)
    layout = Layout([large, small, small, large, small])
    places = [offset for offset, _, _ in layout.places]
    assert [offset % 2**21 for offset in places[::3]] == [0, 0] and all(offset % 512 == 0 for offset in places)
    assert layout.nbytes % 2**21 == 0 and layout.nbytes < 2 * 2**27 + 2 * 2**21 + 1
    assert Layout([small, small]).nbytes == 2 * 8192 and Layout([((1,), torch.float32)]).nbytes == 512


def test_a_cell_cannot_take_the_input_memory_away(session):
    with pytest.raises(PermissionError):
        os.ftruncate(session.slots["eager"].memory, 0)


def test_a_dead_trusted_process_is_no_kernels_fault():
    made = IsolatedSession(find_device("cpu"), SMALL, lambda: False, 1.0, cells=2)
    made.trusted.kill()
    with pytest.raises(TrustedEnded):
        made.trusted.call("pace")
    made.close()


@pytest.mark.parametrize(("addresses", "shared"), [([0, 32, 64], False), ([64, 0, 32], False), ([0, 16, 64], True)])
def test_outputs_that_share_memory(addresses, shared):
    assert overlap(addresses, LAYOUT) == shared


def test_outputs_of_one_call_may_be_views_of_one_buffer_and_those_of_two_may_not():
    left, right = (
        LAYOUT[0].model_copy(update={"shape": [4, 2], "strides": [4, 1], "dtype": "float32"}) for _ in range(2)
    )
    assert not overlap([0, 8, 64, 72], [left, right])
    assert overlap([0, 8, 32, 40], [left, right]), "the second call begins where the first has not ended"
    assert overlap([0, 8, 0, 8], [left, right]), "one buffer for all calls"
    assert overlap([0, 128, 64, 136], [left, right]), (
        "the second output of the first call ends within that of the second"
    )


@pytest.mark.parametrize(("code", "kind"), [(1, Unsupported), (801, Unsupported), (700, RuntimeError)])
def test_memory_that_cuda_does_not_share_is_unsupported_and_a_crash_is_none(monkeypatch, code, kind):
    torch = pytest.importorskip("torch")
    from kernels.isolated import device_memory
    from kernels.isolated.cell import Cell

    def refused(start):
        raise device_memory.DriverError("cuIpcGetMemHandle", code)

    monkeypatch.setattr(device_memory, "allocation", lambda address: (address, 64))
    monkeypatch.setattr(device_memory, "handle_of", refused)
    cell = Cell.__new__(Cell)
    cell.outs = [torch.zeros(4)]
    with pytest.raises(kind) as raised:
        cell.segments()
    assert raised.type in (kind, device_memory.DriverError)
    assert ("does not share between processes" if kind is Unsupported else "CUDA error 700") in str(raised.value)


HOST = Host(450e3, 100e3)
"""As on an H200."""


@pytest.mark.parametrize(
    ("call_ns", "batch_ns", "host", "graphs"),
    [
        ((20e3, 18e3), (20e6, 19.9e6), HOST, True),
        ((2e6, 2.4e6), (20e6, 19.2e6), HOST, True),
        ((20e3, 16e3), (20e6, 16e6), HOST, True),  # the calls of the slower kernel fill the memory
        ((60e3, 60e3), (5e6, 5e6), HOST, True),  # as much as fits of a kernel that copies
        ((64e3, 195e3), (2.5e6, 6.6e6), Host(520e3, 143e3), True),  # measured on an H200
    ],
)
def test_long_enough_on_a_gpu(call_ns, batch_ns, host, graphs):
    assert why_too_short(call_ns, batch_ns, host, cuda=True, graphs=graphs) == ""


@pytest.mark.parametrize(
    ("call_ns", "batch_ns", "host", "graphs"),
    [
        ((20e3, 20e3), (1.7e6, 1.7e6), HOST, True),  # a quarter of a batch is the host
        ((64e3, 640e3), (2e6, 20e6), HOST._replace(spread_ns=150e3), True),  # the ratio may be off by more than 5%
        ((9e3, 20e3), (20e6, 20e6), HOST, True),
        ((20e3, 9e3), (20e6, 20e6), HOST, True),
        ((20e3, 20e3), (20e6, 20e6), HOST, False),
    ],
)
def test_too_short_on_a_gpu(call_ns, batch_ns, host, graphs):
    assert why_too_short(call_ns, batch_ns, host, cuda=True, graphs=graphs).startswith(Verdict.TOO_SHORT)


def test_the_interval_includes_what_the_host_may_add():
    """Batches of different lengths: the spread of empty batches moves their ratio. Of one length: only the calls' cost."""
    unequal = host_half_width((2e5, 2e5), (10e6, 20e6), HOST, graphs=False)
    assert math.expm1(unequal) == pytest.approx(100e3 * (1 / 10e6 - 1 / 20e6))
    assert host_half_width((2e5, 2e5), (20e6, 20e6), HOST, graphs=False) == 0
    assert math.expm1(host_half_width((2e5, 1e5), (20e6, 20e6), HOST, graphs=True)) == pytest.approx(0.002)
    for ratio in (Ratio(2.0, 1.98, 2.05), Ratio(0.5, 0.4, 0.5)):
        whole = with_host(ratio, 0.01)
        assert math.log(whole.ratio / whole.low) == pytest.approx(math.hypot(math.log(ratio.ratio / ratio.low), 0.01))
        assert math.log(whole.high / whole.ratio) == pytest.approx(math.hypot(math.log(ratio.high / ratio.ratio), 0.01))


def test_too_short_on_a_cpu():
    host = Host(60e3, 20e3)
    assert why_too_short((20e3, 25e3), (50e6, 51e6), host, cuda=False, graphs=False) == ""
    assert why_too_short((5e3, 25e3), (50e6, 51e6), host, cuda=False, graphs=False).startswith(Verdict.TOO_SHORT)


def committed(name):
    """The events of a committed file."""
    lines = (ROOT / "docs/measurements" / name).read_text().splitlines()
    return [Measured.model_validate_json(line) for line in lines]


def ratios(events):
    """Speedup of triton-flash by workload, of those that have one."""
    return {
        event.workload.label: arm.speedup
        for event in events
        for arm in event.results
        if arm.kernel == "triton-flash" and arm.speedup
    }


def test_the_committed_isolated_ratios_agree_with_the_shared_process():
    """Twelve workloads on one H200, measured in one call, as docs/instrument.md says."""
    events = committed("isolated-twelve-h200-2026-11-23.jsonl")
    shared = ratios(event for event in events if not event.isolated)
    isolated = ratios(event for event in events if event.isolated)
    took = {event.workload.label: event.results[0].p50_ms * 1e3 for event in events if event.isolated}
    off = {label: abs(isolated[label] / shared[label] - 1) for label in isolated}
    assert len(shared) == 12 and len(off) == 11, "one is too short to tell apart"
    assert all(off[label] < 0.02 for label in off if took[label] < 100)
    long = [off[label] for label in off if took[label] > 100]
    assert len(long) == 8 and sorted(long)[-2] < 0.005 and max(long) < 0.012
    assert all(event.aa.low <= 1 <= event.aa.high for event in events)


def test_with_long_rests_the_shared_process_agrees_where_it_did_not():
    """The rests before a block change the ratio of two kernels at the power limit, and isolation does not."""
    events = committed("isolated-rests-h200-2026-11-23.jsonl")
    label = "attention fp16 B=4 H=32 S=4096 D=128"
    usual, rested = (
        ratios(event for event in events if not event.isolated and event.protocol.rest == rest)[label]
        for rest in (1, 10)
    )
    isolated = ratios(event for event in events if event.isolated)[label]
    assert abs(isolated / rested - 1) < 0.002 < 0.009 < abs(usual / rested - 1)


def test_what_the_host_adds_is_no_part_of_a_call(session, monkeypatch):
    session.start("eager")
    session.verify("eager", 60.0, 1)
    empty = session.empty_batches("eager", 9)
    assert 0 < median(empty) < min(session.batch("eager", session.calls_for(1e4)) for _ in range(3))
    monkeypatch.setattr(session, "batch", lambda slot, calls, limit_s, is_judged: 1_000_000)
    monkeypatch.setattr(session, "host_ns", 200_000)
    session.turn = "eager"
    assert session.call("block", calls=8).ticks_ns == [100_000]
    monkeypatch.setattr(session, "host_ns", 2_000_000)
    assert session.call_ns("eager", 8) > 0


def test_nothing_is_looked_at_while_a_short_batch_is_timed(session, monkeypatch):
    """A look at the processes of a cell takes as long as what the host adds to a batch."""
    cell, looks = session.start("eager").cell, []
    session.verify("eager", 60.0, 1)
    monkeypatch.setattr(cell, "_look", lambda: looks.append(1))
    wait, at_go = cell._line, []

    def line(limit_s):
        at_go.append(len(looks))
        answer = wait(limit_s)
        at_go.append(len(looks))
        return answer

    monkeypatch.setattr(cell, "_line", line)
    empty = session.empty_batches("eager", 20)
    assert len(empty) == 20
    assert at_go[0::2] == at_go[1::2], "it looked while an answer was on its way"
    assert len(looks) >= 20, "it looks before each command"


def test_a_run_is_cancelled_between_answers_that_come_at_once(session):
    cell = session.start("eager").cell
    cell.wait_ready()
    cell.should_stop = lambda: True
    with pytest.raises(Cancelled):
        cell.call("forget")


def test_a_long_wait_is_looked_at(session, monkeypatch):
    cell, looks = session.start("eager").cell, []
    monkeypatch.setattr(cell, "_look", lambda: looks.append(1))
    with pytest.raises(ChildTimedOut):
        cell._line(0.6)
    assert len(looks) >= 2


def test_isolated_has_no_other_protocol_or_mode():
    assert Protocol(isolated=True).name == "paired"
    for other in ({"name": "fixed"}, {"mode": "sustained"}):
        with pytest.raises(ValueError, match="isolated measures batches in pairs"):
            Protocol(isolated=True, **other)


class Disturbed(IsolatedRun):
    """A run whose baseline takes these times alone, beside all, and beside each kernel."""

    baseline = "sdpa"

    def __init__(self, alone, beside, **each):
        self.arms = [Arm("sdpa"), *map(Arm, each)]
        self.each, self.times, self.before, self.beside = each, alone, alone[0], None
        self.reading = Reading("batch", {"sdpa": [[time] for time in beside]})
        self.session = type("Session", (), {"stop": lambda self, name: None})()

    def _alone(self, batches=8):
        return self.times[1]

    def _disturbs(self, arm):
        return is_slower_beside(Ratio(*[self.each[arm.name]] * 3))


STEADY, SLOW = [100, 101, 99, 100, 101, 99, 100, 100], [120, 121, 119, 120, 121, 119, 120, 120]


def test_the_kernel_beside_which_the_baseline_is_slower_is_found():
    run = Disturbed([STEADY, STEADY], SLOW, honest=1.0, disturbing=1.2)
    assert [arm.name for arm in run._disturbed(run.reading)] == ["disturbing"]
    assert run.beside.low > 1.1


def test_a_baseline_that_became_slower_by_itself_accuses_nobody():
    run = Disturbed([STEADY, SLOW], SLOW, honest=1.0)
    assert run._disturbed(run.reading) == []
    assert run.reading.notes == ["the baseline stayed slower after the processes of the other kernels had ended"]
    assert all(arm.status == Status.OK for arm in run.arms)


def test_a_baseline_that_is_as_fast_as_alone_is_left_alone():
    run = Disturbed([STEADY, STEADY], STEADY, honest=1.0)
    assert run._disturbed(run.reading) == []
    assert run.reading.notes == []


class Failing(IsolatedRun):
    """A run of three processes. From the second one on, `fails` fails so often."""

    baseline = "sdpa"

    def __init__(self, fails, often):
        self.arms, self.fails, self.left, self.asked = [Arm("sdpa"), Arm("mine"), Arm("yours")], fails, often, 0
        self.plan = SimpleNamespace(verify_only=False, processes=3)
        self.session = SimpleNamespace(
            turn="", slots={}, stop=lambda name: None, capturing=SimpleNamespace(failed_too=[])
        )
        self.too = []
        self.part, self.baseline_failed = SimpleNamespace(told=[]), 0

    def _begin(self, arm): ...

    def _recheck(self, alive, reading): ...

    def _disturbed(self, reading):
        return []

    def _rounds(self, alive):
        self.asked += 1
        if self.asked > 1 and self.left:
            self.left -= 1
            self.session.turn = self.fails
            error = CommandFailed(Fault(kind="raised", message="it broke"))
            self.session.capturing.failed_too = [(name, error) for name in self.too]
            raise error
        names = [arm.name for arm in alive]
        base = self.baseline if self.baseline in names else names[0]
        return Reading("batch", {name: [[100.0], [101.0]] for name in [*names, base + AA]})


@pytest.mark.parametrize("fails", ["sdpa", "sdpa" + AA])
def test_a_baseline_that_failed_once_in_a_later_process_is_started_again(fails):
    run = Failing(fails, often=1)
    whole = run._measure()
    assert [sorted(part.blocks) for part in whole.processes] == [["mine", "sdpa", "sdpa" + AA, "yours"]] * 3
    assert run.asked == 4 and all(arm.is_ok for arm in run.arms)
    assert run.part.told == ["a process of the baseline failed and was started again: it broke"]


@pytest.mark.parametrize("fails", ["sdpa", "sdpa" + AA])
def test_nothing_is_compared_with_a_baseline_that_failed_again_and_again(fails):
    run = Failing(fails, often=3)
    whole = run._measure()
    assert not whole.processes and sorted(whole.blocks) == ["mine", "sdpa", "sdpa" + AA, "yours"]
    assert [arm.status for arm in run.arms] == ["failed", "ok", "ok"] and len(run.part.told) == 2
    results = arm_results(run.arms, whole, "sdpa", Limits(SMALL.problem, ""), 1)
    assert [(arm.p50_ms is None, arm.speedup) for arm in results] == [(True, None), (False, None), (False, None)]


def test_the_readings_of_others_stay_when_a_candidate_fails_in_a_later_process():
    run = Failing("mine", often=1)
    whole = run._measure()
    assert [sorted(part.blocks) for part in whole.processes[:2]] == [
        ["mine", "sdpa", "sdpa" + AA, "yours"],
        ["sdpa", "sdpa" + AA, "yours"],
    ]
    assert [arm.status for arm in run.arms] == ["ok", "failed", "ok"] and run.asked == 4 and not run.part.told


@pytest.mark.parametrize(("fails", "too"), [("mine", "sdpa"), ("sdpa" + AA, "mine")])
def test_a_kernel_that_fails_together_with_the_baseline_leaves_and_the_baseline_is_started_again(fails, too):
    run = Failing(fails, often=1)
    run.too = [too]
    whole = run._measure()
    assert [arm.status for arm in run.arms] == ["ok", "failed", "ok"] and run.baseline_failed == 1
    assert len(whole.processes) == 3 and not run.session.capturing.failed_too


class Alone(IsolatedRun):
    """A run in whose session the baseline's batches fail when it is timed alone, after the rounds."""

    baseline = "sdpa"

    def __init__(self):
        self.session = SimpleNamespace(turn="mine", calls_for=lambda call_ns: 1, block=self._fails)
        self.call_ns = {"sdpa": 1.0, "mine": 1.0}

    def _fails(self, name, calls, **how):
        raise CommandFailed(Fault(kind="suspect", message="it worked while it was stopped"))


def test_a_failure_of_the_baseline_alone_is_its_own_and_not_of_the_kernel_before_it():
    """The kernel that was checked last was to blame."""
    run = Alone()
    with pytest.raises(CommandFailed):
        run._alone()
    assert run.session.turn == "sdpa"


class Counting(IsolatedRun):
    """A run on a GPU whose kernel fails with this fault when its calls are estimated."""

    baseline = "sdpa"

    def __init__(self, fault):
        self.session = SimpleNamespace(graphs=True, estimate=self._fails, stop=lambda name: None)
        self.context, self.fault = SimpleNamespace(is_cuda=True), fault

    def _fails(self, name, limit_s):
        raise CommandFailed(self.fault)


def test_a_kernel_with_too_many_processes_is_not_said_to_be_uncapturable():
    crowd, uncapturable = Fault(kind="unsupported", message="201 processes"), Fault(kind="raised", message="capturing")
    with pytest.raises(CommandFailed, match="201 processes"):
        Counting(crowd)._estimate(Arm("mine"))
    Counting(uncapturable)._estimate(arm := Arm("mine"))
    assert (arm.status, arm.why) == (
        Status.UNSUPPORTED,
        "cannot be captured as a CUDA graph, as the baseline is here: capturing",
    )


def cell_of(pid, numbers):
    """What `freeze` needs of a cell, of which each look finds another process beside the first."""
    return SimpleNamespace(pid=pid, processes=lambda: [pid, next(numbers)], kill=lambda: None, _used_ns=None)


def test_a_process_that_starts_another_one_and_ends_again_and_again_cannot_be_stopped():
    """Nobody finds it running: each look finds a process that has ended when it is looked at. It worked on while all seemed to
    be stopped."""
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        with pytest.raises(Suspect, match="it starts another one and ends"):
            Cell.freeze(cell_of(sleeper.pid, itertools.count(5_000_000)))
        quiet = cell_of(sleeper.pid, itertools.repeat(5_000_000))
        Cell.freeze(quiet)
        Cell.must_have_rested(quiet)
        quiet.processes = lambda: [sleeper.pid, os.getpid()]
        with pytest.raises(Suspect, match="a process began while its processes were stopped"):
            Cell.must_have_rested(quiet)
    finally:
        sleeper.kill()
        sleeper.wait()

"""What others take of a CPU while it is measured: from /proc, real and written by hand."""

import subprocess
import sys
import time

import pytest

from kernels.contract.events import HostLoad
from kernels.host.cpu_load import TICKS_PER_S, CpuLoad

ME, CHILD, STRANGER = 100, 200, 300


class Proc:
    """A /proc of two cores with this process, its child and a stranger."""

    def __init__(self, root):
        self.root, self.ticks = root, {ME: 0, CHILD: 0, STRANGER: 0}
        self.user, self.steal, self.waiting, self.switches = 0, 0, 0, 0

    def write(self):
        core = f"{{}} {self.user // 2} 0 0 1000 50 0 0 {self.steal // 2} 0 0"
        lines = [core.format(name) for name in ("cpu", "cpu0", "cpu1")] + [f"procs_running {1 + self.waiting}"]
        (self.root / "stat").write_text("\n".join(lines))
        for pid, parent in ((ME, 1), (CHILD, ME), (STRANGER, 1)):
            thread = self.root / str(pid) / "task" / str(pid)
            thread.mkdir(parents=True, exist_ok=True)
            after_name = ["S", str(parent), *["0"] * 9, str(self.ticks[pid]), *["0"] * 20]
            (self.root / str(pid) / "stat").write_text(f"{pid} (a (strange) name) {' '.join(after_name)}")
            (thread / "status").write_text(
                f"nonvoluntary_ctxt_switches:\t{self.switches if pid != STRANGER else 10**6}\n"
            )


@pytest.fixture
def proc(tmp_path, monkeypatch):
    """(the files, the load); one second passes between two looks at the clock."""
    clock = iter(range(100))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    files = Proc(tmp_path)
    files.write()
    return files, CpuLoad(tmp_path, ME, {0, 1})


def test_the_load_is_what_others_took_and_not_this_process_or_its_children(proc):
    files, load = proc
    load.begin()
    files.user = TICKS_PER_S  # half of two cores for a second
    files.ticks |= {ME: TICKS_PER_S // 10, CHILD: TICKS_PER_S // 5, STRANGER: TICKS_PER_S * 7 // 10}
    files.write()
    seen = HostLoad.model_validate(load.end())
    assert seen.foreign == pytest.approx(0.7 / 2 - 2 / (2 * TICKS_PER_S)), "70% of one of two cores, less a tick a core"
    assert seen.is_busy and seen.cores == 2


def test_time_that_the_hypervisor_took_is_of_others(proc):
    files, load = proc
    load.begin()
    files.steal = TICKS_PER_S // 5
    files.write()
    seen = HostLoad.model_validate(load.end())
    assert seen.steal == pytest.approx(0.1)
    assert seen.is_busy


def test_a_quiet_machine_is_not_busy(proc):
    files, load = proc
    load.begin()
    files.user, files.ticks[CHILD] = 2 * TICKS_PER_S, 2 * TICKS_PER_S - 4
    files.write()
    assert not HostLoad.model_validate(load.end()).is_busy, "all cores work, for the measurement"


def test_the_run_queue_and_the_switches_are_told(proc):
    files, load = proc
    load.begin()
    for files.waiting in (0, 3):
        files.write()
        load.look()
    files.switches = 7
    files.write()
    seen = HostLoad.model_validate(load.end())
    assert (seen.run_queue, seen.preempted) == (1.5, 14), "of this process and its child"


def test_where_nothing_is_told_nothing_is_known(tmp_path):
    (tmp_path / "stat").write_text("cpu0 0 0 0 0 0 0 0 0 0 0\n")
    load = CpuLoad(tmp_path, ME, {0})
    load.begin()
    load.look()
    assert load.end() is None


def test_a_process_beside_the_measurement_is_seen_and_a_child_is_not():
    """On this machine: more work of others makes more of a load, more work of its own does not."""
    spin = "import time\nend = time.monotonic() + 20\nwhile time.monotonic() < end: pass"

    def load_with(pid=None):
        load = CpuLoad(pid=pid)
        with subprocess.Popen([sys.executable, "-c", spin]) as process:
            time.sleep(0.3)
            load.begin()
            time.sleep(1.5)
            seen = load.end()
            process.kill()
        return seen["foreign"] * seen["cores"]

    own = load_with()
    other = load_with(pid=2**22 + 1)  # nobody: all processes are others
    assert other > 0.5, "a whole core, unless this machine has too much to do"
    assert own < other

"""The guard watches every function of the instrument: whoever replaces one could write its own result."""

import builtins
import ctypes
import gc
import importlib
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
from pathlib import Path

import pytest
import torch
from torch.overrides import TorchFunctionMode

from kernels.child import functions, guard, settings, tasks
from kernels.child.clock import CpuClock
from kernels.child.guard import Guard
from kernels.child.settings import OF_THREADS
from kernels.child.thread_places import Threads
from kernels.inprocess.session import PermissiveGuard

ROOT = Path(__file__).parents[2] / "kernels"
UPWARD = {"x86_64": 0x800}.get(os.uname().machine, 0x400000)
"""FE_UPWARD."""
ROOMS = ("analysis", "child", "contract", "host", "parent")
MODULES = [
    f"kernels.{room}.{path.stem}"
    for room in ROOMS
    for path in sorted((ROOT / room).glob("*.py"))
    if path.stem not in ("__init__", "__main__")
]


@pytest.fixture
def watching():
    """A guard made when all of the instrument is loaded."""
    for name in MODULES:
        importlib.import_module(name)
    return guard.Guard("cpu", CpuClock())


def test_every_room_has_modules():
    assert {name.split(".")[1] for name in MODULES} == set(ROOMS)
    assert {"kernels.child.bench", "kernels.parent.engine", "kernels.analysis.statistics"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_each_module_of_the_instrument_is_protected(watching, name):
    module = sys.modules[name]
    assert module in functions.protected_modules()
    if module in (guard, functions, settings):
        return  # it finds a replaced function by its own functions: see the next test
    own = [
        attribute
        for attribute, value in vars(module).items()
        if isinstance(value, types.FunctionType) and value.__module__ == name
    ]
    for attribute in own:
        before = getattr(module, attribute)
        try:
            setattr(module, attribute, lambda *arguments, **options: None)
            assert watching.changes() == [f"{name}.{attribute}: replaced"]
            assert getattr(module, attribute) is before, "it is put back"
        finally:
            setattr(module, attribute, before)
    assert watching.changes() == []


def test_the_guard_watches_itself(watching, monkeypatch):
    monkeypatch.setattr(tasks, "memory_in_use", lambda kind: 0)
    assert watching.changes() == ["kernels.child.tasks.memory_in_use: replaced"]


def test_the_catalogue_is_protected_and_other_code_is_not(watching):
    names = {module.__name__ for module in functions.protected_modules()}
    assert {"kernels.catalog", "kernels.kernel_files", "kernels.operations.base", "kernels.dtypes"} <= names
    assert not {name for name in names if name.startswith(("kernels.report.", "runs."))}


# --- what else is compared --------------------------------------------------------------------------------------------


def leave_a_mode():
    class Mode(TorchFunctionMode):
        pass

    Mode().__enter__()


SETTINGS = {
    "order of attention's backends": lambda: torch._C._set_sdp_priority_order([2, 1, 0, 3, 4]),
    "torch function modes": leave_a_mode,
    "profile function": lambda: sys.setprofile(lambda *_: None),
    "garbage collector": gc.disable,
    "timers": lambda: signal.setitimer(signal.ITIMER_VIRTUAL, 1000),
    "handler of SIGUSR2": lambda: signal.signal(signal.SIGUSR2, lambda *_: None),
    "autocast's dtype on cpu": lambda: torch.set_autocast_dtype("cpu", torch.float16),
    "anomaly mode": lambda: torch.set_anomaly_enabled(True),
    "rounding of numbers": lambda: torch.set_flush_denormal(True),
    "variable KERNEL_PATH": lambda: os.environ.update(KERNEL_PATH="/elsewhere"),
    "working directory": lambda: os.chdir("/"),
    "folder of temporary files": lambda: setattr(tempfile, "tempdir", "/nonexistent"),
    "paths of imports": lambda: sys.path.remove(sys.path[-1]),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_others_need_is_seen_and_put_back(watching, name):
    SETTINGS[name]()
    (found,) = watching.changes()
    assert found.startswith(f"{name}: ")
    assert watching.changes() == []
    assert not watching.must_replace


def test_a_folder_that_is_gone_is_seen_and_left(watching, tmp_path):
    (gone := tmp_path / "gone").mkdir()
    os.chdir(gone)
    gone.rmdir()
    (found,) = watching.changes()
    assert found.startswith("working directory: ") and Path.cwd().exists()


def test_a_path_of_imports_that_a_kernel_adds_is_no_change(watching):
    sys.path.insert(0, "/of-a-kernel")
    try:
        assert watching.changes() == []
    finally:
        sys.path.remove("/of-a-kernel")


def test_what_torch_compile_leaves_in_a_module_and_drops_is_no_change():
    """A kernel that compiled a builtin was called suspect: "torch._dynamo.external_utils.__compiled_fn_1_...: replaced"."""
    module = types.ModuleType("torch._dynamo.external_utils")
    module.__compiled_fn_1_0123, module.wrap = (lambda x: x), (lambda x: x)
    snapshot = functions.Snapshot([("torch._dynamo.external_utils", module)])
    del module.__compiled_fn_1_0123
    assert snapshot.changes() == [] and not snapshot.stuck
    assert all(one.is_same() for one in snapshot._all), "the next comparison is quick again"
    module.__compiled_fn_2_0123 = lambda x: x
    later = functions.Snapshot([("torch._dynamo.external_utils", module)])
    module.__compiled_fn_2_0123 = lambda x: 2 * x
    assert later.changes() == ["torch._dynamo.external_utils.__compiled_fn_2_0123: replaced"]
    module.wrap = lambda x: 2 * x
    assert snapshot.changes() == ["torch._dynamo.external_utils.wrap: replaced"]


def helper(x):
    return x + 1


def baseline(x):
    return helper(x) * CONSTANT


CONSTANT = 2


def test_what_another_kernel_calls_may_not_be_replaced(watching, monkeypatch):
    watching.know("sdpa", baseline)
    watching.know("mine", lambda x: x)
    assert watching.changes("mine") == []
    monkeypatch.setattr(sys.modules[__name__], "helper", lambda x: x)
    assert watching.changes("mine") == ["test_guard.helper: replaced"]
    assert helper(1) == 2, "it is put back"
    code = helper.__code__
    helper.__code__ = (lambda x: x).__code__
    (found,) = watching.changes("mine")
    assert found == "test_guard.helper: replaced"
    assert helper.__code__ is code


COUNTED, MADE = 0, None


def counts():
    global COUNTED
    COUNTED += 1


def counts_through_a_module(x):
    tables.COUNTED += 1
    return x


def counting_pair():
    """Two closures that share a counter."""
    count = 0

    def one(x):
        nonlocal count
        count += 1
        return x

    def other(x):
        nonlocal count
        count += 1
        return x

    return one, other


def makes(x):
    global MADE
    MADE = MADE or (lambda y: y)
    return MADE(x)


def uses(x):
    return MADE(x) if MADE else x


def counts_by_name(x):
    for name in ("COUNTED", "COUNTED_TWICE"):
        setattr(tables, name, getattr(tables, name) + 1)
    globals()["COUNTED"] = COUNTED + 1
    return x


tables = types.ModuleType("tables")
tables.COUNTED = tables.COUNTED_TWICE = 0
PAIRS = {
    "a global": (lambda x: counts(), lambda x: counts()),
    "a variable around both": counting_pair(),
    "an attribute of a module": (counts_through_a_module, lambda x: counts_through_a_module(x)),
    "names in texts": (counts_by_name, lambda x: counts_by_name(x)),
    "made when it is needed": (makes, uses),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_what_two_kernels_share_and_write_is_neither_a_change_nor_put_back(watching, pair, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "MADE", None)
    one, other = pair
    watching.know("sdpa", one)
    watching.know("mine", other)
    for _ in range(2):
        for arm, call in (("sdpa", one), ("mine", other)):
            before = COUNTED, tables.COUNTED
            call(1)
            after = COUNTED, tables.COUNTED
            assert watching.changes(arm) == [] and after == (COUNTED, tables.COUNTED)
            assert (MADE is not None) if one is makes else (after != before or pair is PAIRS["a variable around both"])
    assert watching.changes() == []


def counts_and_shows(x):
    return x * COUNTED


compiled = helper


def compiles_late(x):
    global compiled
    if compiled is helper:
        compiled = lambda y: y + 1  # noqa: E731
    return compiled(x)


def test_a_function_that_a_kernel_makes_in_its_own_module_is_no_change(watching, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "compiled", helper)
    watching.know("sdpa", lambda x: compiled(x))
    watching.know("mine", compiles_late)
    compiles_late(1)
    assert watching.changes("mine") == [] and watching.changes() == [] and compiled is not helper


def test_what_a_kernel_writes_and_its_neighbour_reads_is_no_change_later_either(watching):
    watching.know("sdpa", counts_and_shows)
    watching.know("mine", lambda x: counts())
    counts()
    assert watching.changes("mine") == []
    assert watching.changes() == [] and watching.watched() == []


def test_a_kernel_may_change_itself(watching, monkeypatch):
    watching.know("mine", baseline)
    monkeypatch.setattr(sys.modules[__name__], "helper", torch.jit.ignore(helper))
    assert watching.changes("mine") == []
    monkeypatch.undo()
    assert watching.changes("mine") == []


def test_between_the_arms_every_function_of_pytorch_is_compared(watching, monkeypatch):
    watching.begin()
    assert watching.watched() == []
    monkeypatch.setattr(torch.nn.modules.linear.Linear, "forward", lambda self, x: x)
    assert watching.watched() == ["torch.nn.modules.linear.Linear.forward: replaced"]
    assert watching.watched() == []
    begin = time.monotonic()
    watching.watched()
    assert time.monotonic() - begin < 5, "0.1 s on a machine with nothing else to do"


def test_numbers_that_are_rounded_up_are_seen_and_put_back(watching):
    ctypes.CDLL("libm.so.6").fesetround(UPWARD)
    (found,) = watching.changes()
    assert found.startswith("rounding of numbers: ")
    assert watching.changes() == []


IN_THREADS = """
import ctypes, torch
from kernels.child import settings
settings.settle("cpu")
(read,) = [read for name, read, _ in settings.settings("cpu") if name == "rounding of numbers in PyTorch's threads"]
print(read())
openmp = next(line.split()[-1] for line in open("/proc/self/maps") if "libgomp" in line)
library = ctypes.CDLL("libm.so.6")
each = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: library.fesetround(UPWARD) and None)
ctypes.CDLL(openmp).GOMP_parallel(each, None, 0, 0)
library.fesetround(0)  # in this thread only
print(read(), settings._rounding())
""".replace("UPWARD", "0x800" if os.uname().machine == "x86_64" else "0x400000")


def test_rounding_in_the_threads_of_pytorch_is_seen():
    """It made the baseline and an honest kernel incorrect, and nobody was to blame."""
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", IN_THREADS],
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.split("\n")[:2] == ["as usual", "not to the nearest number as usual"], done.stderr


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_the_affinity_of_a_thread_that_was_there_is_seen_and_put_back():
    """PyTorch's workers on one CPU make everybody slower; those of a kernel's own are its own matter."""
    ended, ready = threading.Event(), threading.Event()
    before = threading.Thread(target=lambda: (ready.set(), ended.wait()))
    before.start()
    assert ready.wait(5)
    threads = Threads()
    usual = threads.read()
    later = threading.Thread(target=ended.wait)
    later.start()
    try:
        os.sched_setaffinity(later.native_id, {min(os.sched_getaffinity(0))})
        assert threads.read() == usual
        os.sched_setaffinity(before.native_id, {min(os.sched_getaffinity(0))})
        assert threads.read() != usual
        threads.put_back(usual)
        assert threads.read() == usual and len(os.sched_getaffinity(before.native_id)) > 1
    finally:
        ended.set()
        before.join(), later.join()
    assert threads.read() == usual, "one has ended"


@pytest.fixture
def waiting():
    """A thread that waits for its end, and what ends it."""
    ended, ready = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (ready.set(), ended.wait()))
    thread.start()
    assert ready.wait(5)
    yield thread, ended
    ended.set()
    thread.join()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_a_thread_that_ends_accuses_nobody_whatever_its_affinity_was(waiting):
    """A pinned data loader of the caller that ended made the candidate suspect."""
    thread, ended = waiting
    os.sched_setaffinity(thread.native_id, {min(os.sched_getaffinity(0))})
    threads = Threads()
    usual = threads.read()
    ended.set()
    thread.join()
    assert threads.read() == usual


def test_a_number_that_another_program_has_by_now_is_not_asked(waiting):
    thread, ended = waiting
    threads = Threads()
    usual = threads.read()
    gone = threads.first.pop(next(one for one in threads.first if one[0] == thread.native_id))
    with subprocess.Popen(["nice", "-n", "7", "sleep", "60"]) as other:
        threads.first[other.pid, 1] = usual[other.pid, 1] = gone  # as if its number had come round
        assert threads.read() == usual
        threads.put_back(usual)
        other.kill()
    ended.set()


@pytest.mark.skipif(os.geteuid() != 0, reason="puts back what only root may")
def test_the_scheduler_of_a_thread_is_seen_and_put_back(waiting):
    """Threads of PyTorch that only idle cores run made everybody else slower, and nobody was blamed."""
    thread, _ = waiting
    threads = Threads()
    usual = threads.read()
    os.sched_setscheduler(thread.native_id, os.SCHED_IDLE, os.sched_param(0))
    assert threads.read() != usual and "policy 5" in repr(threads.read())
    threads.put_back(usual)
    assert threads.read() == usual


def test_in_the_callers_process_threads_are_the_callers():
    guard = PermissiveGuard("cpu", CpuClock())
    assert OF_THREADS not in [name for name, *_ in guard.settings]
    assert OF_THREADS in [name for name, *_ in Guard("cpu", CpuClock()).settings]


def test_a_timer_that_getitimer_does_not_know_is_seen(watching):
    timer = ctypes.c_void_p()
    libc = ctypes.CDLL(None)
    assert libc.timer_create(time.CLOCK_MONOTONIC, (ctypes.c_int * 16)(0, 0, signal.SIGUSR1), ctypes.byref(timer)) == 0
    try:
        assert watching.changes() == ["timers of the system: 1 instead of 0"]
        assert watching.must_replace
    finally:
        libc.timer_delete(timer)


# --- constants, default arguments, builtins, modules ------------------------------------------------------------------


def of_the_instrument():
    from kernels.child import clock, kept, poison
    from kernels.operations.base import Operation

    return {
        "kernels.child.kept.KEEP_SHARE": (kept, "KEEP_SHARE", 0.0),
        "kernels.child.kept.outputs": (kept, "outputs", poison),
        "Operation.dominated": (Operation, "dominated", ("normal",)),
        "builtins.float": (builtins, "float", int),
        "CpuClock.rest": (clock.CpuClock.rest, "__defaults__", (0,)),
    }


@pytest.mark.parametrize("name", of_the_instrument())
def test_what_the_instrument_depends_on_is_seen_and_put_back(watching, name):
    owner, attribute, value = of_the_instrument()[name]
    before = getattr(owner, attribute)
    setattr(owner, attribute, value)
    (found,) = watching.changes()
    assert found.startswith(f"{name}: ")
    assert getattr(owner, attribute) is before
    assert watching.changes() == []


def test_a_table_that_was_filled_with_something_else_is_seen_and_put_back(watching, monkeypatch):
    from kernels.child import poison

    before = dict(poison.NAN)
    poison.NAN[4] = 0
    assert watching.changes() == ["kernels.child.poison.NAN: replaced"]
    assert before == poison.NAN


def test_a_method_in_the_dictionary_of_a_c_type_cannot_be_put_back(watching):
    methods = gc.get_referents(torch._C.TensorBase.__dict__)[0]
    before = methods["abs_"]
    methods["abs_"] = lambda self: self
    try:
        assert watching.changes() == ["torch._C.TensorBase.abs_: replaced"]
        assert watching.must_replace
    finally:
        methods["abs_"] = before


def test_a_module_that_an_import_gets_is_seen_and_put_back(watching, monkeypatch):
    watching.begin()
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    assert watching.watched() == ["module torch: replaced"]
    assert sys.modules["torch"] is torch
    monkeypatch.setattr(math, "sqrt", lambda x: 0.0)
    assert watching.watched() == ["math.sqrt: replaced"]


def test_an_override_that_was_struck_off_the_list_is_seen(watching):
    watching.begin()
    library = torch.library.Library("aten", "IMPL")
    library.impl("rms_norm", lambda *of: None, "AutogradCPU")
    torch.library._impls.discard("aten/rms_norm/AutogradCPU")
    assert watching.watched() == ["registrations of aten::rms_norm: changed"]
    assert watching.must_replace
    library._destroy()


def test_a_guard_that_was_emptied_has_another_seal(watching):
    before = watching.seal()
    watching.know("mine", baseline)
    assert watching.seal() == before
    watching.settings = ()
    assert watching.seal() != before


def test_what_pytorch_registers_for_vmap_is_no_change():
    """The first vmap in a process registers rules for operators that nobody called, such as nll_loss_forward."""
    code = """
import torch
from kernels.child.settings import registrations
before = registrations()
torch.vmap(torch.vmap(lambda q: torch.softmax(q @ q.mT, -1)))(torch.randn(2, 3, 4, 4))
dumped = torch._C._dispatch_dump("aten::nll_loss_forward")
assert "FuncTorchBatched: registered" in dumped, dumped
now = registrations()
assert {name for name in now if now[name] != before.get(name)} == set()
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT.parent, timeout=60)


@pytest.mark.parametrize("in_use, works", [([0, 512], True), ([900, 500, 500, 1012], True), ([7] * 6, False)])
def test_memory_that_a_thread_frees_meanwhile_does_not_hide_the_caching_allocator(monkeypatch, in_use, works):
    left, empty = iter(in_use), torch.empty
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: next(left))
    monkeypatch.setattr(torch, "empty", lambda size, device: empty(size))
    assert settings._allocates_from_cache() is works

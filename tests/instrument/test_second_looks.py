"""What stands beside the times: the profiler's spans, the driver's telemetry, the clock in the stream."""

import itertools
import random
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from simulated_gpu import SimulatedGpu, Work

from kernels.analysis.suspicion import why_probed
from kernels.child import profiler, tasks
from kernels.child.bench import Bench
from kernels.child.clock import CpuClock, CudaClock
from kernels.contract.replies import Captured, Fault, Probed, TimedBlock
from kernels.host.device import Device, find_device
from kernels.host.scratch import SHARED_VARIABLE
from kernels.host.telemetry import Telemetry
from kernels.parent import doubts
from kernels.parent.child_process import CommandFailed
from kernels.parent.crosscheck import _batch, agrees
from kernels.parent.engine import RetryInNewProcess
from kernels.parent.reading import Reading
from kernels.parent.supervisor import Supervisor
from kernels.parent.template import templates
from kernels.workload import Ceilings, Config, RunSpec

SPIN = "void at::cuda::(anonymous namespace)::spin_kernel(long)"


def test_what_lies_between_two_gates_is_one_call():
    seen = [(SPIN, 0, 9), ("copy", 10, 11), ("main", 11, 20), (SPIN, 30, 39), ("copy", 40, 41), ("main", 41, 52)]
    assert profiler._by_call(seen) == [[("copy", 10, 11), ("main", 11, 20)], [("copy", 40, 41), ("main", 41, 52)]]
    assert profiler._by_call([("main", 1, 2)]) == [[("main", 1, 2)]], "without a gate, everything is one call"
    assert profiler._by_call([("started before", 1, 2), (SPIN, 3, 4), ("main", 5, 6)]) == [[("main", 5, 6)]]


def test_on_a_cpu_the_profiler_names_operators_and_has_no_span():
    import torch

    a = torch.ones(8, 8)
    found = profiler.profile(CpuClock(), lambda: a @ a)
    assert next(name for name, _ in found.kernels) == "aten::matmul"
    assert found.spans_ns == []
    assert len(found.event_ns) == profiler.CALLS


def test_a_second_look_rests_as_the_first_did():
    gpu = SimulatedGpu(tireless_ns=60e6)
    found, rest_ns = profiler._events(CudaClock(gpu), lambda: gpu.launch(Work(25e6)), gate_ns=1_000_000)
    assert found == pytest.approx([25e6] * profiler.CALLS)
    assert rest_ns >= 25e6


class Batch:
    """A child that runs an arm of 100 us; the host launches a call of it in so many."""

    def __init__(self, enqueue_ns, capturable=True):
        self.enqueue_ns, self.capturable, self.asked = enqueue_ns, capturable, []

    def call(self, do, limit_s=0.0, **arguments):
        self.asked.append(do)
        if do == "capture" and not self.capturable:
            raise CommandFailed(Fault(kind="raised", message="not now"))
        if do == "capture":
            return Captured(nodes=40)
        return TimedBlock(ticks_ns=[100_000.0] * 5, enqueue_ns=5 * self.enqueue_ns)


@pytest.mark.parametrize(
    "enqueue_ns, capturable, by_graph, host_bound",
    [(20_000, True, False, False), (90_000, True, True, False), (90_000, False, True, True)],
)
def test_a_batch_knows_whether_its_time_may_be_the_hosts(enqueue_ns, capturable, by_graph, host_bound):
    child = Batch(enqueue_ns, capturable)
    telemetry = Telemetry(None, Device("cuda", "GPU-1", "a GPU"))
    context = SimpleNamespace(device=telemetry.device, is_cuda=True, telemetry=telemetry, session=child)
    assert _batch(context, "mine")["host_bound"] is host_bound
    assert ("capture" in child.asked) is by_graph


@pytest.mark.parametrize(
    "event_us, span_us, expected",
    [(9, 13.9, True), (9, 14.1, False), (1000, 951, True), (1000, 949, False), (1000, 1051, False), (5, None, None)],
)
def test_event_and_span_agree_within_the_larger_of_5_percent_and_5_us(event_us, span_us, expected):
    assert agrees(event_us * 1e3, None if span_us is None else span_us * 1e3) is expected


def test_a_call_of_many_kernels_may_look_a_little_longer_to_the_profiler():
    assert agrees(60e3, 74e3, kernels=8)
    assert not agrees(60e3, 74e3, kernels=2)


class Nvml:
    """A driver with a device of our making."""

    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0
    nvmlClocksEventReasonSwThermalSlowdown, nvmlClocksEventReasonSwPowerCap = 0x20, 0x4

    def __init__(self):
        self.reasons, self.energy_mj = 0, 0

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return uuid

    def nvmlDeviceGetClockInfo(self, handle, which):
        return 1500

    def nvmlDeviceGetPowerUsage(self, handle):
        return 350_000

    def nvmlDeviceGetTemperature(self, handle, which):
        raise RuntimeError("not supported")

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        return self.reasons

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        return self.energy_mj


def test_what_the_driver_does_not_tell_of_a_board_is_left_out():
    driver = Nvml()
    driver.nvmlDeviceGetCount = lambda: 2
    driver.nvmlDeviceGetEccMode = lambda handle: [1, 1]
    driver.nvmlDeviceGetEnforcedPowerLimit = lambda handle: 700_000
    driver.NVML_NVLINK_MAX_LINKS, driver.NVMLError = 3, ValueError
    driver.nvmlDeviceGetNvLinkState = lambda handle, link: {0: 1, 1: 1}[link] if link < 2 else int("no link")
    facts = Telemetry(driver, Device("cuda", "GPU-1", "a GPU")).board()
    facts.pop("cpu_governor", None)
    assert facts == {"gpus_of_host": 2, "ecc": True, "power_limit_w": 700.0, "nvlinks": 2}
    assert Telemetry(None, Device("cpu", "CPU-1", "a CPU")).board() == {}


@pytest.fixture
def watched():
    """(telemetry, driver, take a sample)"""
    driver = Nvml()
    telemetry = Telemetry(driver, Device("cuda", "GPU-1", "a GPU"))

    def sample(reasons=0):
        driver.reasons = reasons
        waits = iter([False, True])
        telemetry._stop = SimpleNamespace(wait=lambda seconds: next(waits))
        telemetry.loop()

    return telemetry, driver, sample


def test_heat_is_told_once_and_the_power_limit_is_not_heat(watched):
    telemetry, _, sample = watched
    sample()
    sample(Nvml.nvmlClocksEventReasonSwPowerCap)
    assert not telemetry.slowed()
    sample(Nvml.nvmlClocksEventReasonSwThermalSlowdown)
    sample()
    assert telemetry.slowed()
    assert not telemetry.slowed(), "since it was last asked"
    assert telemetry.summary()["throttled"] == ["SwPowerCap", "SwThermalSlowdown"]


def test_what_the_driver_does_not_say_is_left_out(watched):
    telemetry, driver, sample = watched
    sample()
    assert telemetry.now() == {"sm_mhz": 1500, "power_w": 350.0, "throttle": 0}
    found = telemetry.summary()
    assert found["power_w"]["median"] == 350.0
    assert "temperature_c" not in found
    driver.energy_mj = 12_500
    assert telemetry.energy_j() == 12.5


def test_without_a_driver_fields_are_empty_and_nothing_breaks():
    telemetry = Telemetry(None, Device("cpu", "CPU-1", "a CPU"))
    assert (telemetry.now(), telemetry.sm_mhz(), telemetry.energy_j(), telemetry.slowed()) == ({}, None, None, False)
    assert telemetry.others() == []
    assert telemetry.summary() == {"samples": 0}


# --- who is busy ------------------------------------------------------------------------------------------------------


def test_who_waits_for_a_core_is_as_busy_as_who_has_one():
    """On a host at work for others a process that never rests may get nothing for a while."""
    window_ns = tasks.WINDOW_S * 1e9
    assert tasks.is_busy((0, True), (window_ns, True))
    assert tasks.is_busy((0, False), (window_ns, False)), "it ran, and rested at both ends"
    assert tasks.is_busy((7, True), (7, True)), "it wanted to, and could not"
    assert not tasks.is_busy((7, False), (7, True)), "it has just been woken"
    assert not tasks.is_busy((7, False), (7, False))


def test_a_thread_that_loops_is_runnable_and_one_that_sleeps_is_not():
    for code, runnable in (("while True: pass", True), ("import time; time.sleep(60)", False)):
        with subprocess.Popen([sys.executable, "-c", code]) as process:
            task, end = f"/proc/{process.pid}/task/{process.pid}", time.monotonic() + 10
            while tasks._is_runnable(task) is not runnable and time.monotonic() < end:
                time.sleep(0.05)
            seen = [tasks._is_runnable(task) for _ in range(20) if not time.sleep(0.01)]
            process.kill()
        assert seen == [runnable] * 20
    assert not tasks._is_runnable(task), "it is gone"


@pytest.mark.parametrize(("held_up", "said"), [(0, ""), (6, ""), (99, "work outside the timed region")])
def test_a_host_that_is_busy_for_some_batches_accuses_nobody(monkeypatch, held_up, said):
    """(ticks, time on the parent's clock) of batches: the baseline's are never held up, the arm's some times or always."""
    engine = SimpleNamespace(baseline="sdpa", alive=[SimpleNamespace(name="sdpa")], cuda=True)
    doubts_about, left = doubts.Doubts(engine), [held_up]

    def batch(name, calls, graphs):
        left[0] -= name != "sdpa"
        return 45.5e6, 59.8e6 if name != "sdpa" and left[0] >= 0 else 46e6

    monkeypatch.setattr(doubts_about, "_batch", batch)
    monkeypatch.setattr(doubts.time, "sleep", lambda seconds: None)
    why = doubts_about._why_outside("mine", 1e5, False)
    assert said in why and bool(said) == bool(why)


def test_what_the_instrument_does_between_batches_accuses_nobody(monkeypatch):
    """Poison over the outputs of the batch before takes 17 ms: before every batch but the baseline's first."""
    engine = SimpleNamespace(baseline="sdpa", alive=[SimpleNamespace(name="sdpa")], cuda=True)
    doubts_about, excess_ns = doubts.Doubts(engine), iter([1e6, 17e6, 17.4e6, 17.3e6, *[17.2e6] * 16])
    monkeypatch.setattr(doubts_about, "_batch", lambda name, calls, graphs: (27e6, 27e6 + next(excess_ns)))
    monkeypatch.setattr(doubts.time, "sleep", lambda seconds: None)
    assert not doubts_about._why_outside("mine", 1e5, False)


def test_the_baselines_batch_is_measured_only_if_it_may_explain_the_arms(monkeypatch):
    engine = SimpleNamespace(baseline="sdpa", alive=[SimpleNamespace(name="sdpa")], cuda=True)
    doubts_about, ran, around_ns = doubts.Doubts(engine), [], {"sdpa": 20e6, "quick": 12e6, "slow": 25e6}
    monkeypatch.setattr(
        doubts_about, "_batch", lambda name, calls, graphs: (ran.append(name), (1e8, 1e8 + around_ns[name]))[1]
    )
    assert not doubts_about._why_outside("quick", 1e5, False)
    assert not doubts_about._why_outside("slow", 1e5, False)
    assert ran == ["quick", "slow", "sdpa"]


def engine_of(block, replaceable, cuda=False):
    """An engine whose process answers each command for an arm with `block`."""
    session = SimpleNamespace(replaceable=replaceable, call=lambda do, limit_s, arm, **asked: block(arm, **asked))
    alive = [SimpleNamespace(name=name) for name in ("sdpa", "mine")]
    more = {"seeds": range, "retry": RetryInNewProcess}
    return SimpleNamespace(baseline="sdpa", cuda=cuda, session=session, alive=alive, **more)


def uneven(replaceable, foreign, times, cuda=False):
    """Doubts about "mine", whose blocks take so many times their calls' median, in the rounds and after them; and the rounds."""
    blocks = {"mine": [[1e5] * 7 + [1e5 * (8 * times - 7)]] * 8, "sdpa": [[1e5] * 8] * 8}
    reading = Reading("cpu", blocks, host={"foreign": foreign} if foreign is not None else None)

    def block(arm, calls, seeds):
        rest = 1e5 * (calls * times - calls + 1) if arm == "mine" else 1e5
        return TimedBlock(ticks_ns=[1e5] * (calls - 1) + [rest])

    about = doubts.Doubts(engine_of(block, replaceable, cuda))
    return about, [SimpleNamespace(reading=reading, group=SimpleNamespace(graphs=False))]


def after_calls(rounds_ns, further_ns, replaceable=False):
    """Doubts about two arms, and a reading in which so much passes after the calls of each arm; and so much in further blocks."""
    readings = Reading("cpu", {name: [[1e5] * 8] * 8 for name in rounds_ns})
    readings.between = {name: [(gap_ns, 1e5)] * 8 for name, gap_ns in rounds_ns.items()}

    def block(arm, calls, seeds):
        return TimedBlock(ticks_ns=[1e5] * calls, between_ns=[further_ns[arm]] * calls)

    return doubts.Doubts(engine_of(block, replaceable)), [readings]


AFTER = "works after the end of its calls: 90 us pass until the instrument goes on"


def test_what_passes_after_calls_of_a_busy_host_accuses_nobody():
    """Beside other tests, 60 us passed after the calls of the baseline, once in its only block: it was suspect."""
    about, readings = after_calls({"sdpa": 60_000, "mine": 1_000}, {"sdpa": 60_000, "mine": 1_000})
    assert (about._why_between("sdpa", readings), about._why_between("mine", readings)) == ("", "")
    about, readings = after_calls({"sdpa": 1_000, "mine": 90_000}, {"sdpa": 1_000, "mine": 2_000})
    assert about._why_between("mine", readings) == "", "further blocks do not show it"
    about, readings = after_calls({"sdpa": 1_000, "mine": 90_000}, {"sdpa": 50_000, "mine": 90_000})
    assert about._why_between("mine", readings) == "", "it passes after calls of the baseline, too"
    about, readings = after_calls({"sdpa": 1_000, "mine": 90_000}, {"sdpa": 1_000, "mine": 90_000})
    assert about._why_between("mine", readings) == AFTER


def test_work_after_calls_must_show_in_a_second_process():
    about, readings = after_calls({"sdpa": 1_000, "mine": 90_000}, {"sdpa": 1_000, "mine": 90_000}, replaceable=True)
    with pytest.raises(RetryInNewProcess):
        about._why_between("mine", readings)
    assert about._why_between("mine", readings) == AFTER


@pytest.mark.parametrize(
    ("foreign", "times", "accused"),
    [(0.0, 1.3, True), (0.77, 1.3, False), (0.77, 3.0, True)],
    ids=["quiet", "busy", "sure"],
)
def test_where_others_interrupt_calls_measure_gives_no_word_instead_of_accusing(foreign, times, accused):
    about, timed = uneven(False, foreign, times)
    assert about._why_uneven("mine", timed).startswith("some calls do the work of other calls") is accused
    why = about.unclear.get("mine", "")
    assert bool(why) is not accused and (accused or "they used 77% of the CPU time" in why)


def test_on_a_cpu_a_second_process_must_show_calls_that_work_for_others():
    about, timed = uneven(True, 0.77, 1.3)
    with pytest.raises(RetryInNewProcess):
        about._why_uneven("mine", timed)
    assert about._why_uneven("mine", timed).startswith("some calls do the work of other calls")
    about, timed = uneven(True, None, 1.3, cuda=True)
    assert about._why_uneven("mine", timed), "a GPU's calls are queued: nobody interrupts them"


@pytest.mark.parametrize("call_ns", [30e6, 150e6])
def test_noise_of_long_calls_is_not_caching(call_ns):
    """Of one call of each kind, one is the faster: with times that spread by 30%, 19 of 100 honest kernels were accused."""
    chance = random.Random(1)

    def probe(seeds, sights, in_turn):
        count = len(seeds) // (2 * in_turn + 3)
        kinds = ("seen_ns", "new_ns", "untouched_ns", "written_ns", "again_ns", "fresh_ns")
        return Probed(
            busy=[], **{kind: [call_ns * chance.lognormvariate(0, 0.3) for _ in range(count)] for kind in kinds}
        )

    accused = sum(bool(why_probed(probe, lambda: 1, call_ns, sets=2)) for _ in range(500))
    assert accused <= 20


CACHES = "the kernel caches results"


@pytest.mark.parametrize("foreign", [0.0, 0.77])
def test_on_a_cpu_a_second_process_must_show_that_long_calls_are_kept(foreign):
    """Where none can be asked, a busy host leaves it open."""
    reading = Reading("cpu", {"mine": [[3e7]] * 8}, host={"foreign": foreign})
    about = doubts.Doubts(engine_of(None, True))
    assert about._if_sure("mine", CACHES, 1e6, [reading]) == CACHES, "of short calls there are many values"
    with pytest.raises(RetryInNewProcess):
        about._if_sure("mine", CACHES, 3e7, [reading])
    assert about._if_sure("mine", CACHES, 3e7, [reading]) == CACHES
    about = doubts.Doubts(engine_of(None, False))
    assert about._if_sure("mine", CACHES, 3e7, [reading]) == ("" if foreign else CACHES)
    assert ("used 77% of the CPU time" in about.unclear.get("mine", "")) is bool(foreign)


@pytest.mark.parametrize("further_ns, accused", [(3e6, False), (9e6, True)])
def test_two_pairs_of_a_short_reading_accuse_nobody_of_working_ahead(monkeypatch, further_ns, accused):
    """Seen on a busy host with a kernel that works in a pool of threads."""
    about = doubts.Doubts(engine_of(None, True))
    about.engine.input_bytes, about.engine.rng = 393_216, random.Random(1)
    reading = Reading("cpu", {"mine": [[3e6]] * 5})
    reading.spots = {"mine": [(2_925_655.0, 7_297_774.0), (1_338_169.0, 7_156_039.0)]}
    ticks = {False: [3e6], True: [further_ns]}
    monkeypatch.setattr(about, "_block_at_once", lambda name, call_ns, at_once: ticks[at_once])
    if not accused:
        assert about._why_ahead("mine", [reading], 3e6) == ""
        return
    with pytest.raises(RetryInNewProcess):
        about._why_ahead("mine", [reading], 3e6)
    assert about._why_ahead("mine", [reading], 3e6).startswith("works before its calls: 3.0 times faster")


def test_values_of_timed_calls_exist_nowhere_before_the_untimed_call_has_ended():
    """Neither it, nor a finalizer that runs before it, nor a thread that looks through memory can work on them."""
    torch = pytest.importorskip("torch")
    bench, called, drawn = Bench("cpu"), [], []
    bench.open({"operation": "layer_norm", "sizes": {"rows": 64, "cols": 64}, "dtype": "float32"})
    bench.prepare(list(range(4)), 2)
    eager, draw = bench.arms.call("eager"), bench.sets.draw
    bench.arms.calls["eager"] = lambda x, *rest, **options: (called.append(x.clone()), eager(x, *rest, **options))[1]
    bench.sets.draw = lambda seed: (drawn.append((seed, len(called))), draw(seed))[1]
    bench.block("eager", 2, seeds=[10, 11])
    assert drawn == [(10, 1), (11, 1)] and len(called) == 3
    of_timed = [draw(seed).tensors[0] for seed in (10, 11)]
    assert not torch.equal(called[0], of_timed[0])
    assert all(torch.equal(*pair) for pair in zip(called[1:], of_timed, strict=True))


@pytest.mark.parametrize("sights, is_seen", [(10, False), (70, True)])
def test_who_keeps_results_after_many_sights_is_seen_by_as_many(sights, is_seen):
    """Judged by several probes together, as an arm is: on a busy host one of them alone may show what is not there."""
    torch = pytest.importorskip("torch")
    bench, met = Bench("cpu"), {}
    bench.open({"operation": "layer_norm", "sizes": {"rows": 512, "cols": 512}, "dtype": "float32"})
    bench.prepare(list(range(8)), 8)
    eager = bench.arms.call("eager")

    def works(*inputs, **options):
        time.sleep(0.002)
        return eager(*inputs, **options)

    def keeps(x, *rest, **options):
        value, count, out = met.get(x.data_ptr(), (None, 0, None))
        count = count + 1 if value == (value := x[0, 0].item()) else 0
        out = out if count > 40 else works(x, *rest, **options)
        met[x.data_ptr()] = value, count, out
        return out.clone() if count > 40 else out

    bench.arms.calls["eager"] = keeps
    seed = itertools.count()

    def probe(*, seeds, in_turn, **_):
        return bench.probe("eager", seeds, sights, in_turn)

    assert bool(why_probed(probe, lambda: next(seed), 2e6)) == is_seen
    assert all(torch.isfinite(tensor).all() for tensor in bench.sets[0].tensors)


def test_an_output_that_keeps_large_memory_shortens_blocks(monkeypatch):
    """PyTorch's mse_loss returns one number in memory of the size of its inputs: a thousand of them fill any GPU."""
    bench = Bench("cpu")
    bench.open({"operation": "mse_loss", "sizes": {"rows": 256, "cols": 256}, "dtype": "float32"})
    monkeypatch.setattr(bench.clock, "free_bytes", lambda: 40 * 256 * 256 * 4)
    bench.prepare(list(range(4)), 2)
    bench.block("functional", 2)
    assert len(bench.block("functional", 1000).ticks_ns) == 10
    bench.let_go()
    assert bench.held is None


# --- what was compiled ------------------------------------------------------------------------------------------------

COMPILES = '''import os
from pathlib import Path

from kernels.catalog import kernel

MADE = Path(os.environ["TRITON_CACHE_DIR"], "product")


@kernel("gemm", backend="triton")
def compiles(a, b):
    """Compiles once, and says whether it finds what was compiled."""
    if not getattr(compiles, "told", False):
        compiles.told = True
        print("finds it" if MADE.exists() else "compiles", flush=True)
        MADE.parent.mkdir(exist_ok=True)
        MADE.write_text("made")
    return a @ b
'''


def test_only_the_look_after_all_timing_finds_what_was_compiled(tmp_path, monkeypatch):
    """A kernel could change what another one's compiler wrote: no process that times may find it."""
    (tmp_path / "gemm").mkdir()
    (tmp_path / "gemm" / "compiles.py").write_text(COMPILES)
    (scratch := tmp_path / "scratch").mkdir()
    monkeypatch.setenv("KERNEL_PATH", str(tmp_path))
    monkeypatch.setenv(SHARED_VARIABLE, str(scratch))
    quick = {"min_rounds": 8, "max_rounds": 8, "warmup_s": 0.05, "verify_seeds": 1, "processes": 2}
    sizes = {"m": 64, "n": 64, "k": 64, "dtype": "float32"}
    config = Config(name="t", operation="gemm", kernels=["compiles"], workloads=[sizes], protocol=quick)
    device, events = find_device("cpu"), []
    known = Ceilings(copy_gb_per_s=100, read_gb_per_s=100)
    supervisor = Supervisor(RunSpec.of(config, device.uuid, ceilings=known), device, events.append)
    supervisor.run()
    said = [line for line in supervisor.log().splitlines() if line in ("finds it", "compiles")]
    assert said == ["compiles", "compiles", "finds it"]
    (seen,) = [
        one for event in events if event.kind == "crosschecked" for one in event.seen if one.kernel == "compiles"
    ]
    assert seen.check
    left = {str(folder) for folder in scratch.glob("benchsite-*/")}
    assert left <= {templates.now and templates.now.environment["TMPDIR"]}, "and nothing of it stays"


def test_kernels_of_one_file_share_its_module_in_a_process(tmp_path, monkeypatch):
    """As after an import: a declaration of an operator, which PyTorch takes once, stands in many such files."""
    pytest.importorskip("torch")
    (tmp_path / "layer_norm").mkdir()
    (tmp_path / "layer_norm" / "mine.py").write_text(
        "import torch.nn.functional as F\nfrom kernels.catalog import kernel\n\nSHARED = []\n"
        + "".join(
            f'\n\n@kernel("layer_norm", backend="pytorch")\ndef {name}(x, weight, bias, *, eps):\n    SHARED.append(1)\n'
            "    return F.layer_norm(x, x.shape[1:], weight, bias, eps)\n"
            for name in ("first", "second")
        )
    )
    monkeypatch.setenv("KERNEL_PATH", str(tmp_path))
    bench = Bench("cpu")
    bench.open({"operation": "layer_norm", "sizes": {"rows": 8, "cols": 8}, "dtype": "float32"})
    calls = [bench.arms.kernel(name).call for name in ("first", "second", "eager")]
    assert calls[0] is not calls[1]
    assert calls[0].__globals__["SHARED"] is calls[1].__globals__["SHARED"]
    assert bench.arms.kernel("first").source == bench.arms.kernel("second").source != bench.arms.kernel("eager").source


def test_who_remembers_results_is_not_said_to_work_for_others(monkeypatch):
    """Where values come again within a block, a kernel that remembers them has uneven blocks, too: the cause is named."""
    about, timed = uneven(True, 0.0, 3.0)
    monkeypatch.setattr(about.engine.session, "why_suspect", lambda name: "", raising=False)
    about.engine.seed, about.engine.end_what_is_busy = (lambda: 1), (lambda busy: False)
    kinds = {"seen_ns": 1e4, "new_ns": 1e5, "untouched_ns": 1e5, "written_ns": 1e5, "again_ns": 1e5, "fresh_ns": 1e5}
    probed = Probed(**{kind: [ns] * 7 for kind, ns in kinds.items()}, busy=[])
    about.engine.session.call = lambda do, limit_s, **asked: probed
    assert about.why("mine", timed) == "the kernel caches results: 10.0 times faster on inputs that it has seen"

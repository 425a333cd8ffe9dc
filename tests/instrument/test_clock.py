"""The clock on a simulated GPU: what it must not be fooled by, and what each way of timing really shows."""

import ctypes
import weakref
from statistics import median
from time import process_time_ns
from types import SimpleNamespace

import pytest
import torch
from simulated_gpu import L2_BYTES_PER_NS, MEMORY_BYTES_PER_NS, SimulatedGpu, Work

from kernels.child import runtime
from kernels.child.clock import LEAD_CYCLES, READABLE_GATE_NS, CpuClock, CudaClock
from kernels.child.runtime import CudaRuntime

US, MB = 1_000, 1_000_000
GATE = 1_000_000


def timed(gpu, work, count=20, gate_ns=GATE, flush=False):
    """Median time in us of calls that take their work by index."""
    block = CudaClock(gpu).block(lambda i: gpu.launch(work(i)), range(count), gate_ns, flush)
    return median(block.ticks_ns) / US


def compute(us):
    return lambda i: Work(us * US)


def reading(megabytes, sets):
    return lambda i: Work(100, reads={f"input {i % sets}": megabytes * MB})


# --- launch gaps ------------------------------------------------------------------------------------------------------


def test_behind_a_gate_the_clock_sees_the_kernel_and_without_one_the_host():
    gpu = SimulatedGpu(launch_ns=9 * US)
    assert timed(gpu, compute(2)) == pytest.approx(2)
    assert timed(gpu, compute(2), gate_ns=0) > 9


def test_a_gate_too_short_is_said_to_be():
    gpu = SimulatedGpu(launch_ns=10 * US)
    clock = CudaClock(gpu)

    def block(gate_ns):
        return clock.block(lambda i: gpu.launch(Work(3 * US)), range(50), gate_ns, False)

    assert block(2_000_000).gated
    assert not block(200_000).gated
    assert max(block(200_000).ticks_ns) > 9 * US, "which is why the parent measures such a block again"


def test_the_gate_tells_the_clock_of_the_device_in_the_stream():
    slow = SimulatedGpu(clock=lambda now: 0.5)
    block = CudaClock(slow).block(lambda i: slow.launch(Work(US)), range(4), GATE, False)
    assert block.sm_mhz == pytest.approx(990, rel=0.01)
    short = CudaClock(slow).block(lambda i: slow.launch(Work(US)), range(4), READABLE_GATE_NS // 8, False)
    assert short.sm_mhz is None, "what starting it takes would be a large part of it"


def test_work_on_another_stream_is_not_in_the_ticks_and_so_must_be_caught_elsewhere():
    gpu = SimulatedGpu()
    gpu.streams["side"] = 0.0

    def hidden(i):
        gpu.stream = "side"
        gpu.launch(Work(500 * US))
        gpu.stream = "main"

    block = CudaClock(gpu).block(hidden, range(10), GATE, False)
    assert median(block.ticks_ns) < 10 * US
    begin = gpu.host
    gpu.synchronize()
    assert gpu.streams["side"] - block.enqueue_ns > 4_000 * US
    assert begin >= gpu.streams["side"], "the block waits for all streams, so the parent's own clock sees it"


# --- L2 ---------------------------------------------------------------------------------------------------------------


def test_sets_that_cover_five_times_l2_are_read_from_memory_and_one_buffer_from_l2():
    cold, warm = timed(SimulatedGpu(), reading(20, sets=16)), timed(SimulatedGpu(), reading(20, sets=1))
    assert cold == pytest.approx(20 * MB / MEMORY_BYTES_PER_NS / US, rel=0.01)
    assert warm == pytest.approx(20 * MB / L2_BYTES_PER_NS / US, rel=0.01)


def test_too_few_sets_stay_in_l2_and_a_read_flush_empties_it():
    few = reading(10, sets=3)
    assert timed(SimulatedGpu(), few) == pytest.approx(10 * MB / L2_BYTES_PER_NS / US, rel=0.01)
    assert timed(SimulatedGpu(), few, flush=True) == pytest.approx(10 * MB / MEMORY_BYTES_PER_NS / US, rel=0.01)


def test_a_flush_by_writing_would_put_its_write_back_on_the_kernels_time():
    gpu = SimulatedGpu()
    gpu.evict = lambda: gpu.launch(Work(0, writes={"evicting": 2 * gpu.cache_bytes}))
    assert timed(gpu, reading(10, sets=3), flush=True) > 2 * timed(SimulatedGpu(), reading(10, sets=3), flush=True)


# --- other ways of timing ---------------------------------------------------------------------------------------------


def test_a_graphs_tick_is_one_call_and_has_no_launch_in_it():
    gpu = SimulatedGpu(launch_ns=9 * US)
    graph = CudaClock(gpu).capture(lambda i: gpu.launch(Work(2 * US)), range(30))
    block = graph.block(4, GATE, False)
    assert block.ticks_ns == pytest.approx([2 * US] * 4)


class Skips:
    """A graph that leaves its work out where its output holds a number already."""

    def __init__(self, gpu, outputs):
        self.gpu, self.outputs = gpu, outputs

    def replay(self):
        for out in self.outputs:
            if out.isnan().any():
                self.gpu._run(Work(20 * US))
                out.fill_(1.0)


def test_a_replay_that_leaves_out_what_is_written_already_gets_nothing_by_it():
    """Its output was poisoned before an untimed replay, which wrote it again: so it looked 20 us faster."""
    gpu = SimulatedGpu()
    outputs = [torch.zeros(8) for _ in range(4)]
    gpu.capture = lambda call, indices: (Skips(gpu, outputs), outputs)
    graph = CudaClock(gpu).capture(lambda i: outputs[i], range(4))
    graph.launch()
    assert graph.block(3, GATE, False).ticks_ns == pytest.approx([20 * US] * 3)


def test_what_the_poison_leaves_in_the_cache_is_evicted_before_the_replay():
    """Its dirty lines would be written back in the replay's time, more for an arm that writes more."""

    def replays(evicts):
        gpu = SimulatedGpu()
        graph = CudaClock(gpu).capture(lambda i: gpu.launch(Work(100, reads={f"in {i}": 8 * MB})), range(4))
        graph.poison = lambda: gpu.launch(Work(0, writes={"outputs": 50 * MB}))
        if not evicts:
            gpu.evict = lambda: None
        return median(graph.block(3, GATE, False).ticks_ns)

    from_memory = 8 * MB / MEMORY_BYTES_PER_NS
    assert replays(evicts=True) == pytest.approx(from_memory, rel=0.01)
    assert replays(evicts=False) != pytest.approx(from_memory, rel=0.1)


def test_host_time_has_the_dispatch_in_it():
    gpu = SimulatedGpu(launch_ns=9 * US)
    block = CudaClock(gpu).host_block(lambda i: gpu.launch(Work(2 * US)), range(10))
    assert block.ticks_ns == pytest.approx([11 * US] * 10)


def test_sustained_shows_a_clock_that_falls_and_a_short_block_does_not():
    throttled = {"clock": lambda now: 1.0 if now < 500e6 else 0.8}
    short, long = SimulatedGpu(**throttled), SimulatedGpu(**throttled)
    assert timed(short, compute(100)) == pytest.approx(100)
    block = CudaClock(long).sustained(lambda i: long.launch(Work(100 * US)), 1, 200, lead=50, chunks=20)
    assert block.ticks_ns == pytest.approx([125 * US] * 20, rel=0.01)


def test_sustained_has_no_pause_between_chunks():
    gpu = SimulatedGpu()
    block = CudaClock(gpu).sustained(lambda i: gpu.launch(Work(50 * US)), 1, 10, lead=2, chunks=5)
    assert block.ticks_ns == pytest.approx([50 * US] * 5)


@pytest.mark.parametrize("clock", (CudaClock(SimulatedGpu()), CpuClock()), ids=("cuda", "cpu"))
def test_all_outputs_of_a_block_live_until_it_ends(clock):
    """Else a call could see by a weak reference which one is kept."""
    seen = []

    class Out:
        pass

    def call(index):
        assert all(one() is not None for one in seen), "an output was dropped during the block"
        seen.append(weakref.ref(out := Out()))
        return out

    blocks = [clock.block(call, range(10), 0, False)]
    if clock.kind == "cuda":
        blocks.append(clock.host_block(call, range(10)))
    assert [len(block.outputs) for block in blocks] == [10] * len(blocks)


# --- CUDA, as far as it goes without ----------------------------------------------------------------------------------


@pytest.fixture
def cuda(monkeypatch):
    """torch.cuda with a device of our making."""

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            done.append("record")

        def elapsed_time(self, other):
            return 0.25

    done = []
    properties = SimpleNamespace(L2_cache_size=50 * 2**20)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: done.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: done.append(cycles))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())  # the driver
    return done


def test_the_cuda_runtime_does_what_the_clock_asks(cuda):
    block = CudaClock(CudaRuntime()).block(lambda i: cuda.append("call"), range(2), GATE, False)
    assert cuda == [LEAD_CYCLES, "record", 2 * GATE, "record", *["record", "call", "record"] * 2, "synchronize"]
    assert block.ticks_ns == [250_000.0] * 2
    assert block.gate_ns == 250_000.0


def test_what_a_kernel_replaces_later_changes_nothing(cuda, monkeypatch):
    clock = CudaClock(CudaRuntime())
    for name in ("_sleep", "synchronize", "Event"):
        monkeypatch.setattr(torch.cuda, name, None)
    monkeypatch.setattr(runtime, "perf_counter_ns", None)
    assert clock.block(lambda i: None, range(2), GATE, False).ticks_ns == [250_000.0] * 2


def test_cpu_time_is_read_around_each_call():
    """Its sum over a block says nothing of one call, where a kernel works on several threads."""

    def work(index):
        end = process_time_ns() + (20_000_000 if index == 2 else 2_000_000)
        while process_time_ns() < end:
            pass

    block = CpuClock().block(work, range(4), 0, False)
    assert [spent > 15_000_000 for spent in block.cpu_ns] == [False, False, True, False]

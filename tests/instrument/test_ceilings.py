"""What a device was measured to reach: as rates, as a limit where no datasheet is known, and against times above it."""

import contextlib
import random
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from kernels.analysis import roofline
from kernels.analysis.ceilings import ceilings, why_unsteady
from kernels.analysis.peaks import peak_of
from kernels.child import calibrate
from kernels.child.clock import CpuClock
from kernels.contract.events import Calibrated, CrossChecked
from kernels.contract.replies import CeilingFigure, CeilingSamples
from kernels.host.device import Device
from kernels.parent import calibration, supervisor
from kernels.parent.arm import Arm
from kernels.parent.engine import Engine, Timed
from kernels.parent.groups import MAIN, Group
from kernels.parent.reading import Reading
from kernels.protocol import Protocol
from kernels.workload import Ceilings, Config, RunSpec, Workload

CEILINGS = Ceilings(
    copy_gb_per_s=4250.0,
    read_gb_per_s=4000.0,
    matmul_tflops={"float16": 761.0},
    empty_us={"cold": 3.4, "graph": 0.9},
)
PRODUCT = Workload(operation="gemm", sizes={"m": 8192, "n": 8192, "k": 8192})
TERAFLOP = PRODUCT.problem.flops() / 1e12
L2 = 60 * 2**20


def ms_at(tflops):
    return TERAFLOP / tflops * 1e3


def raw(copy_ns=(500_000.0,) * 24, matmul_ns=(1_250_000.0,) * 24):
    """What a calibration reads: blocks of two calls."""

    def blocks(ns):
        return [[each, each] for each in ns]

    return CeilingSamples(
        figures=[
            CeilingFigure(name="copy_gb_per_s", bytes=2 * 2**30, blocks_ns=blocks(copy_ns)),
            CeilingFigure(name="read_gb_per_s", bytes=2**30, blocks_ns=blocks([250_000.0] * 24)),
            CeilingFigure(name="float16", flops=10**12, blocks_ns=blocks(matmul_ns)),
            CeilingFigure(name="graph", blocks_ns=[[900.0, 1000.0, 800.0], [950.0]] * 12),
        ]
    )


def test_raw_ticks_become_rates_with_intervals():
    found = ceilings(raw(copy_ns=[500_000.0, 499_000.0, 501_000.0] * 8))
    assert found.copy_gb_per_s == pytest.approx(2 * 2**30 / 500_000)
    assert found.intervals["copy_gb_per_s"] == (pytest.approx(2 * 2**30 / 501_000), pytest.approx(2 * 2**30 / 499_000))
    assert found.matmul_tflops == {"float16": pytest.approx(800)}
    assert found.intervals["float16"] == (found.matmul_tflops["float16"], found.matmul_tflops["float16"])
    assert found.empty_us == {"graph": pytest.approx(0.925)}
    assert set(found.intervals) == {"copy_gb_per_s", "read_gb_per_s", "float16", "graph"}
    for name, value in (("copy_gb_per_s", found.copy_gb_per_s), ("graph", found.empty_us["graph"])):
        low, high = found.intervals[name]
        assert low <= value <= high, name
    assert found.n == 48


def test_an_interval_of_a_ceiling_covers_what_it_says():
    """Blocks that scatter by 2%: the true rate is in the interval in 99 of 100 calibrations, here at least 97."""
    rng, held = random.Random(1), 0
    for _ in range(300):
        found = ceilings(raw(copy_ns=[500_000 * rng.gauss(1, 0.02) for _ in range(24)]))
        low, high = found.intervals["copy_gb_per_s"]
        held += low <= 2 * 2**30 / 500_000 <= high
    assert held >= 291


def test_a_cpu_is_calibrated_for_real():
    found = ceilings(calibrate.probe(CpuClock()))
    assert 0.1 < found.copy_gb_per_s < 2000
    assert 1e-4 < found.matmul_tflops["float32"] < 100
    assert found.n in (2 * calibrate.ROUNDS["cpu"], 2 * calibrate.LOOK), "the latter on a busy machine"


# --- refused from a busy device ---------------------------------------------------------------------------------------


def test_a_quiet_device_is_not_noisy():
    rng = random.Random(2)
    for _ in range(50):
        assert why_unsteady(raw(matmul_ns=[1_250_000 * rng.gauss(1, 0.004) for _ in range(24)])) == ""


def test_a_device_that_differs_from_itself_is_too_busy_for_its_ceilings():
    rng = random.Random(3)
    busy = [500_000 * rng.choice((1.0, 1.6)) for _ in range(24)]
    assert why_unsteady(raw(copy_ns=busy)).startswith("A/A of the device copy gives a margin of ")
    assert why_unsteady(raw(matmul_ns=busy)).startswith("A/A of the matrix product in float16 gives a margin of ")


class Watch:
    """Telemetry that sees these processes, at each look, and this share of the cores taken by others."""

    def __init__(self, looks, foreign):
        self.looks = list(looks)
        self.load = SimpleNamespace(begin=lambda: None, end=lambda: {"foreign": foreign})

    def others(self):
        return self.looks.pop(0)


@pytest.mark.parametrize(
    "kind, looks, foreign, noisy, said",
    [
        ("cuda", ([], []), 0.0, False, ""),
        ("cuda", ([4711], []), 0.0, False, "another program used the device (process 4711)"),
        ("cuda", ([], [4711, 4712]), 0.0, False, "another program used the device (2 processes)"),
        ("cuda", ([], []), 0.0, True, "the device was busy or unsteady: A/A of the device copy gives a margin of"),
        ("cuda", ([], []), 0.6, False, ""),
        ("cpu", ([], []), 0.04, False, ""),
        ("cpu", ([], []), 0.43, False, "other processes used 43% of the CPU time"),
    ],
)
def test_ceilings_are_refused_from_a_busy_device(kind, looks, foreign, noisy, said):
    ticks = [500_000.0, 900_000.0, 500_000.0, 500_000.0] * 6 if noisy else [500_000.0] * 24
    child = SimpleNamespace(call=lambda do, limit_s: raw(copy_ns=ticks))
    event = calibration.calibrate(child, Device(kind, "GPU-1", "NVIDIA H200", driver="580"), Watch(looks, foreign))
    assert event.driver == "580"
    assert event.refused.startswith(said) if said else event.refused == ""
    assert (event.ceilings is None) == bool(said)


@pytest.mark.parametrize("foreign, asked", [(0.04, True), (0.2, True), (0.43, False)])
def test_a_cpu_that_others_use_is_not_calibrated_only_to_be_refused(foreign, asked):
    calls = []
    child = SimpleNamespace(call=lambda do, limit_s: calls.append(do) or raw())
    calibration.calibrate(child, Device("cpu", "CPU-1", "AMD EPYC"), Watch(([], []), foreign))
    assert bool(calls) == asked


@pytest.fixture
def supervised(monkeypatch):
    """(calibrated events, ceilings that the workloads were compared with) of a run on a device that was busy so often,
    and whose workloads had these margins."""

    def run(busy, margins, ceilings=None):
        events, held, answers = [], [], iter([*["busy"] * busy, *[""] * 9])

        def calibrated(child, device, watch):
            refused = next(answers)
            return Calibrated(refused=refused, ceilings=None if refused else CEILINGS)

        class One:
            def __init__(self, context, workload, before):
                held.append(context.ceilings)
                self.arms, self.margin = [], margins[len(held) - 1]

            def measure(self):
                return [SimpleNamespace(margin=self.margin)]

        monkeypatch.setattr(supervisor, "calibrate", calibrated)
        monkeypatch.setattr(supervisor, "WorkloadRun", One)
        monkeypatch.setattr(supervisor, "crosscheck", lambda context, statuses: CrossChecked(seen=[]))
        monkeypatch.setattr(supervisor, "locked", lambda *_: contextlib.nullcontext())
        workloads = [Workload(operation="gemm", sizes={"m": n, "n": 8, "k": 8}) for n in range(1, 1 + len(margins))]
        config = Config(name="one", operation="gemm", kernels=["eager"], workloads=[w.model_dump() for w in workloads])
        device = Device("cuda", "GPU-1", "a GPU")
        one = supervisor.Supervisor(RunSpec.of(config, "CPU-1", ceilings=ceilings), device, events.append)
        one.session = SimpleNamespace(
            wait_ready=lambda: {"device": "a CPU"},
            child=SimpleNamespace(wait_ready=dict),
            replace=lambda: None,
            replace_after_timing=lambda: None,
            close=lambda: None,
        )
        one.run()
        return [event for event in events if isinstance(event, Calibrated)], held

    return run


def test_refused_ceilings_are_measured_again_at_the_end_of_the_run(supervised):
    events, held = supervised(busy=1, margins=[0.01])
    assert [event.refused for event in events] == ["busy", ""]
    assert held == [None], "nothing is compared with ceilings of a busy device"


def test_ceilings_are_measured_again_if_the_device_was_busy_during_the_run(supervised):
    events, _ = supervised(busy=0, margins=[0.01, 3.24])
    assert [event.refused for event in events] == ["", ""]


def test_quiet_ceilings_are_measured_once(supervised):
    events, held = supervised(busy=0, margins=[0.01, 0.04])
    assert [event.refused for event in events] == [""]
    assert held == [CEILINGS, CEILINGS]


def test_known_ceilings_are_not_measured_whatever_the_noise(supervised):
    assert supervised(busy=0, margins=[3.24], ceilings=CEILINGS)[0] == []


def test_an_event_has_ceilings_or_the_reason_why_not():
    for fields in ({}, {"ceilings": CEILINGS, "refused": "busy"}):
        with pytest.raises(ValidationError, match="measured or refused"):
            Calibrated(**fields)


# --- as a limit -------------------------------------------------------------------------------------------------------


def test_without_a_datasheet_the_limit_is_what_was_measured():
    measured = roofline.speed_of_light_ms(PRODUCT.problem, None, CEILINGS, "cold")
    assert measured == pytest.approx(ms_at(761))
    peak = peak_of("NVIDIA H200")
    assert roofline.speed_of_light_ms(PRODUCT.problem, peak, CEILINGS, "cold") == pytest.approx(
        ms_at(1070.53), rel=1e-5
    )
    assert roofline.speed_of_light_ms(PRODUCT.problem, None, None) is None
    bf16 = Workload(operation="gemm", dtype="bfloat16", sizes={"m": 64, "n": 64, "k": 64})
    assert roofline.speed_of_light_ms(bf16.problem, None, CEILINGS) is None, "that was not measured"


def test_no_kernel_is_faster_than_an_empty_one_in_its_mode():
    tiny = Workload(operation="attention", sizes={"batch": 1, "heads": 1, "seq_len": 64, "head_dim": 64}).problem
    peak = peak_of("NVIDIA H200")
    assert roofline.speed_of_light_ms(tiny, peak, CEILINGS, "graph") == pytest.approx(0.9e-3)
    assert roofline.speed_of_light_ms(tiny, peak, CEILINGS, "cold") == pytest.approx(3.4e-3)
    assert roofline.speed_of_light_ms(tiny, peak, CEILINGS, "sustained") < 0.1e-3


@pytest.mark.parametrize(
    "tflops, said",
    [
        (700, ""),
        (722, ""),
        (724, "724 TFLOP/s is above 95% of this device's matrix product (761 TFLOP/s)"),
        (790, "790 TFLOP/s"),
    ],
)
def test_a_product_near_the_measured_one_is_to_be_measured_again(tflops, said):
    why = roofline.why_above(PRODUCT.problem, ms_at(tflops), CEILINGS, touched_once=True, cache_bytes=L2)
    assert (said in why) if said else not why


def test_bytes_above_the_measured_bandwidth_count_only_if_they_came_from_memory():
    norm = Workload(operation="layer_norm", sizes={"rows": 65536, "cols": 4096}).problem
    read, written = norm.bytes_moved()
    ms = (read + written - L2) / (4400 * 1e6)
    assert "4400 GB/s is above 103%" in roofline.why_above(norm, ms, CEILINGS, touched_once=True, cache_bytes=L2)
    assert not roofline.why_above(norm, ms, CEILINGS, touched_once=False, cache_bytes=L2)
    assert not roofline.why_above(norm, ms * 1.05, CEILINGS, touched_once=True, cache_bytes=L2)
    assert not roofline.why_above(norm, ms, None, touched_once=True, cache_bytes=L2)


# --- measured again in a new process ----------------------------------------------------------------------------------


@pytest.fixture
def measured(monkeypatch):
    """(result of the timing, processes it took) when the product is timed at so many TFLOP/s, process after process.

    A pair is the product's and the baseline's, which else is 600.
    """

    def timed(*rates, kind="cuda"):
        replaced = []
        engine = Engine(
            session=SimpleNamespace(replaceable=True, replace=lambda: replaced.append(1)),
            open=lambda afresh: None,
            problem=PRODUCT.problem,
            arms=[Arm("eager"), Arm("mine")],
            baseline="eager",
            plan=Protocol(),
            judge=None,
            checks=[],
            rng=None,
            cuda=kind == "cuda",
            telemetry=None,
            ceilings=CEILINGS,
            l2_bytes=L2,
        )
        asked = iter(rates)

        def groups(arms):
            rate = next(asked)
            mine, base = (ms_at(each) * 1e6 for each in (rate if isinstance(rate, tuple) else (rate, 600)))
            reading = Reading("cold", {"eager": [[base]] * 5, "mine": [[mine]] * 5}, sets=8)
            return [Timed(Group(MAIN, "cold", tuple(a.name for a in arms)), arms, reading)]

        monkeypatch.setattr(engine, "_groups", groups)
        (found,) = engine.time()
        return {arm.name: arm for arm in engine.arms}, found.reading, len(replaced)

    return timed


def test_what_a_second_process_confirms_stands_and_says_so(measured):
    arms, reading, replaced = measured(755, 750)
    assert (arms["mine"].status, replaced) == ("ok", 1)
    assert len(reading.notes) == 1
    assert reading.notes[0].startswith("mine: 750 TFLOP/s is above 95%")
    assert "a second process agrees" in reading.notes[0]


def test_what_a_second_process_does_not_confirm_is_suspect(measured):
    arms, _, replaced = measured(900, 750)
    assert (arms["mine"].status, replaced) == ("suspect", 1)
    assert "a second process measured another time: " in arms["mine"].why
    assert arms["eager"].status == "ok"


def test_what_was_chance_the_first_time_is_forgotten(measured):
    arms, reading, replaced = measured(760, 700)
    assert (arms["mine"].status, reading.notes, replaced) == ("ok", [], 1)


def test_an_honest_time_is_measured_once(measured):
    arms, reading, replaced = measured(700)
    assert (arms["mine"].status, reading.notes, replaced) == ("ok", [], 0)


def test_a_cpu_has_no_ceiling_that_holds_against_it(measured):
    assert measured(5000, kind="cpu")[2] == 0


def test_a_clock_that_moved_for_everybody_makes_nobody_suspect(measured):
    """The product is 10% slower in the second process, and so is the baseline; it is above the ceiling in both."""
    arms, reading, replaced = measured((900, 700), (810, 630))
    assert (arms["mine"].status, arms["eager"].status, replaced) == ("ok", "ok", 1)
    assert "a second process agrees" in reading.notes[0]


def test_a_steady_kernel_does_not_answer_for_a_baseline_that_moved(measured):
    arms, reading, _ = measured((760, 700), (755, 630))
    assert arms["mine"].status == "ok"
    assert "a second process agrees" in reading.notes[0]


def test_the_baseline_is_the_yardstick_and_not_suspected(measured):
    arms, _, _ = measured((700, 900), (700, 800))
    assert arms["eager"].status == "ok"

"""What a device was measured to reach: as rates, as a limit where no datasheet is known, and against times above it."""

from types import SimpleNamespace

import pytest

from kernels.analysis import roofline
from kernels.analysis.ceilings import ceilings
from kernels.child import calibrate
from kernels.child.clock import CpuClock
from kernels.contract.replies import CeilingSamples, Moved, Multiplied
from kernels.parent.arm import Arm
from kernels.parent.engine import Engine, Timed
from kernels.parent.groups import MAIN, Group
from kernels.parent.rounds import Reading
from kernels.workload import Ceilings, Protocol, Workload

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


def test_raw_ticks_become_rates():
    raw = CeilingSamples(
        copied=Moved(bytes=2 * 2**30, ticks_ns=[500_000.0, 400_000.0, 900_000.0]),
        read=Moved(bytes=2**30, ticks_ns=[250_000.0] * 3),
        matmul={"float16": Multiplied(flops=10**12, ticks_ns=[1_250_000.0] * 3)},
        empty={"graph": [900.0, 1000.0, 800.0]},
    )
    found = ceilings(raw)
    assert found.copy_gb_per_s == pytest.approx(2 * 2**30 / 500_000)
    assert found.matmul_tflops == {"float16": pytest.approx(800)}
    assert found.empty_us == {"graph": 0.9}
    assert found.n == 3


def test_a_cpu_is_calibrated_for_real():
    found = ceilings(calibrate.probe(CpuClock()))
    assert 0.1 < found.copy_gb_per_s < 2000
    assert 1e-4 < found.matmul_tflops["float32"] < 100
    assert found.n == calibrate.CALLS


def test_without_a_datasheet_the_limit_is_what_was_measured():
    measured = roofline.speed_of_light_ms(PRODUCT.problem, None, CEILINGS, "cold")
    assert measured == pytest.approx(ms_at(761))
    peak = roofline.peak_of("NVIDIA H200")
    assert roofline.speed_of_light_ms(PRODUCT.problem, peak, CEILINGS, "cold") == pytest.approx(ms_at(989.4))
    assert roofline.speed_of_light_ms(PRODUCT.problem, None, None) is None
    bf16 = Workload(operation="gemm", dtype="bfloat16", sizes={"m": 64, "n": 64, "k": 64})
    assert roofline.speed_of_light_ms(bf16.problem, None, CEILINGS) is None, "that was not measured"


def test_no_kernel_is_faster_than_an_empty_one_in_its_mode():
    tiny = Workload(operation="attention", sizes={"batch": 1, "heads": 1, "seq_len": 64, "head_dim": 64}).problem
    peak = roofline.peak_of("NVIDIA H200")
    assert roofline.speed_of_light_ms(tiny, peak, CEILINGS, "graph") == pytest.approx(0.9e-3)
    assert roofline.speed_of_light_ms(tiny, peak, CEILINGS, "cold") == pytest.approx(3.4e-3)
    assert roofline.speed_of_light_ms(tiny, peak, CEILINGS, "sustained") < 0.1e-3


@pytest.mark.parametrize(
    "tflops, said",
    [
        (700, ""),
        (722, ""),
        (724, "724 TFLOP/s is above 95% of this device's matrix product (761)"),
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

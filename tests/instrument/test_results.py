"""From readings to results: what is compared with what."""

import pytest
from simulations import BASE, US, bench_of

from kernels.analysis.peaks import peak_of
from kernels.analysis.verdicts import verdict
from kernels.contract.arm_result import Status, Verdict
from kernels.contract.events import Measured
from kernels.contract.replies import Fault
from kernels.parent.arm import Arm
from kernels.parent.child_process import CommandFailed
from kernels.parent.reading import joined
from kernels.parent.results import Limits, arm_results, reading_fields
from kernels.workload import Workload

WORKLOAD = Workload(operation="gemm", sizes={"m": 256, "n": 256, "k": 256})


@pytest.fixture
def reading(measure):
    return measure(bench_of(other=150 * US), mode="cold", precision=1.0)


def results(reading, device="a GPU", **status):
    arms = [Arm(name, status.get(name, Status.OK)) for name in (BASE, "other")]
    return arm_results(arms, reading, BASE, Limits(WORKLOAD.problem, device, peak_of(device)), 1)


def test_a_kernel_is_compared_with_its_baseline(reading):
    base, other = results(reading)
    assert (base.speedup, other.speedup) == (None, pytest.approx(200 / 150, rel=0.01))
    assert reading.notes == []


def test_the_log_is_what_the_compiler_said_unless_the_kernel_failed(reading):
    said = Arm(BASE, facts={"log": "a warning", "registers": 40})
    failed = Arm("other", Status.FAILED, "CompileError: ...", "mine.cu(3): error", facts={"log": "a warning"})
    results = arm_results([said, failed], None, BASE, Limits(WORKLOAD.problem, "a GPU"), 1)
    assert [(one.log, one.registers) for one in results] == [("a warning", 40), ("mine.cu(3): error", None)]


@pytest.mark.parametrize(("rounds", "compared"), [(1, False), (4, False), (5, True)])
def test_too_few_rounds_make_no_ratio_and_no_a_a(measure, rounds, compared):
    """One round has no spread: its interval would have no width, and 2x would look certain."""
    reading = measure(
        bench_of(base_ns=300 * US, other=150 * US), mode="cold", min_rounds=rounds, max_rounds=rounds, warmup_s=0.0
    )
    base, other = results(reading)
    fields = reading_fields(reading, BASE, "a GPU")
    assert (other.speedup is not None, fields["aa"] is not None) == (compared, compared)
    assert other.status == Status.OK and other.rounds == rounds and other.p50_ms == pytest.approx(0.150, rel=0.05)
    event = Measured(workload=WORKLOAD, mode="cold", baseline=BASE, results=[base, other], **fields)
    assert verdict(other, event) == (Verdict.UNKNOWN if compared else Verdict.NEEDS_MORE)


@pytest.mark.parametrize("status", [Status.INCORRECT, Status.SUSPECT])
def test_no_ratio_is_made_over_a_baseline_that_is_not_ok(reading, status):
    """Its outputs may be wrong when timed only, or its time not its own."""
    base, other = results(reading, **{BASE: status})
    assert (base.status, other.status, other.speedup, other.speedup_low) == (status, Status.OK, None, None)
    assert other.p50_ms == pytest.approx(0.150, rel=0.05), "its own time stands"
    assert reading.notes == [f"the baseline base is {status}: nothing is compared with it"]


def test_a_baseline_that_is_impossibly_fast_compares_nothing(measure):
    fast = measure(bench_of(base_ns=0.001 * US, other=150 * US), mode="cold", precision=1.0)
    base, other = results(fast, "NVIDIA H100 80GB HBM3")
    assert (base.status, other.status, other.speedup) == (Status.IMPOSSIBLE, Status.OK, None)


def test_the_contract_takes_such_ratios_from_older_agents_away(reading):
    """They are no reason to refuse what an agent has measured."""
    base, other = results(reading)
    failed = base.model_copy(update={"status": Status.SUSPECT})
    event = Measured(workload=WORKLOAD, mode="cold", baseline=BASE, margin=0.01, results=[failed, other])
    assert event.results[1].speedup is None
    assert event.results[1].p50_ms == other.p50_ms
    assert event.base is None, "nor is its time shown as one to compare with"


def test_of_several_processes_the_busiest_counts(measure):
    readings = [measure(bench_of(other=150 * US), mode="cold", precision=1.0) for _ in range(3)]
    for reading, host in zip(readings, (None, {"foreign": 0.4}, {"foreign": 0.01}), strict=True):
        reading.host = host
    assert joined(readings).host == {"foreign": 0.4}
    assert joined(readings[:1]).host is None


def test_the_load_of_the_host_marks_what_ran_on_its_cpu(reading):
    shared = reading_fields(reading, BASE, "a CPU") | {
        "workload": WORKLOAD,
        "baseline": BASE,
        "results": results(reading),
    }
    for mode, foreign, contended in (("cpu", 0.06, True), ("cpu", 0.05, False), ("cold", 0.9, False)):
        event = Measured(**shared, mode=mode, telemetry={"host": {"foreign": foreign}})
        assert event.is_contended is contended, (mode, foreign)
    assert not Measured(**shared, mode="cpu").is_contended, "unknown"


def test_what_a_kernel_printed_stands_above_its_exception():
    """Who looks for a fault prints values: they were shown only of a process that died."""
    fault = Fault(kind="raised", message="shapes differ", traceback="Traceback ...\nValueError: shapes differ")
    arm = Arm("mine")
    arm.blame("in its own process", CommandFailed(fault), "x: (3, 4)\n")
    assert (arm.status, arm.why) == (Status.FAILED, "shapes differ")
    assert arm.log == "x: (3, 4)\n\nTraceback ...\nValueError: shapes differ"
    quiet = Arm("mine")
    quiet.blame("in its own process", CommandFailed(fault), "\n")
    assert quiet.log == fault.traceback

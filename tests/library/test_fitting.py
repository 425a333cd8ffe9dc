"""An event that is too large for the site is cut to fit, and says what was left out."""

import pytest

from kernels.contract.arm_result import ArmResult
from kernels.contract.events import Examined, Finished, Measured
from kernels.contract.fitting import MAX_EVENT_BYTES, fitted, size
from kernels.contract.profile import Profile, Timeline
from kernels.workload import Workload

WORKLOAD = Workload(operation="attention", sizes={"batch": 1, "heads": 2, "seq_len": 16, "head_dim": 64})
MOST = 20_000


def arm(kernel, **more):
    times = {"n": 1, "rounds": 1, "p50_ms": 1.0, "p50_low_ms": 1.0, "p50_high_ms": 1.0, "samples_ns": [[1.0]]}
    return ArmResult(kernel=kernel, **times | more)


def measured(*results, **more):
    return Measured(workload=WORKLOAD, mode="cpu", baseline="sdpa", margin=0.01, results=results, **more)


def test_what_fits_stays_as_it_is():
    event = measured(arm("sdpa"))
    assert fitted(event) is event


def test_a_kernel_file_of_20_mb_costs_no_result():
    other = arm("big", source="#" * (20 * 2**20), speedup=2.0, speedup_low=1.9, speedup_high=2.1)
    event = fitted(measured(arm("sdpa", source="def sdpa(): ..."), other))
    assert size(event) < MAX_EVENT_BYTES
    sdpa, big = event.results
    assert (sdpa.source, sdpa.samples_ns) == ("def sdpa(): ...", [[1.0]])
    assert (big.speedup, big.samples_ns) == (2.0, [[1.0]])
    assert big.source.endswith("of 20971520 characters]")


def test_samples_go_before_results():
    many = [[float(n) for n in range(10_000)]]
    event = fitted(measured(arm("sdpa", samples_ns=many), aa_samples_ns=many), MOST)
    assert size(event) <= MOST
    assert (event.results[0].p50_ms, event.results[0].samples_ns, event.aa_samples_ns) == (1.0, None, None)
    assert event.notes == ["its samples are not kept: they are too large"]


def test_a_result_that_cannot_be_made_to_fit_says_so_and_leaves_the_others():
    event = fitted(measured(arm("sdpa"), arm("eager", hint="x" * 50_000)), MOST)
    assert size(event) <= MOST
    sdpa, eager = event.results
    assert (sdpa.status, sdpa.p50_ms, eager.status) == ("ok", 1.0, "failed")
    assert "too many to store" in eager.why


@pytest.mark.parametrize("field", ["message", "log"])
def test_an_ending_keeps_its_state(field):
    event = fitted(Finished(state="failed", **{field: "x" * (20 * 2**20)}))
    assert (event.state, size(event) < MAX_EVENT_BYTES) == ("failed", True)


def test_a_profile_goes_without_its_trace():
    timeline = Timeline(call_ns=2.0, enqueue_ns=1.0, table="operators", trace="A" * 2 * MOST)
    event = fitted(Examined(profile=Profile(key="k", kernel="mine", timeline=timeline)), MOST)
    kept = event.profile.timeline
    assert (kept.table, kept.trace, kept.trace_missing) == ("operators", "", "the trace is not kept: it is too large")

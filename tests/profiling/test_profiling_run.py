"""A run of the site that profiles: real processes on the CPU, and what it says to the site."""

import pytest

from kernels.contract.events import Examined, Started
from kernels.host.device import find_device
from kernels.parent.child_process import Cancelled
from kernels.profiling.profiling_run import ProfilingRun
from kernels.protocol import Protocol
from kernels.workload import RunSpec

SPEC = {
    "operation": "gelu",
    "kernels": ["functional", "eager"],
    "baseline": "functional",
    "protocol": Protocol(),
    "workloads": [{"operation": "gelu", "dtype": "float32", "sizes": {"rows": 64, "cols": 256}}],
}


def profiling_run(emit, **more):
    device = find_device("cpu")
    return ProfilingRun(RunSpec(device=device.uuid, profile="eager", **SPEC), device, emit, **more)


def test_it_profiles_the_kernel_that_was_asked_for_and_measures_nothing():
    events, steps = [], []
    profiling_run(events.append, live=steps.append).run()
    started, examined = events
    assert isinstance(started, Started) and started.environment["device"]
    assert isinstance(examined, Examined)
    assert (examined.profile.kernel, examined.profile.timeline is not None) == ("eager", True)
    assert ("eager", "profile") in {(step["kernel"], step["step"]) for step in steps}


def test_a_cancelled_one_says_nothing_of_the_kernel():
    events = []
    run = profiling_run(events.append, should_stop=lambda: bool(events))
    with pytest.raises(Cancelled):
        run.run()
    assert [event.kind for event in events] == ["started"]

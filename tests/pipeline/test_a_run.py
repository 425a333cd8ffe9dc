"""A run goes from the form's row to results through every process, and each fault stays with its kernel."""

from pathlib import Path

import pytest

from kernels.profiling import ncu
from runs import profiling
from runs.models import Calibration, KernelProfile, RejectedEvent, Result, Run
from runs.queries import measurements

pytestmark = pytest.mark.timeout(120)


OTHER_EVENTS = (3, 4, 5)
"""started, crosschecked, finished, beside one for each workload; and calibrated, of a device whose ceilings are unknown:
once more at the end of the run if other programs use this machine's cores meanwhile."""


def results_of(run):
    """By kernel; of a run of one workload."""
    return {r.kernel.name: r for r in Result.objects.filter(measurement__run=run).select_related("kernel", "version")}


@pytest.fixture(scope="module")
def ended():
    """The runs that several tests look at, by name: each is measured once, for the first that asks."""
    return {}


@pytest.fixture
def first(site, ended):
    """The first run on its device, of two workloads, and nothing goes wrong in it."""
    if "first" not in ended:
        Calibration.objects.all().delete()
        ended["first"] = site.wait(site.submit("eager", lengths=(32, 48)), "done")
        assert not RejectedEvent.objects.exists()
    return ended["first"]


@pytest.fixture
def second(site, ended, first):
    """A later run, in which one kernel fails and one prints 100 MB."""
    if "second" not in ended:
        ended["second"] = site.wait(site.submit("eager", "raises", "talkative"), "done", within=100)
        assert not RejectedEvent.objects.exists()
    return ended["second"]


@pytest.fixture
def bad(site, ended):
    """A run of every kernel that has an accident."""
    if "bad" not in ended:
        protocol = {"warmup_s": 0.02, "min_rounds": 8, "max_rounds": 8, "compile_limit_s": 4}
        run = site.submit(*BAD, "eager", protocol=protocol)
        ended["bad"] = site.wait(run, "done", within=100)
        assert not RejectedEvent.objects.exists()
    return ended["bad"]


@pytest.mark.journey
def test_a_run_ends_with_every_workload_measured(first):
    assert (first.done, first.total, first.attempts, first.message) == (2, 2, 1, "")
    assert first.seq - first.total in OTHER_EVENTS
    assert {m.workload.sizes["seq_len"] for m in first.measurements.all()} == {32, 48}
    results = Result.objects.filter(measurement__run=first)
    assert results.count() == 4
    for result in results:
        assert (result.status, result.correctness["correct"]) == ("ok", True)
        assert result.n and result.p50_ms and result.samples_ns
        assert result.ran, "the cross-check says which operators ran"
        assert result.version.source
    assert all(r.speedup for r in results.filter(kernel__name="eager"))
    assert first.environment.body["torch"]


def test_a_result_is_profiled_by_a_run_of_its_own_which_measures_nothing(site, first):
    result = Result.objects.filter(measurement__run=first, kernel__name="eager").first()
    queued, is_new = profiling.profile(*measurements.of_result(first.pk, result.pk), None)
    run = site.wait(queued, "done", within=100)
    assert is_new and (run.done, run.total, run.measurements.count()) == (1, 1, 0)
    stored = KernelProfile.objects.get(run=run)
    assert (stored.result_id, stored.profile.sha256) == (result.pk, result.version.sha256)
    assert "aten::" in stored.table and bytes(stored.trace).startswith(b"\x1f\x8b")
    assert stored.profile.counters_missing == ncu.NO_GPU
    assert not RejectedEvent.objects.exists()


def test_the_first_run_on_a_device_measures_its_ceilings_and_later_ones_take_them(first, second):
    found = Calibration.objects.get()
    assert found.gpu == first.gpu
    if found.again or found.run != first:  # other programs use this machine's cores: refused, and measured again
        assert found.refused or found.run == second
        return
    assert found.environment == first.environment
    assert found.ceilings["matmul_tflops"]["float32"] > 0
    assert second.seq == second.total + 3


def test_a_cross_check_stands_beside_every_result_that_is_ok(second):
    found = results_of(second)
    seen = {name: result.crosscheck for name, result in found.items() if result.status == "ok"}
    assert set(seen) == {"sdpa", "eager", "talkative"}
    assert found["raises"].crosscheck is None
    for crosscheck in seen.values():
        assert crosscheck["calls"] >= 1
        assert crosscheck.get("agrees") is None, "there are no kernels to see on a CPU"
    for name in ("sdpa", "eager"):
        assert 0.1 < seen[name]["wall_ns"] / seen[name]["event_ns"] < 10


def test_the_agent_works_though_its_database_url_leads_nowhere(site, first):
    """Its environment names a database that cannot be reached; only the recorder's is real."""
    environment = Path(f"/proc/{site.shells['agent-cpu'].pid}/environ").read_text()
    assert f"DATABASE_URL={site.NOBODY}\0" in environment
    assert first.state == "done"


BAD = {
    "segfault": ("crashed", "killed by SIGSEGV", "about to follow a null pointer"),
    "exits": ("crashed", "exited with status 3", ""),
    "leaves": ("crashed", "exited with status 1", "no device that suits me"),
    "crashes-later": ("crashed", "killed by SIGABRT", ""),
    "endless": ("timed out", "no answer within 4 s", "going round"),
    "raises": ("failed", "ValueError: block size 63 is not a power of two", "in raises"),
    "not-a-number": ("incorrect", "elements are NaN or Inf", ""),
    "wrong-shape": ("incorrect", "returned shape (1, 2, 31, 64), not (1, 2, 32, 64)", ""),
    "no-such-kernel": ("unsupported", "there is no kernel 'attention/no-such-kernel'", ""),
}


def test_a_bad_kernel_is_its_own_fault_and_nobody_elses(bad):
    found = results_of(bad)
    said = {name: (found[name].status, found[name].why, found[name].log) for name in BAD}
    for name, (status, why, log) in BAD.items():
        assert said[name][0] == status, said[name]
        assert why in said[name][1]
        assert log in said[name][2]
        assert found[name].n is None
    for name in ("sdpa", "eager"):
        assert (found[name].status, found[name].why) == ("ok", "")
        assert found[name].p50_ms
    assert bad.log.count("going round") == 1, "what hung once is not run again for the cross-check"
    assert found["eager"].speedup
    assert bad.done == 1
    assert bad.seq - 1 in OTHER_EVENTS


def test_the_log_of_a_crash_names_the_line_of_the_kernel(bad):
    log = results_of(bad)["segfault"].log
    assert "segfault.py" in log
    assert "Segmentation fault" in log


def test_a_flood_of_output_costs_a_kernel_nothing_and_the_site_keeps_its_tail(second):
    found = results_of(second)
    assert found["talkative"].status == "ok"
    assert found["talkative"].p50_ms
    assert "that was all" in second.log
    assert len(second.log) < 2**15


def test_a_run_whose_config_is_not_understood_fails_and_holds_nobody_up(site):
    """The row was written by an older version of the site, which let a config have no workloads."""
    config = {"name": "old", "operation": "attention", "kernels": ["sdpa"], "workloads": []}
    run = Run.objects.create(title="old", config=config, gpu=site.gpu())
    site.wait(run, "failed")
    assert "This version cannot read its config: workloads: " in run.message
    site.wait(site.submit("eager"), "done")

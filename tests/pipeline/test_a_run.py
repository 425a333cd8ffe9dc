"""A run goes from the form's row to results through every process, and each fault stays with its kernel."""

from pathlib import Path

import pytest

from runs.models import Calibration, RejectedEvent, Result, Run

pytestmark = pytest.mark.timeout(120)


def other_events(run):
    """started, crosschecked, finished, beside one for each workload; and calibrated, of a device's first run."""
    return 3 + Calibration.objects.filter(run=run).count()


@pytest.fixture
def results(site):
    """The results of a run, once it is done, by kernel."""

    def wait_for(run):
        site.wait(run, "done", within=100)
        return {
            r.kernel.name: r for r in Result.objects.filter(measurement__run=run).select_related("kernel", "version")
        }

    return wait_for


def test_a_run_ends_with_every_workload_measured(site):
    run = site.submit("eager", lengths=(32, 48))
    site.wait(run, "done")
    assert (run.done, run.total, run.attempts, run.message) == (2, 2, 1, "")
    assert run.seq == run.total + other_events(run)
    assert {m.workload.sizes["seq_len"] for m in run.measurements.all()} == {32, 48}
    results = Result.objects.filter(measurement__run=run)
    assert results.count() == 4
    for result in results:
        assert (result.status, result.correctness["correct"]) == ("ok", True)
        assert result.n and result.p50 and result.ticks_ns
        assert result.ran, "the cross-check says which operators ran"
        assert result.version.source
    assert all(r.speedup for r in results.filter(kernel__name="eager"))
    assert run.environment.body["torch"]
    assert not RejectedEvent.objects.exists()


def test_the_first_run_on_a_device_measures_its_ceilings_and_later_ones_take_them(site):
    Calibration.objects.all().delete()
    first = site.submit("eager")
    site.wait(first, "done")
    found = Calibration.objects.get()
    assert (found.gpu, found.run, found.environment) == (first.gpu, first, first.environment)
    assert found.ceilings["matmul_tflops"]["float32"] > 0
    second = site.submit("eager")
    site.wait(second, "done")
    assert Calibration.objects.get().run == first
    assert (first.seq, second.seq) == (first.total + 4, second.total + 3)


def test_a_cross_check_stands_beside_every_result_that_is_ok(site):
    run = site.submit("eager", "raises")
    site.wait(run, "done")
    for result in Result.objects.filter(measurement__run=run).select_related("kernel"):
        if result.status == "ok":
            assert result.crosscheck["calls"] >= 1
            assert 0.1 < result.crosscheck["wall_ns"] / result.crosscheck["event_ns"] < 10
            assert result.crosscheck["agrees"] is None, "there are no kernels to see on a CPU"
        else:
            assert result.crosscheck is None


def test_the_agent_works_though_its_database_url_leads_nowhere(site):
    """Its environment names a database that cannot be reached; only the recorder's is real."""
    environment = Path(f"/proc/{site.shells['agent-cpu'].pid}/environ").read_text()
    assert f"DATABASE_URL={site.NOBODY}\0" in environment
    site.wait(site.submit(), "done")


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


def test_a_bad_kernel_is_its_own_fault_and_nobody_elses(site, results):
    run = site.submit(
        *BAD, "eager", protocol={"warmup_s": 0.02, "min_rounds": 5, "max_rounds": 5, "compile_limit_s": 4}
    )
    found = results(run)
    said = {name: (found[name].status, found[name].why, found[name].log) for name in BAD}
    for name, (status, why, log) in BAD.items():
        assert said[name][0] == status, said[name]
        assert why in said[name][1]
        assert log in said[name][2]
        assert found[name].n is None
    for name in ("sdpa", "eager"):
        assert (found[name].status, found[name].why) == ("ok", "")
        assert found[name].p50
    assert run.log.count("going round") == 1, "what hung once is not run again for the cross-check"
    assert found["eager"].speedup
    assert (run.done, run.seq) == (1, 1 + other_events(run))
    assert not RejectedEvent.objects.exists()


def test_the_log_of_a_crash_names_the_line_of_the_kernel(site, results):
    found = results(site.submit("segfault"))
    assert "segfault.py" in found["segfault"].log
    assert "Segmentation fault" in found["segfault"].log


def test_a_flood_of_output_costs_a_kernel_nothing_and_the_site_keeps_its_tail(site, results):
    run = site.submit("talkative")
    found = results(run)
    assert found["talkative"].status == "ok"
    assert found["talkative"].p50
    assert "that was all" in run.log
    assert len(run.log) < 2**15
    assert not RejectedEvent.objects.exists()


def test_a_run_whose_config_is_not_understood_fails_and_holds_nobody_up(site):
    """The row was written by an older version of the site, which let a config have no workloads."""
    config = {"name": "old", "operation": "attention", "kernels": ["sdpa"], "workloads": []}
    run = Run.objects.create(title="old", config=config, gpu=site.gpu())
    site.wait(run, "failed")
    assert "not understood any more: workloads: " in run.message
    site.wait(site.submit("eager"), "done")

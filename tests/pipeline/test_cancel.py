"""Cancel: the device is free again within seconds; a run that no device has needs nobody's help."""

import time

import pytest

from runs.broker import BrokerKeys
from runs.models import Run
from runs.pipeline.reaper import reap

pytestmark = pytest.mark.timeout(90)
PROMISED_S = 3.0


@pytest.mark.journey
def test_a_running_run_is_gone_from_its_device_within_three_seconds(site):
    run = site.submit("slow", lengths=(16, 24, 32, 48), protocol=site.SLOW)
    site.wait_for_workloads(run, 1)
    children = site.measuring()
    assert children
    begin = time.monotonic()
    run.cancel()
    site.eventually(lambda: not any(map(site.is_alive, children)), PROMISED_S, "the measuring child is gone")
    site.wait(run, "cancelled", within=begin + PROMISED_S - time.monotonic())
    assert 1 <= run.measurements.count() < 4, "what was measured before is kept"
    site.wait(site.submit("eager"), "done")


def test_a_kernel_that_hangs_is_cancelled_as_fast(site):
    run = site.submit("endless")
    site.eventually(lambda: site.live(run).get("kernel") == "endless", 30, "the endless kernel runs")
    children = site.measuring()
    begin = time.monotonic()
    run.cancel()
    site.eventually(lambda: not any(map(site.is_alive, children)), PROMISED_S, "the measuring child is gone")
    site.wait(run, "cancelled", within=begin + PROMISED_S - time.monotonic())


def test_a_cancel_survives_a_broker_that_forgets_it(site, monkeypatch):
    """The row says it; the key in the broker is only a copy, which the reaper makes again."""
    run = site.submit("endless")
    site.eventually(lambda: site.live(run).get("kernel") == "endless", 30, "the endless kernel runs")
    with monkeypatch.context() as lossy:
        lossy.setattr("runs.models.run.tell_cancel", lambda run, attempt: None)
        run.cancel()
    reap()
    site.wait(run, "cancelled", within=30)


@pytest.mark.thorough("a broker that outlives its database: `make test` has a broker that forgets")
def test_a_broker_that_remembers_a_cancel_of_another_database_cancels_nothing_here(site):
    """It was kept, the database begun anew: there will be a run of the same number, but no such attempt."""
    ahead = site.submit("endless")
    BrokerKeys(site.url).ask_cancel(ahead.pk + 1, 1)
    mine = site.submit("eager")
    assert mine.pk == ahead.pk + 1
    site.eventually(lambda: site.live(ahead).get("kernel") == "endless", 30, "the endless kernel runs")
    ahead.cancel()
    site.wait(mine, "done")


def test_a_waiting_run_is_cancelled_without_its_agent(site):
    ahead = site.submit("endless")
    site.eventually(lambda: Run.objects.sent().filter(pk=ahead.pk).exists(), 30, "the first run is sent")
    waiting = site.submit("eager")
    waiting.cancel()
    waiting.refresh_from_db()
    assert (waiting.state, waiting.attempts, waiting.sent_at) == ("cancelled", 0, None)
    ahead.cancel()
    site.wait(ahead, "cancelled")
    waiting.refresh_from_db()
    assert waiting.state == "cancelled"

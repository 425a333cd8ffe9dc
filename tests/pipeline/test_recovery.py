"""Whatever dies in the middle of a run, the run ends complete: nothing is measured twice, nothing is lost."""

import os
import signal
import time
from datetime import timedelta

import pytest
from redis import Redis

from benchsite.queues import device_queue
from runs.hosting import watchdog
from runs.models import RejectedEvent, Result
from runs.models import gpu as gpu_module
from runs.pipeline import dispatcher

pytestmark = pytest.mark.timeout(150)
LENGTHS = (16, 24, 32)
RARER = "rarer deaths in the middle of a run: `make test` has that of the agent, and a message that is lost"


@pytest.fixture
def slow_run(site):
    """A run of three workloads that takes seconds for each, in its middle: the first one is in the database."""
    run = site.submit("slow", lengths=LENGTHS, protocol=site.SLOW)
    site.wait_for_workloads(run, 1)
    return run


def results_of(run):
    """(sequence length, kernel) of every result of a run, as often as it is there."""
    found = Result.objects.filter(measurement__run=run, status="ok")
    return sorted(found.values_list("measurement__workload__sizes__seq_len", "kernel__name"))


def assert_events(run, count, what):
    """Beside these, an attempt on a busy host calibrates at its start and, if that was refused, at its end."""
    assert count <= run.seq <= count + 2, what


COMPLETE = [(length, kernel) for length in LENGTHS for kernel in ("sdpa", "slow")]


def assert_resumed_once(site, run, already):
    """The run is complete; its second attempt measured the missing workloads and left the others as they were."""
    site.wait(run, "done", within=90)
    assert run.attempts == 2
    assert results_of(run) == COMPLETE
    assert set(already) <= set(run.measurements.values_list("pk", flat=True))
    before = run.measurements.filter(created_at__lt=run.sent_at).count()
    assert before >= len(already)
    assert_events(run, 1 + (len(LENGTHS) - before) + 2, "started, what was missing, crosschecked, finished")
    assert all(result.ran for result in Result.objects.filter(measurement__run=run))


ASKED = pytest.param(signal.SIGTERM, id="asked to end", marks=pytest.mark.thorough(RARER))


@pytest.mark.parametrize("sign", [pytest.param(signal.SIGKILL, id="killed"), ASKED])
def test_a_run_goes_on_when_its_agent_is(site, slow_run, sign):
    already = list(slow_run.measurements.values_list("pk", flat=True))
    agent = site.process("agent-cpu")
    below = site.below(agent)
    os.kill(agent, sign)
    site.eventually(lambda: not any(map(site.is_alive, [agent, *below])), 10, "the agent and all below it are gone")
    assert_resumed_once(site, slow_run, already)
    assert site.process("agent-cpu") != agent


@pytest.mark.thorough(RARER)
def test_a_run_goes_on_when_only_the_pool_process_was_killed(site, slow_run):
    already = list(slow_run.measurements.values_list("pk", flat=True))
    agent, pool = site.process("agent-cpu"), site.pool_process("agent-cpu")
    below = site.below(pool)
    os.kill(pool, signal.SIGKILL)
    site.eventually(lambda: not any(map(site.is_alive, below)), 3, "all below it follow the pool process")
    assert_resumed_once(site, slow_run, already)
    assert (site.process("agent-cpu"), site.pool_process("agent-cpu") != pool) == (agent, True)


@pytest.mark.thorough(RARER)
def test_a_run_whose_agent_dies_at_the_cross_check_has_only_that_left_to_do(site):
    run = site.submit("slow", lengths=LENGTHS[:1], protocol=site.SLOW)
    site.wait_for_workloads(run, 1)
    os.kill(site.process("agent-cpu"), signal.SIGKILL)
    site.wait(run, "done", within=90)
    assert run.attempts == 2
    assert_events(run, 3, "started, crosschecked, finished")
    assert all(result.ran for result in Result.objects.filter(measurement__run=run))


@pytest.mark.thorough(RARER)
def test_nothing_is_lost_when_the_broker_is_killed_and_emptied(site, slow_run):
    waiting = site.submit("eager")
    site.lose_the_broker()
    time.sleep(1)
    site.start("broker")
    site.wait(slow_run, "done", within=90)
    site.wait(waiting, "done", within=90)
    assert (slow_run.attempts, waiting.attempts) == (1, 1)
    assert results_of(slow_run) == COMPLETE
    assert_events(slow_run, len(LENGTHS) + 3, "started, each workload, crosschecked, finished")
    assert not RejectedEvent.objects.exists()


@pytest.mark.thorough(RARER)
def test_workers_take_the_next_message_of_a_broker_that_was_emptied_under_them(site):
    site.flush_the_broker()
    site.wait(site.submit("eager"), "done")


def test_a_run_whose_message_was_lost_is_sent_again_as_the_same_attempt(site, monkeypatch):
    """The dispatcher had just written down that it sent the run when the broker lost the message."""
    with monkeypatch.context() as lossy:
        lossy.setattr(dispatcher, "send", lambda task, *args, **options: True)
        run = site.submit("eager")
        assert dispatcher.claim(run, site.gpu())
    site.wait(run, "done")
    assert run.attempts == 1


@pytest.mark.thorough(RARER)
def test_workers_outlive_a_broker_that_refuses_commands(site):
    """As one does whose disk is full: a run that is measured meanwhile must not end with its agent."""
    names = ("recorder", "worker", "agent-cpu")
    workers = [site.process(name) for name in names]
    with Redis.from_url(site.url) as client:
        client.execute_command("ACL", "SETUSER", "default", "-brpop")
        try:
            time.sleep(3)
        finally:
            client.execute_command("ACL", "SETUSER", "default", "+brpop")
    site.wait(site.submit("eager"), "done")
    assert workers == [site.process(name) for name in names]


@pytest.mark.thorough(RARER)
def test_a_broker_that_hangs_holds_nobody_up(site):
    """It takes connections and answers nothing: a run is submitted all the same, and starts once the broker is back."""
    broker = site.process("broker")
    os.kill(broker, signal.SIGSTOP)
    try:
        run = site.submit("eager")
    finally:
        os.kill(broker, signal.SIGCONT)
    site.wait(run, "done")
    assert run.attempts == 1


def test_a_recorder_that_hangs_is_named_and_its_device_is_not_blamed(site, monkeypatch):
    """The watchdog asks it and hears nothing; the agent goes on to reach the broker."""
    monkeypatch.setattr(watchdog, "HANGS_AFTER_S", watchdog.HANGS_AFTER_S | {"recorder": 4.0})
    monkeypatch.setattr(watchdog, "ASK_EVERY_S", 0.5)
    monkeypatch.setattr(gpu_module, "SILENT_AFTER", timedelta(seconds=8))
    dog = watchdog.Watchdog(site.url, [site.device], None)
    site.eventually(lambda: not dog.look() and dog.watched["recorder"].sign, 10, "the recorder answers")
    pool = site.pool_process("recorder")
    os.kill(pool, signal.SIGSTOP)
    try:
        hanging = site.eventually(dog.look, 20, "the watchdog names what hangs")
        assert [name for name, why in hanging] == ["recorder"]
        site.eventually(lambda: not site.gpu().is_online, 20, "the site does not hear the device")
        assert site.gpu().state == "unheard"
    finally:
        os.kill(pool, signal.SIGCONT)
    site.eventually(lambda: site.gpu().state == "idle", 20, "the site hears the device again")


@pytest.mark.thorough(RARER)
def test_workers_go_on_after_a_broker_that_died_before_it_heard_their_acknowledgement(site):
    """Each worker's main process has handed a message to its pool process, which has not yet said that it has begun."""
    names = ("recorder", "worker", "agent-cpu")
    run = site.wait(site.submit("eager"), "done")
    workers, pools = [site.process(name) for name in names], [site.pool_process(name) for name in names]
    for pool in pools:
        os.kill(pool, signal.SIGSTOP)
    try:
        site.app.send_task("record", args=[[]])
        site.app.send_task("dispatch")
        site.app.send_task(
            "execute", args=[run.run_spec().model_dump(mode="json")], queue=device_queue(site.device.uuid)
        )
        time.sleep(1)
        site.lose_the_broker()
        time.sleep(1)
    finally:
        for pool in pools:
            os.kill(pool, signal.SIGCONT)
    time.sleep(1)
    site.start("broker")
    site.wait(site.submit("eager"), "done")
    assert workers == [site.process(name) for name in names]

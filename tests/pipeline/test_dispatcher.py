"""The dispatcher gives each idle device exactly one run; the reaper sends again and resumes. No processes."""

import threading
import time
from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from benchsite.queues import WHEN_IDLE
from kernels.contract.events import Finished, Line, Measured, SentLine, Started
from kernels.workload import Config
from runs import messages
from runs.agent.journal import Journal
from runs.broker import BrokerKeys
from runs.models import Environment, Gpu, Measurement, Run, Workload
from runs.models.run import ATTEMPTS
from runs.pipeline import dispatcher, reaper, recorder
from runs.pipeline.dispatcher import claim, dispatch

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(30)]
CONFIG = Config(
    name="test",
    operation="attention",
    kernels=["sdpa"],
    workloads=[{"batch": 1, "heads": 2, "seq_len": [16, 32], "head_dim": 64}],
)


@pytest.fixture
def sent(monkeypatch):
    """What was sent to agents: (run, attempt, keys of the workloads that are done), in order."""
    found = []

    def send(task, *arguments, **options):
        if task == "execute":
            found.append((arguments[0]["run"], arguments[0]["attempt"] % ATTEMPTS, arguments[0]["done"]))
        return True

    monkeypatch.setattr(dispatcher, "send", send)
    monkeypatch.setattr(recorder, "send", send)
    return found


@pytest.fixture
def gpu(sent):
    return make_gpu("GPU-1")


def make_gpu(uuid, **more):
    own = {"kind": "cuda", "name": "NVIDIA H200", "seen_at": timezone.now()}
    return Gpu.objects.create(uuid=uuid, **own | more)


def submit(gpu=None, **options):
    return Run.objects.submit(CONFIG, gpu=gpu, **options)


def ago(seconds):
    return timezone.now() - timedelta(seconds=seconds)


def change(run, **fields):
    Run.objects.filter(pk=run.pk).update(**fields)
    run.refresh_from_db()


# --- one device, one run ----------------------------------------------------------------------------------------------


def test_a_device_gets_one_run_and_the_next_when_that_one_has_ended(gpu, sent):
    first, second = submit(gpu), submit(gpu)
    assert dispatch() == [first]
    assert dispatch() == []
    first.refresh_from_db()
    first.advance(Run.State.DONE)
    assert dispatch() == [second]
    assert sent == [(first.pk, 1, []), (second.pk, 1, [])]


def test_every_idle_device_gets_a_run_of_its_own(gpu):
    other = make_gpu("GPU-2")
    runs = [submit(gpu), submit(other), submit(gpu)]
    assert {(run.pk, run.gpu_id) for run in dispatch()} == {(runs[0].pk, gpu.pk), (runs[1].pk, other.pk)}


def test_a_silent_device_gets_nothing_and_its_run_waits(gpu, sent):
    Gpu.objects.update(seen_at=ago(60))
    run = submit(gpu)
    assert dispatch() == []
    assert (sent, run.state) == ([], "queued")


def test_any_device_of_a_name_is_only_a_filter(gpu):
    make_gpu("GPU-2", name="NVIDIA A100")
    run = submit(device_name="NVIDIA H200")
    assert [(sent, sent.gpu) for sent in dispatch()] == [(run, gpu)]


def in_threads(*calls):
    """Runs calls at the same time, each with a connection of its own."""
    answers = {}

    def work(number, call):
        try:
            answers[number] = call()
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=item) for item in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return [answers[number] for number in range(len(calls))]


def at_the_same_moment(monkeypatch, choose):
    """Two dispatchers choose a run before either has claimed one."""
    barrier = threading.Barrier(2)

    def next_of(runs, gpu, used):
        run = choose(runs, gpu, used)
        barrier.wait(10)
        return run

    monkeypatch.setattr(dispatcher, "next_of", next_of)


def test_two_dispatchers_that_chose_the_same_run_send_it_once(gpu, sent, monkeypatch):
    run = submit(gpu)
    at_the_same_moment(monkeypatch, dispatcher.next_of)
    assert sorted(in_threads(dispatch, dispatch), key=len) == [[], [run]]
    assert sent == [(run.pk, 1, [])]


def test_two_dispatchers_that_chose_two_runs_give_a_device_one_of_them(gpu, sent, monkeypatch):
    chosen = [submit(gpu), submit(gpu)]
    at_the_same_moment(
        monkeypatch, lambda runs, gpu, used: next(one for one in runs if one == chosen[-1]) and chosen.pop()
    )
    assert sorted(len(answer) for answer in in_threads(dispatch, dispatch)) == [0, 1]
    assert len(sent) == 1
    assert Run.objects.sent().count() == 1
    assert Run.objects.waiting().count() == 1


def test_a_run_that_was_cancelled_meanwhile_is_not_claimed(gpu):
    run = submit(gpu)
    stale = Run.objects.get(pk=run.pk)
    run.cancel()
    assert not claim(stale, gpu)
    assert Run.objects.get(pk=run.pk).state == "cancelled"


# --- whose turn it is -------------------------------------------------------------------------------------------------


@pytest.fixture
def people():
    return [get_user_model().objects.create_user(name) for name in ("ada", "bob")]


def has_used(user, gpu, seconds):
    run = submit(gpu, user=user)
    change(run, state="done", started_at=ago(seconds + 60), finished_at=ago(60))


def test_priority_comes_first(gpu):
    submit(gpu)
    urgent = submit(gpu, priority=1)
    assert dispatch() == [urgent]


def test_then_comes_who_used_the_devices_least_today(gpu, people):
    ada, bob = people
    has_used(ada, gpu, 600)
    has_used(bob, gpu, 10)
    submit(gpu, user=ada)
    of_bob = submit(gpu, user=bob)
    assert dispatch() == [of_bob]


def test_time_used_long_ago_does_not_count(gpu, people):
    ada, bob = people
    has_used(ada, gpu, 600)
    Run.objects.update(started_at=ago(48 * 3600), finished_at=ago(47 * 3600))
    has_used(bob, gpu, 10)
    of_ada = submit(gpu, user=ada)
    submit(gpu, user=bob)
    assert dispatch() == [of_ada]


def test_then_comes_the_oldest(gpu, people):
    oldest = submit(gpu, user=people[0])
    submit(gpu, user=people[1])
    assert dispatch() == [oldest]


# --- the reaper -------------------------------------------------------------------------------------------------------


@pytest.fixture
def running(gpu):
    """A run that its device began a minute ago and no longer holds."""
    run = submit(gpu)
    dispatch()
    change(run, state="running", sent_at=ago(60), progress_at=ago(60), started_at=ago(60), seq=3)
    return run


@pytest.fixture(autouse=True)
def quiet_broker(monkeypatch):
    """The record queue is empty, or has as many messages as a test says."""
    lengths = {"record": 0}

    class Broker:
        def __init__(self, url):
            pass

        def queue_length(self, queue):
            return lengths[queue]

    monkeypatch.setattr(reaper, "BrokerKeys", Broker)
    return lengths


def test_a_run_that_its_agent_no_longer_holds_goes_on_with_what_is_missing(running, sent):
    workload = CONFIG.workloads[0]
    environment = Environment.of({"torch": "2"}, "f")
    change(running, environment=environment)
    Measurement.objects.create(run=running, workload=Workload.objects.of(workload), mode="cpu", baseline="sdpa")
    reaper.reap()
    running.refresh_from_db()
    assert (running.state, running.attempts, running.seq) == ("running", 2, 0)
    assert sent[1:] == [(running.pk, 2, [workload.key])]
    assert running.run_spec().fingerprint == "f"


def test_a_run_that_its_agent_holds_is_left_alone(running, sent):
    Gpu.objects.update(active_attempts=[[running.pk, running.attempt]])
    reaper.reap()
    running.refresh_from_db()
    assert running.attempts == 1


def test_a_run_that_has_just_said_something_is_left_alone(running):
    change(running, progress_at=ago(1))
    reaper.reap()
    running.refresh_from_db()
    assert running.attempts == 1


def test_a_run_of_a_silent_device_waits_for_it(running):
    Gpu.objects.update(seen_at=ago(600))
    reaper.reap()
    running.refresh_from_db()
    assert (running.state, running.attempts) == ("running", 1)


def test_the_reaper_does_not_judge_before_all_news_are_read(running, quiet_broker):
    quiet_broker["record"] = 1
    reaper.reap()
    running.refresh_from_db()
    assert running.attempts == 1


def test_a_run_is_given_up_after_three_attempts_without_a_new_workload(running, sent):
    change(running, attempts_without_progress=2)
    reaper.reap()
    running.refresh_from_db()
    assert (running.state, running.attempts) == ("running", 2)
    change(running, sent_at=ago(60), attempts_without_progress=3)
    reaper.reap()
    running.refresh_from_db()
    assert (running.state, running.attempts) == ("lost", 2)
    assert "3 attempts in a row" in running.message


def test_a_started_attempt_makes_no_progress_until_it_has_measured_a_workload(running):
    def say(seq, event):
        line = Line(run=running.pk, attempt=running.attempt, seq=seq, at=timezone.now(), event=event)
        recorder.record([[line.run, line.attempt, seq, line.model_dump_json()]])
        running.refresh_from_db()
        return running.attempts_without_progress

    change(running, seq=0, attempts_without_progress=1)
    assert say(1, Started(environment={}, fingerprint="f")) == 2
    found = Measured(workload=CONFIG.workloads[0], mode="cpu", baseline="sdpa", margin=0.01, results=[])
    assert say(2, found) == 0


def test_a_run_without_an_answer_is_sent_again_as_the_same_attempt(gpu, sent):
    run = submit(gpu)
    dispatch()
    change(run, sent_at=ago(4))
    reaper.reap()
    assert len(sent) == 1
    change(run, sent_at=ago(7))
    reaper.reap()
    reaper.reap()
    assert sent == [(run.pk, 1, [])] * 2
    Gpu.objects.update(active_attempts=[[run.pk, run.attempt]])
    change(run, sent_at=ago(7))
    reaper.reap()
    assert len(sent) == 2, "its agent has begun it"


def test_a_run_that_ended_frees_its_device_before_its_charts_are_drawn(gpu, monkeypatch):
    asked = []

    def note(task, *arguments, **options):
        asked.append((task, options.get("priority", 0)))
        return True

    run = submit(gpu)
    dispatch()
    run.refresh_from_db()
    monkeypatch.setattr(messages, "send", note)
    monkeypatch.setattr(recorder, "send", note)
    line = Line(run=run.pk, attempt=run.attempt, seq=1, at=timezone.now(), event=Finished(state="failed", message="x"))
    recorder.record([[line.run, line.attempt, 1, line.model_dump_json()]])
    assert asked == [("dispatch", 0), ("draw_charts", WHEN_IDLE)]


def test_a_run_that_was_to_be_cancelled_ends_when_its_agent_does_not_hold_it(running):
    change(running, cancel_requested=True)
    reaper.reap()
    running.refresh_from_db()
    assert (running.state, running.attempts) == ("cancelled", 1)


def test_a_run_of_a_silent_device_can_be_cancelled(running):
    Gpu.objects.update(seen_at=ago(600))
    running.refresh_from_db()
    running.cancel()
    assert running.state == "cancelled"
    assert recorder.superseded(Gpu(active_attempts=[[running.pk, running.attempt]])) == [
        [running.pk, running.attempt]
    ], "its agent is told when it is back"


def test_a_run_whose_device_falls_silent_after_the_cancel_is_cancelled_without_a_second_click(running):
    running.cancel()
    running.refresh_from_db()
    assert running.cancel_requested and running.is_active
    Gpu.objects.update(seen_at=ago(600))
    reaper.reap()
    running.refresh_from_db()
    assert (running.state, running.message) == ("cancelled", "Cancelled; its device did not answer.")


def test_one_run_that_cannot_be_sent_does_not_stop_the_others(gpu, sent):
    other = make_gpu("GPU-2")
    broken, good = submit(gpu), submit(other)
    change(broken, config={"name": "old"})
    dispatch()
    assert sent == [(good.pk, 1, [])]
    broken.refresh_from_db()
    assert broken.state == "failed"
    assert "This version cannot read its config" in broken.message


# --- hello ------------------------------------------------------------------------------------------------------------


def hello(**more):
    device = {"uuid": "GPU-9", "kind": "cuda", "name": "NVIDIA H200", "index": 0, "capability": 9.0}
    return recorder.hello({"device": device | {"memory_bytes": 2**37}, "host": "h", "catalogue": [], "held": []} | more)


def test_the_first_hello_makes_a_device_known(sent):
    hello()
    gpu = Gpu.objects.get(uuid="GPU-9")
    assert gpu.is_online
    assert (gpu.name, gpu.host, gpu.state) == ("NVIDIA H200", "h", "idle")


def test_a_hello_says_whether_kernels_are_profiled_there(sent):
    hello(no_counters="")
    assert Gpu.objects.get(uuid="GPU-9").no_counters == ""
    hello()  # of an agent of an earlier version
    assert Gpu.objects.get(uuid="GPU-9").no_counters is None


def test_a_hello_writes_what_has_changed(sent):
    """A catalogue is large, and seldom another one."""
    hello(catalogue=[{"name": "sdpa"}])
    before = Gpu.objects.get(uuid="GPU-9").seen_at
    with CaptureQueriesContext(connection) as same:
        hello(catalogue=[{"name": "sdpa"}])
    assert not [one["sql"] for one in same if one["sql"].startswith("UPDATE") and "catalogue" in one["sql"]]
    hello(catalogue=[{"name": "flex"}])
    gpu = Gpu.objects.get(uuid="GPU-9")
    assert gpu.catalogue == [{"name": "flex"}] and gpu.seen_at > before


def test_hello_is_answered_with_what_is_stored_and_what_was_superseded(gpu):
    run, unknown = submit(gpu), 10**6
    change(run, attempt=2, seq=7, sent_at=timezone.now())
    answer = hello(held=[[run.pk, 1], [run.pk, 2], [unknown, 1]])
    assert answer == {"superseded": [[run.pk, 1], [unknown, 1]], "confirmed": [[run.pk, 2, 7]]}


def test_an_agent_does_not_take_a_run_for_one_of_another_database(gpu, tmp_path, monkeypatch):
    """Both are run 1 in their first attempt: the second would be ignored, and waited for in vain."""
    journal, drawn = Journal(tmp_path / "journal.sqlite3"), iter((5, 6))
    monkeypatch.setattr("runs.models.run.secrets.randbelow", lambda below: next(drawn))
    for _ in range(2):
        run = submit(gpu)
        dispatch()
        run.refresh_from_db()
        assert run.attempts == 1
        assert journal.begin(1, run.attempt)
        journal.end(1, run.attempt)
        assert not journal.begin(1, run.attempt)
        change(run, state="done")


# --- clocks that are wrong --------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    """The broker's clock, which agent and recorder read."""
    now = [time.time()]
    monkeypatch.setattr(BrokerKeys, "now", lambda self: now[0])
    return now


def test_a_hello_without_a_run_that_was_sent_brings_its_message_again(sent):
    run = submit(make_gpu("GPU-9"))
    dispatch()
    hello()
    assert len(sent) == 1, "it may be on its way"
    change(run, sent_at=ago(7))
    hello()
    hello()
    assert sent == [(run.pk, 1, [])] * 2


def test_a_hello_that_waited_in_the_queue_says_nothing_about_runs(gpu, clock):
    """Without an expiry by the agent's clock: a clock a day behind would silence its device for ever."""
    run = submit(gpu)
    change(run, state="running", attempt=1, sent_at=ago(60), progress_at=ago(60))
    mine = {
        "device": {"uuid": gpu.uuid, "kind": "cuda", "name": gpu.name, "index": 0, "capability": 9.0, "memory_bytes": 1}
    }
    assert hello(**mine, held=[], sent=clock[0] - 40, at=time.time()) == {}
    run.refresh_from_db()
    assert run.attempt == 1
    hello(**mine, held=[], sent=clock[0] - 5, at=time.time() - 86_400)
    run.refresh_from_db()
    assert run.attempt == 2, "a fresh one denies it"


@pytest.mark.parametrize("off_s", [86_400, -86_400, 3])
def test_a_device_knows_how_wrong_its_agents_clock_is(gpu, clock, off_s):
    hello(held=[], sent=clock[0] - 4, at=time.time() - 4 + off_s)
    gpu = Gpu.objects.get(uuid="GPU-9")
    assert gpu.clock_ahead_s == pytest.approx(off_s, abs=1)
    assert gpu.clock_error_s == (gpu.clock_ahead_s if abs(off_s) > 30 else 0)


@pytest.mark.parametrize("off_s", [86_400, -86_400], ids=["a day ahead", "a day behind"])
def test_an_agent_whose_clock_is_a_day_off_spoils_no_elapsed_time_and_no_fair_share(gpu, off_s):
    Gpu.objects.update(clock_ahead_s=off_s)
    person = get_user_model().objects.create(username="p")
    run = submit(gpu, user=person)
    change(run, attempt=1, sent_at=ago(100))
    begun, ended = ago(90), ago(30)
    for seq, (at, event) in enumerate(
        [(begun, Started(environment={"device": "x"}, fingerprint="f")), (ended, Finished(state="failed"))], start=1
    ):
        line = Line(run=run.pk, attempt=1, seq=seq, at=at + timedelta(seconds=off_s), event=event)
        recorder.record([SentLine(run.pk, 1, seq, line.model_dump_json(by_alias=True))])
    run.refresh_from_db()
    assert run.elapsed_s == pytest.approx(60, abs=1)
    assert dispatcher.device_seconds_lately() == {person.pk: pytest.approx(60, abs=1)}


def test_times_of_an_agent_lie_between_the_sending_of_its_run_and_now(gpu):
    """Its clock was set while it measured, and the site has not heard of it."""
    run = submit(gpu)
    change(run, sent_at=ago(100))
    assert recorder.site_time(run, ago(-86_400)) <= timezone.now()
    assert recorder.site_time(run, ago(86_400)) == run.sent_at


def test_a_run_that_ended_before_it_began_counts_for_nobody(gpu):
    run = submit(gpu)
    change(run, state="done", started_at=ago(10), finished_at=ago(86_000))
    assert dispatcher.device_seconds_lately() == {}
    assert run.elapsed_s == 0

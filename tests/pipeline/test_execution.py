"""An agent executes an attempt, and lets go of it whatever happens to its journal."""

import os
import sqlite3
import threading
import time
from contextlib import closing, contextmanager
from types import SimpleNamespace

import pytest

from kernels.contract.events import Examined, Finished, Line, Started, Tried
from kernels.host.device import find_device
from kernels.parent.child_process import Cancelled
from kernels.profiling import ncu
from kernels.tune_plan import TunePlan
from kernels.workload import Config, RunSpec
from runs.agent import execution
from runs.agent import journal as journal_module
from runs.agent import threads as threads_module
from runs.agent.current import Current
from runs.agent.execution import Execution
from runs.agent.journal import Journal
from runs.agent.threads import AgentThreads

pytestmark = pytest.mark.timeout(30)
STARTED = Started(environment={"device": "a CPU"}, fingerprint="f")
SIZES = {"batch": 1, "heads": 2, "seq_len": 16, "head_dim": 64}
CONFIG = Config(name="test", operation="attention", kernels=["sdpa"], workloads=[SIZES])
SPEC = RunSpec.of(CONFIG, "cpu", run=1, attempt=7).model_dump(mode="json")


@pytest.fixture(autouse=True)
def in_short(monkeypatch):
    monkeypatch.setattr(journal_module, "BUSY_S", 0.1)
    monkeypatch.setattr(execution, "TRY_AGAIN_S", 0.05)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agent" / "device.sqlite3"


@pytest.fixture
def journal(path):
    return Journal(path)


@pytest.fixture
def current():
    return Current()


class Keys:
    """What the agent shows, and what the site asks."""

    def __init__(self):
        self.steps, self.cancels, self.stored, self.answer, self.pulses = [], set(), {}, {}, []

    def show(self, run, state):
        self.steps.append(state["step"])

    def pulse(self, name):
        self.pulses.append(name)

    def now(self):
        return 1e9

    def cancel_asked(self, run, attempt):
        return (run, attempt) in self.cancels

    def replied(self, uuid):
        return self.answer

    def confirmed(self, run, attempt):
        return self.stored.get((run, attempt), 0)


@pytest.fixture
def keys():
    return Keys()


@pytest.fixture
def agent(journal, current, keys, monkeypatch):
    """The threads of the main process, taken a step at a time."""
    monkeypatch.setattr(threads_module, "BrokerKeys", lambda broker: keys)
    app = SimpleNamespace(sent=[], send_task=lambda task, **options: app.sent.append((task, options)))
    return AgentThreads(app, "redis://", find_device("cpu"), journal, current)


@pytest.fixture
def execute(journal, current, keys, monkeypatch):
    """Executes SPEC in a thread; `measure` stands for the supervisor's work. Returns the thread."""

    def start(measure):
        def measured(self):
            measure(self)

        monkeypatch.setattr(execution.Supervisor, "run", measured)
        one = Execution(SPEC, find_device("cpu"), journal, keys, current)
        thread = threading.Thread(target=one.run, daemon=True)
        thread.start()
        return thread

    return start


@contextmanager
def locked(path):
    """Another process writes into the journal, and does not come to an end."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield


def wait_until(check):
    deadline = time.monotonic() + 10
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def told(journal):
    return [type(Line.model_validate_json(line.body).event) for line in journal.lines(1, 7, after=0)]


def emit_started(supervisor):
    supervisor.emit(STARTED)


def test_a_run_waits_for_a_locked_journal_says_so_and_goes_on(journal, path, keys, current, execute):
    entered, gate = threading.Event(), threading.Event()

    def measure(supervisor):
        entered.set()
        gate.wait(10)
        emit_started(supervisor)

    thread = execute(measure)
    entered.wait(10)
    with locked(path):
        gate.set()
        wait_until(lambda: keys.steps)
        assert keys.steps[0] == "waits: the agent's journal cannot be written (database is locked)"
        assert thread.is_alive()
    thread.join(10)
    assert told(journal) == [Started, Finished]
    assert current.attempt is None


def test_a_full_disk_holds_the_run_until_it_is_freed(journal, keys, execute, monkeypatch):
    begin, full = journal.begin, []

    def begin_and_fill(run, attempt):
        begun = begin(run, attempt)
        full.append(True)
        return begun

    write = journal.write

    def write_if_free(*line):
        if full:
            raise sqlite3.OperationalError("database or disk is full")
        return write(*line)

    monkeypatch.setattr(journal, "begin", begin_and_fill)
    monkeypatch.setattr(journal, "write", write_if_free)
    thread = execute(emit_started)
    wait_until(lambda: keys.steps)
    full.clear()
    thread.join(10)
    assert told(journal) == [Started, Finished]


@pytest.mark.parametrize("why", ["cancelled", "superseded", "shutdown"])
def test_a_run_whose_journal_stays_locked_is_let_go_when_it_should_stop(path, keys, current, agent, execute, why):
    """Cancel does not go through the journal, and the next hello denies the run: the site ends it."""
    entered, gate = threading.Event(), threading.Event()

    def measure(supervisor):
        entered.set()
        gate.wait(10)
        emit_started(supervisor)

    thread = execute(measure)
    entered.wait(10)
    with locked(path):
        gate.set()
        wait_until(lambda: keys.steps)
        assert agent.held() == [(1, 7)]
        if why == "cancelled":
            keys.cancels.add((1, 7))
            agent.listen()
        elif why == "shutdown":
            current.stop_all()
        else:
            current.stop(1, 7, why)
        thread.join(5)
        assert not thread.is_alive()
        assert agent.held() == []


def test_a_device_is_free_though_the_last_lines_cannot_be_deleted(journal, path, keys, agent, execute):
    """The site has stored them: hello must not claim the run because the journal still has them."""
    execute(emit_started).join(10)
    assert agent.held() == [(1, 7)]
    keys.stored[1, 7] = 2
    with locked(path):
        with pytest.raises(sqlite3.OperationalError):
            agent.tell()
        assert agent.held() == []
    agent.tell()
    assert journal.last_lines() == {}


def test_an_agent_whose_journal_cannot_be_opened_still_says_hello(agent, keys, execute, monkeypatch):
    execute(emit_started).join(10)
    agent.hello()

    def unreadable():
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(agent.journal, "last_lines", unreadable)
    agent.hello()
    assert [options["args"][0]["held"] for task, options in agent.app.sent] == [[(1, 7)], [(1, 7)]]
    assert keys.pulses == [f"agent:{agent.device.uuid}"] * 2


def test_a_hello_says_why_profiles_here_have_no_counters(agent):
    agent.hello()
    assert [options["args"][0]["no_counters"] for _, options in agent.app.sent] == [ncu.NO_GPU]


@pytest.mark.timeout(120)
def test_a_run_that_profiles_is_profiled_and_not_measured(journal, keys, current):
    config = Config(
        name="test", operation="gelu", kernels=["eager"], workloads=[{"rows": 8, "cols": 64, "dtype": "float32"}]
    )
    spec = RunSpec.of(config, "cpu", run=1, attempt=7, profile="eager").model_dump(mode="json")
    Execution(spec, find_device("cpu"), journal, keys, current).run()
    assert told(journal) == [Started, Examined, Finished]
    assert "profile" in keys.steps


def test_an_ending_that_could_not_be_marked_is_not_begun_again(journal, execute, current, monkeypatch):
    def locked_now(run, attempt):
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(journal, "end", locked_now)
    execute(emit_started).join(10)
    assert (told(journal), current.attempt) == ([Started, Finished], None)
    journal.confirm(1, 7, 2)
    assert not journal.begin(1, 7)


def test_too_much_that_is_unconfirmed_holds_the_run_back(journal, keys, execute, monkeypatch):
    monkeypatch.setattr(execution, "MAX_UNCONFIRMED", 1)
    thread = execute(emit_started)
    wait_until(lambda: keys.steps)
    assert keys.steps[0] == "waits: the site has not confirmed 1 events"
    journal.confirm(1, 7, 1)
    thread.join(10)
    assert told(journal) == [Finished]


def test_an_interrupted_run_may_go_on_and_a_superseded_one_never(journal, current, execute):
    def stopped(why):
        def measure(supervisor):
            current.stop_all() if why == "shutdown" else current.stop(1, 7, why)
            raise Cancelled

        return measure

    execute(stopped("superseded")).join(10)
    assert (journal.last_lines(), journal.begin(1, 7)) == ({}, False)


def test_a_run_interrupted_before_its_first_event_may_go_on(journal, current, execute):
    def measure(supervisor):
        current.stop_all()
        raise Cancelled

    execute(measure).join(10)
    assert (journal.last_lines(), journal.begin(1, 7)) == ({}, True)


# --- what is executed now ---------------------------------------------------------------------------------------------


def test_a_reason_to_stop_reaches_the_other_process_and_only_its_attempt(current):
    current.begin(1, 7)
    if (pid := os.fork()) == 0:
        current.stop(1, 6, "superseded")
        current.stop(1, 7, "cancelled")
        current.stop(1, 7, "superseded")
        current.stop_all()
        os._exit(0)
    os.waitpid(pid, 0)
    assert (current.why_stop(), current.attempt) == ("cancelled", (1, 7)), "the first reason counts"
    current.end()
    current.begin(2, 8)
    assert current.why_stop() == ""
    current.stop_all()
    assert current.why_stop() == "shutdown"


def test_a_pool_process_that_hangs_ends_its_agent(current, agent, monkeypatch):
    ended = []
    monkeypatch.setattr(threads_module.os, "_exit", ended.append)
    current.begin(1, 7)
    agent.hello()
    assert not ended
    monkeypatch.setattr(threads_module, "HANGS_AFTER_S", 0.0)
    agent.hello()
    current.end()
    agent.hello()
    assert ended == [4]


# --- a search ---------------------------------------------------------------------------------------------------------

TUNABLE = """
from kernels.catalog import kernel


@kernel("softmax", backend="pytorch", space={"rows": (1, 16), "way": ("plain", "broken")})
def tunable(x, *, settings=None):
    settings = settings or {"rows": 1, "way": "plain"}
    if settings["way"] == "broken":
        raise RuntimeError("it does not compile")
    out = x.new_empty(x.shape)
    for first in range(0, x.shape[0], settings["rows"]):
        out[first : first + settings["rows"]] = x[first : first + settings["rows"]].softmax(-1)
    return out
"""


@pytest.fixture
def search(tmp_path, monkeypatch):
    """The spec of a search on this CPU, as the site sends it."""
    (tmp_path / "kernels" / "softmax").mkdir(parents=True)
    (tmp_path / "kernels" / "softmax" / "tunable.py").write_text(TUNABLE)
    monkeypatch.setenv("KERNEL_PATH", str(tmp_path / "kernels"))
    quick = {"warmup_s": 0.02, "min_rounds": 8, "max_rounds": 8, "budget_s": 1, "verify_seeds": 1, "block_ms": 0.2}
    config = Config(
        name="tiny",
        operation="softmax",
        kernels=["tunable"],
        baseline="tunable",
        protocol=quick,
        workloads=[{"rows": 64, "cols": 1024, "dtype": "float32"}],
    )
    plan = TunePlan(trials=3, together=3, finalists=1, processes=2, shapes=1)
    return RunSpec.of(config, "cpu", run=1, attempt=7, tune=plan)


def sent(journal, attempt=7):
    """The events of an attempt."""
    return [Line.model_validate_json(line.body).event for line in journal.lines(1, attempt, after=0)]


@pytest.mark.timeout(120)
def test_a_search_emits_its_trials_and_finalists_and_goes_on_after_what_was_tried(search, journal, current, keys):
    Execution(search.as_message(), find_device("cpu"), journal, keys, current).run()
    events = sent(journal)
    assert isinstance(events[0], Started) and events[-1].state == "done", events[-1]
    tried = [event.trial for event in events if isinstance(event, Tried)]
    assert [trial.number for trial in tried] == [1, 2, 3]
    assert any("it does not compile" in trial.pruned for trial in tried)
    assert sum(isinstance(event, Started) for event in events) == 1, "each batch is no run of its own"
    assert any(step.startswith("trial 3 of 3: softmax fp32") for step in keys.steps)

    more = search.tune.model_copy(update={"trials": 4})
    known = {"attempt": 8, "tried": [trial.model_dump(mode="json") for trial in tried], "tune": more}
    again = RunSpec(**search.model_dump() | known | {"fingerprint": events[0].fingerprint})
    Execution(again.as_message(), find_device("cpu"), journal, keys, current).run()
    after = [event for event in sent(journal, 8) if isinstance(event, Tried)]
    assert [event.trial.number for event in after] == [4]
    assert after[0].trial.settings not in [trial.settings for trial in tried]


def test_a_search_that_cannot_be_here_says_why(search, journal, current, keys):
    raw = search.as_message() | {"kernels": ["functional"], "baseline": "functional"}
    Execution(raw, find_device("cpu"), journal, keys, current).run()
    (event,) = sent(journal)
    assert (event.state, "softmax/functional cannot be tuned here: it declares no space" in event.message) == (
        "failed",
        True,
    )

"""The journal keeps what an agent must still tell, whatever happens to the agent; the sender tells it again and again."""

import os
import signal
import stat
import threading

import pytest

from kernels.contract.events import Finished, Line, Started
from kernels.contract.fitting import MAX_EVENT_BYTES
from runs.agent.journal import Journal
from runs.agent.threads import FULL, RESEND_FIRST_S, RESEND_MOST_S, Sender

pytestmark = pytest.mark.timeout(30)
STARTED = Started(environment={"device": "a CPU"}, fingerprint="f")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agent" / "device.sqlite3"


@pytest.fixture
def journal(path):
    return Journal(path)


def numbers(journal, run, attempt, after=0):
    return [line.seq for line in journal.lines(run, attempt, after)]


def write(journal, run, attempt, count):
    return [journal.write(run, attempt, Finished(state="done", message=str(n))) for n in range(count)]


# --- the journal ------------------------------------------------------------------------------------------------------


def test_only_its_owner_can_read_it(journal, path):
    journal.write(1, 1, STARTED)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in path.parent.iterdir()}
    assert path.name in modes
    assert set(modes.values()) == {0o600}


def test_an_attempt_is_begun_once(journal):
    assert journal.begin(1, 1)
    journal.write(1, 1, STARTED)
    assert not journal.begin(1, 1)
    assert journal.begin(1, 2)
    journal.end(1, 2)
    assert not journal.begin(1, 2)


def test_lines_are_numbered_from_one_for_each_attempt(journal):
    assert write(journal, 1, 1, 2) == [1, 2]
    assert write(journal, 1, 2, 1) == [1]
    assert write(journal, 1, 1, 1) == [3]
    line = journal.lines(1, 1, after=2)[0]
    assert line[:3] == (1, 1, 3)
    told = Line.model_validate_json(line.body)
    assert (told.run, told.attempt, told.seq, told.event) == (1, 1, 3, Finished(state="done", message="0"))


def test_numbers_go_on_after_a_restart_even_if_all_lines_were_confirmed(journal, path):
    journal.begin(1, 1)
    write(journal, 1, 1, 3)
    journal.confirm(1, 1, 3)
    assert write(Journal(path), 1, 1, 1) == [4]


def test_confirmed_lines_are_forgotten_and_the_others_stay(journal):
    journal.begin(1, 1)
    write(journal, 1, 1, 3)
    journal.confirm(1, 1, 2)
    assert numbers(journal, 1, 1) == [3]
    journal.confirm(1, 1, 1)
    assert numbers(journal, 1, 1) == [3]
    assert journal.last_lines() == {(1, 1): 3}


def test_an_attempt_whose_lines_were_all_confirmed_has_nothing_to_tell_and_is_not_begun_again(journal, path):
    journal.begin(1, 1)
    journal.write(1, 1, STARTED)
    again = Journal(path)
    assert again.last_lines() == {(1, 1): 1}
    again.confirm(1, 1, 1)
    assert again.last_lines() == {}
    assert not again.begin(1, 1), "the site goes on with the next attempt"


def test_an_attempt_that_was_interrupted_before_its_first_event_is_begun_again(journal, path):
    """The site has heard nothing of it, and sends the same attempt again."""
    journal.begin(1, 1)
    assert Journal(path).begin(1, 1)


def test_a_damaged_journal_is_put_aside_and_a_new_one_takes_its_place(journal, path):
    write(journal, 1, 1, 3)
    for part in path.parent.iterdir():
        part.write_bytes(b"garbage" * 1000)
    again = Journal(path)
    assert again.last_lines() == {}
    assert again.begin(2, 1)
    kept = [p for p in path.parent.iterdir() if ".damaged-" in p.name and not p.name.endswith(("-wal", "-shm"))]
    assert [p.read_bytes()[:7] for p in kept] == [b"garbage"]


def test_a_journal_with_a_spoilt_page_is_put_aside_too(journal, path):
    write(journal, 1, 1, 200)
    with journal._open() as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with open(path, "r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xff" * 4096)
    assert Journal(path).last_lines() == {}


def test_a_process_forked_while_another_thread_writes_can_write_too(journal):
    """The pool process may be forked at any moment of the main process's threads."""
    open_now, go_on = threading.Event(), threading.Event()

    def hold():
        with journal._open() as db:
            db.execute("BEGIN IMMEDIATE")
            open_now.set()
            go_on.wait(0.5)
            db.execute("COMMIT")

    thread = threading.Thread(target=hold)
    thread.start()
    open_now.wait()
    pid = os.fork()
    if pid == 0:
        signal.alarm(5)
        os._exit(0 if journal.begin(7, 1) else 1)
    go_on.set()
    thread.join()
    assert os.waitpid(pid, 0)[1] == 0
    assert journal.begin(8, 1)


def test_a_forked_process_opens_a_connection_of_its_own(journal):
    """One that it inherits would have the state of its parent's locks."""
    write(journal, 1, 1, 1)
    assert journal._db is not None
    pid = os.fork()
    if pid == 0:
        signal.alarm(5)
        os._exit(0 if journal._db is None and write(journal, 1, 1, 1) == [2] else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert write(journal, 1, 1, 1) == [3]
    assert numbers(journal, 1, 1) == [1, 2, 3]


def test_a_journal_whose_file_was_replaced_writes_into_the_new_one(journal, path):
    write(journal, 1, 1, 2)
    for part in path.parent.iterdir():
        part.unlink()
    new = Journal(path)
    assert write(journal, 1, 1, 1) == [1] and numbers(new, 1, 1) == [1]


def test_what_an_error_left_half_done_is_undone(journal):
    with pytest.raises(ZeroDivisionError), journal._open() as db:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO lines VALUES (1, 1, 1, '')")
        raise ZeroDivisionError
    assert numbers(journal, 1, 1) == [] and write(journal, 1, 1, 1) == [1]


# --- the sender -------------------------------------------------------------------------------------------------------


class Wire:
    """What was published, and a clock."""

    def __init__(self, journal):
        self.messages, self.now, self.broken = [], 0.0, False
        self.sender = Sender(self.publish, journal, lambda: self.now)

    def publish(self, task, lines):
        if self.broken:
            raise ConnectionError
        self.messages.append([line.seq for line in lines])

    def at(self, seconds):
        """What is published at this time."""
        self.now, self.messages = seconds, []
        self.sender.step()
        return self.messages


@pytest.fixture
def wire(journal):
    journal.begin(1, 1)
    return Wire(journal)


def test_lines_are_sent_once_and_in_order(journal, wire):
    write(journal, 1, 1, 3)
    assert wire.at(0) == [[1, 2, 3]]
    write(journal, 1, 1, 1)
    assert wire.at(1) == [[4]]
    assert wire.at(2) == []


def test_what_is_not_confirmed_goes_again_from_the_first_such_line_after_10_20_40_60_60_seconds(journal, wire):
    write(journal, 1, 1, 3)
    wire.at(0)
    journal.confirm(1, 1, 1)
    wire.at(0)
    sent, clock, waits = [], 0.0, []
    while len(waits) < 5:
        clock += 0.5
        if said := wire.at(clock):
            sent.append(said)
            waits.append(clock)
    assert sent == [[[2, 3]]] * 5
    gaps = [later - earlier for earlier, later in zip([0.0, *waits], waits, strict=False)]
    assert gaps == [wait + 0.5 for wait in (10, 20, 40, 60, 60)]
    assert (RESEND_FIRST_S, RESEND_MOST_S) == (10, 60)


def test_a_confirmation_starts_the_waiting_anew(journal, wire):
    write(journal, 1, 1, 2)
    wire.at(0)
    assert wire.at(10.5) == [[1, 2]]
    journal.confirm(1, 1, 1)
    assert wire.at(11) == []
    assert wire.at(21) == []
    assert wire.at(21.5) == [[2]]


def test_confirmed_attempts_are_not_sent_again(journal, wire):
    write(journal, 1, 1, 2)
    wire.at(0)
    journal.confirm(1, 1, 2)
    assert wire.at(100) == []
    assert wire.sender.sent == {}


def test_a_dead_broker_loses_nothing(journal, wire):
    write(journal, 1, 1, 2)
    wire.broken = True
    with pytest.raises(ConnectionError):
        wire.at(0)
    wire.broken = False
    assert wire.at(1) == [[1, 2]]


def test_after_a_restart_everything_unconfirmed_is_sent(journal, path, wire):
    write(journal, 1, 1, 3)
    wire.at(0)
    journal.confirm(1, 1, 1)
    assert Wire(Journal(path)).at(0) == [[2, 3]]


def test_many_lines_go_in_several_messages(journal, wire):
    write(journal, 1, 1, 120)
    assert [len(message) for message in wire.at(0) + wire.at(0.5)] == [50, 50, 20]


def test_a_site_that_is_behind_gets_larger_messages_and_not_more_of_them(journal, wire):
    for number in range(6):
        write(journal, 1, 1, 1)
        wire.at(0.5 * number)
    assert wire.sender.sent[1, 1] == 4 and wire.at(3) == []
    journal.confirm(1, 1, 1)
    assert wire.at(4) == [[5, 6]]
    write(journal, 1, 1, 2)
    assert wire.at(5) == []
    journal.confirm(1, 1, 6)
    assert wire.at(6) == [[7, 8]]
    assert wire.at(16.5) == [[7, 8]], "a message that was lost goes again"


def test_few_lines_wait_for_more_while_a_message_before_them_is_not_confirmed(journal, wire):
    write(journal, 1, 1, 1)
    assert wire.at(0) == [[1]], "at once, if none is"
    write(journal, 1, 1, 2)
    assert wire.at(0.4) == []
    write(journal, 1, 1, 1)
    assert wire.at(0.5) == [[2, 3, 4]]
    write(journal, 1, 1, FULL)
    assert wire.at(0.6) == [list(range(5, 5 + FULL))], "not many"
    write(journal, 1, 1, 1)
    journal.confirm(1, 1, 4 + FULL)
    assert wire.at(0.7) == [[5 + FULL]]


def test_a_message_holds_no_more_than_the_longest_line_may(journal, wire):
    for _ in range(3):
        journal.write(1, 1, Finished(state="done", log="x" * (MAX_EVENT_BYTES // 2)))
    write(journal, 1, 1, 2)
    assert wire.at(0) + wire.at(0.5) == [[1], [2], [3, 4, 5]]

"""Whatever a cell sends or prints, the parent has a result of that kernel only: nothing else is raised, nothing hangs."""

import json
import math
import os
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from selection import telling

from kernels.contract.isolation import CELL_REPLIES, MOST_CALLS, Armed, Attached, Judged, Output, Taken
from kernels.contract.replies import Answer, printable
from kernels.host import limits
from kernels.host.airlock import Facts
from kernels.host.device import find_device
from kernels.isolated.memory import Reader
from kernels.isolated.trusted import Trusted as TrustedWorker
from kernels.parent import cell_process
from kernels.parent.arm import Arm
from kernels.parent.batches import lengths
from kernels.parent.cell_process import Cell
from kernels.parent.child_process import Cancelled, ChildDied, ChildTimedOut, CommandFailed
from kernels.parent.idleness import Idleness
from kernels.parent.isolated_session import VERIFY_CALLS, IsolatedSession, Slot
from kernels.parent.log import Log
from kernels.parent.results import json_safe
from kernels.parent.seeds import Draws
from kernels.parent.stopwatch import Stopwatch
from kernels.workload import Workload

BLAMED = (CommandFailed, ChildDied, ChildTimedOut)
"""What isolated_run.py makes a result of the kernel of. Cancelled would end the run."""
many = settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

odd_numbers = st.one_of(st.integers(-(2**70), 2**70), st.sampled_from([0, -1, 2**31, 2**63, 2**64, 10**400]))
odd_texts = st.one_of(
    st.text(max_size=40), st.sampled_from(["\x00", "\x1b[2J", "\ud800", "float32", "9" * 5000, "x" * 10**5])
)
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), odd_numbers, st.floats(), odd_texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(odd_texts, inner, max_size=4)),
    max_leaves=12,
)
extents = st.one_of(st.integers(0, 8), st.sampled_from([0, 1, 2**40, 2**47]))
outputs = st.builds(
    lambda address, shape, dtype, device, stride: {
        "address": address, "shape": shape, "strides": [stride] * len(shape), "dtype": dtype, "device": device,
    },
    st.one_of(st.integers(0, 2**20), st.sampled_from([0, 2**62, 2**63 - 1])),
    st.lists(extents, max_size=4),
    st.sampled_from(["float32", "int8", "bool", "complex128", "load", "quint8", "float99999", "", "float8_e4m3fn", "bits16"]),
    st.sampled_from(["cpu", "cpu", "cuda", "meta"]),
    extents,
)  # fmt: skip
calls = st.one_of(
    st.lists(st.lists(outputs, max_size=3), max_size=4),
    st.builds(lambda one: [[one]] * VERIFY_CALLS, outputs),
)
addresses = st.one_of(st.lists(st.integers(0, 2**63 - 1), max_size=12), st.just([0] * 10), st.just(list(range(4096))))


class Fed(Cell):
    """A cell whose process answers what a test gives it; the commands that it gets are thrown away."""

    def __init__(self, *answers):
        self.answers_left = list(answers)
        self.uid, self.facts, self.groups, self.ready = None, Facts(), [], {}
        self.should_stop, self.log = (lambda: False), Log()
        self._buffer, self._token, self._closed = b"", "", False
        self._used_ns = None
        self._reader = SimpleNamespace(join=lambda limit_s: None)
        self._commands = os.open("/dev/null", os.O_WRONLY)
        self._answers, self._theirs = os.pipe()
        os.set_blocking(self._answers, False)
        self.ended = False
        self.process = SimpleNamespace(
            pid=0, poll=lambda: 0 if self.ended else None, wait=lambda limit_s=0: 0, send_signal=lambda number: None
        )

    def _send(self, line, limit_s):
        if self.answers_left:
            raw = self.answers_left.pop(0)
            raw = raw if isinstance(raw, bytes) else json.dumps({"token": self._token} | raw).encode() + b"\n"
            os.set_blocking(self._theirs, False)
            while raw:  # what does not fit the pipe is part of what is read already
                try:
                    raw = raw[os.write(self._theirs, raw) :]
                except BlockingIOError:
                    self._buffer += raw
                    raw = b""
        else:
            self.ended = True

    def processes(self):
        return []

    def freeze(self):
        return 0

    def thaw(self):
        pass

    kill = thaw

    def close(self):
        for fd in (self._commands, self._answers, self._theirs):
            os.close(fd)


def only_blames(step):
    """The error that a step makes of a kernel; None if it makes none."""
    try:
        step()
    except BLAMED as error:
        arm = Arm("hostile")
        arm.blame("timing", error, "")
        text = json.dumps(json_safe([arm.status, arm.why, arm.log]))
        assert len(text) < 200_000 and "\\u001b" not in text and "\\u0000" not in text
        return error
    return None


@given(st.binary(max_size=400), st.sampled_from(sorted(CELL_REPLIES)))
@many
def test_any_bytes_are_an_answer_or_a_forgery(raw, command):
    cell = Fed(raw + b"\n")
    try:
        assert only_blames(lambda: cell.call(command, 0.05)) is not None
    finally:
        cell.close()


@given(st.dictionaries(st.sampled_from(["ok", "error", "token", "ready", "failed", "more"]), anything, max_size=4),
       st.sampled_from(sorted(CELL_REPLIES)))  # fmt: skip
@many
def test_any_json_is_an_answer_or_a_forgery(answer, command):
    cell = Fed(json.dumps({"token": "t"} | answer).encode() + b"\n", answer)
    try:
        for _ in range(2):
            only_blames(lambda: cell.call(command, 0.05))
    finally:
        cell.close()


@given(
    st.fixed_dictionaries(
        {"kind": odd_texts, "message": anything, "traceback": anything, "must_replace": st.booleans()}
    )
)
@many
def test_any_fault_is_one(fault):
    cell = Fed({"error": fault})
    try:
        only_blames(lambda: cell.call("run", 0.05))
    finally:
        cell.close()


@pytest.mark.parametrize(
    "raw",
    [
        b"[" * 10**5 + b"\n",
        b'{"ok": ' * 10**4 + b"\n",
        b'{"token":"t","ok":{"addresses":[' + b"1," * 10**6 + b"1]}}\n",
        b'{"token":"t","ok":{"own_ns":' + b"9" * 10**6 + b"}}\n",
        b'{"token":"t","error":{"kind":"raised","message":5}}\n',
        b'{"token":"t","error":{"kind":"raised","message":"' + b"x" * 10**6 + b'"}}\n',
        b"x" * (Cell.line_bytes + 2),
    ],
    ids=lambda raw: f"{raw[:30]!r} and so on",
)
def test_large_and_deep_answers(raw):
    cell = Fed(raw)
    try:
        assert only_blames(lambda: cell.call("arm", 0.5)) is not None
    finally:
        cell.close()


# --- what the session makes of well-formed lies -----------------------------------------------------------------------


class Judge:
    """A trusted process in this one: it reads what a cell claims out of this process's own memory, or refuses."""

    def __init__(self):
        self.worker = TrustedWorker.__new__(TrustedWorker)
        self.worker.clock = SimpleNamespace(synchronize=lambda: None)
        self.worker.readers = {"hostile": Reader("cpu", os.getpid(), 4096)}

    def call(self, do, limit_s=0, **arguments):
        if do == "take":
            return self.worker.take(**arguments)
        return {"attach": Attached(), "write": None, "judge": Judged(readings=[{}] * 3, inputs_changed=False)}.get(
            do, Taken()
        )


def session_with(*answers):
    made = IsolatedSession.__new__(IsolatedSession)
    made.source, made.room = None, VERIFY_CALLS
    made.workload = Workload(operation="layer_norm", dtype="float32", sizes={"rows": 2, "cols": 4})
    made.device, made.rng, made.graphs, made.rest, made.turn = (
        find_device("cpu"),
        Draws("1"),
        False,
        0.0,
        "hostile",
    )
    made.batch_ns, made.rest_s = lengths("cpu", 0.0, quick=False)
    made.during, made.trusted = Stopwatch().during, Judge()
    made.idleness = Idleness(made.trusted, "cpu")
    made.slots = {"hostile": Slot(Fed(*answers))}
    return made


@given(calls, odd_texts)
@many
def test_any_claim_about_outputs_is_refused_or_judged(claims, wrong_kind):
    made = session_with({"ok": {"outputs": claims, "wrong_kind": wrong_kind}})
    try:
        only_blames(lambda: made.verify("hostile", 0.05, 1))
    finally:
        made.slots["hostile"].cell.close()


@given(st.lists(outputs, max_size=3), addresses, addresses, odd_numbers, st.integers(1, 10))
@many
def test_any_claim_about_a_batch_is_refused_or_judged(layout, armed, done, own_ns, count):
    made = session_with({"ok": {"addresses": armed}}, {"ok": {"addresses": done, "own_ns": own_ns}})
    slot = made.slots["hostile"]
    try:
        slot.layout = [Output.model_validate(one) for one in layout]
        if only_blames(lambda: made.batch("hostile", count, 0.05)) is None:
            assert math.isfinite(slot.batches(count).own_clock)
    finally:
        slot.cell.close()


@given(outputs)
@many
def test_a_reader_returns_a_tensor_or_refuses(claim):
    try:
        copied = Reader("cpu", os.getpid(), 4096).copy(Output.model_validate(claim))
    except (ValueError, OSError, RuntimeError, OverflowError, MemoryError):
        return
    assert isinstance(copied, torch.Tensor) and copied.numel() * copied.element_size() <= 4096


def test_an_answer_before_the_word_to_go_is_a_forgery():
    made = session_with(
        json.dumps({"token": "", "ok": {"addresses": []}}).encode() + b'\n{"ok":{"addresses":[0],"own_ns":1}}\n'
    )
    assert isinstance(only_blames(lambda: made.batch("hostile", 1, 0.05)), ChildDied)
    made.slots["hostile"].cell.close()


def test_more_calls_than_a_batch_may_have_are_refused():
    with pytest.raises(ValueError, match="too_long"):
        CELL_REPLIES["run"].model_validate({"outputs": [[]] * (MOST_CALLS + 1)})
    assert Armed.model_validate({"addresses": [1]}).addresses == [1]


def test_text_of_a_kernel_holds_nothing_that_a_terminal_or_a_database_acts_on():
    assert printable("a\x1b[2J\x00\x9b\r\n\tb\ud800") == "a\ufffd[2J\ufffd\ufffd\n\n\tb?"
    log = Log()
    log.add(b"\x1b]0;title\x07\x00ok\n")
    assert log.whole() == "\ufffd]0;title\ufffd\ufffdok\n"
    said = Answer.model_validate({"error": {"kind": "raised", "message": "\x1b" + "x" * 10**6}}).error.message
    assert said[0] == "\ufffd" and len(said) < 20_000


# --- real processes ---------------------------------------------------------------------------------------------------

OTHERS = "other ways to end: `make test` has four"
HOSTILE = {
    "floods": "import os\nwhile True: os.write(1, b'x' * 65536)",
    "takes memory": "kept = []\nwhile True: kept.append(bytearray(2**24))",
    "takes memory in many processes": (
        "import os, time\nfor _ in range(8):\n    if not os.fork(): break\nkept = []\n"
        "while True:\n    kept.append(bytearray(2**22)); time.sleep(0.01)"
    ),
    "ends by a signal without a name": "import signal, os\nos.kill(os.getpid(), 40)\nos._exit(1)",
    "ends": "import os\nos._exit(7)",
    "closes its pipes": "import os, time\nos.closerange(0, 100)\ntime.sleep(100)",
    "fills its pipe of answers": "import os, sys\nwhile True: os.write(int(sys.argv[-1]), b'x' * 65536)",
    "never reads": "import time\ntime.sleep(100)",
    "ignores signals": "import signal, time\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n"
    "    except (OSError, ValueError): pass\ntime.sleep(100)",
    "multiplies": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
}  # fmt: skip


@pytest.fixture
def cell_of(monkeypatch):
    """A cell behind the airlock that runs other code than the product's once it is ready."""
    made = []

    def make(code):
        code = "import os, sys\nos.write(int(sys.argv[-1]), b'{\"ready\": {}}\\n')\nsys.stdin = None\n" + code

        class Hostile(Cell):
            def _command(self, arguments):
                command = super()._command(arguments)
                spec = json.loads(command[-1])
                spec["command"] = [sys.executable, "-c", code, *arguments]
                return [*command[:-1], json.dumps(spec)]

        made.append(Hostile(find_device("cpu"), lambda: False, fresh=True))
        return made[-1]

    yield make
    for cell in made:
        cell.close()


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "what", telling(list(HOSTILE), "floods", "takes memory", "ends", "ignores signals", why=OTHERS)
)
def test_a_hostile_process_ends_and_the_parent_goes_on(what, cell_of, monkeypatch):
    monkeypatch.setattr(limits, "OUTPUT_BYTES", 2**20)
    monkeypatch.setattr(limits, "memory_bytes", lambda: 2**28)
    cell = cell_of(HOSTILE[what])
    began = time.monotonic()
    try:
        with pytest.raises(BLAMED) as found:
            cell.call("run", 4.0, calls=1)
    finally:
        cell.close()
    assert time.monotonic() - began < 60
    said = str(found.value)
    assert {
        "floods": "it printed more than 1 MiB",
        "takes memory": "memory",
        "takes memory in many processes": "memory",
        "ends": "exited with status 7",
        "fills its pipe of answers": "endless answer",
    }.get(what, "") in said, said
    left = [pid for pid in cell.processes() if cell_process._state(pid) not in "ZX"]
    assert not left and cell.process.poll() is not None
    assert not [folder for folder in cell.groups if os.path.exists(folder)]


def test_a_child_that_does_not_read_its_commands_cannot_hold_the_parent(cell_of):
    cell = cell_of(HOSTILE["never reads"])
    with pytest.raises(ChildTimedOut):
        cell.call("run", 2.0, calls="x" * 2**20)


def test_a_run_is_cancelled_while_a_command_is_written(cell_of):
    cell = cell_of(HOSTILE["never reads"])
    cell.wait_ready()
    asked = iter([False])  # before the command
    cell.should_stop = lambda: next(asked, True)
    with pytest.raises(Cancelled):
        cell.call("run", 20.0, calls="x" * 2**20)


def test_a_signal_without_a_name_is_a_crash_like_any_other():
    cell = Fed()
    cell.process.wait = lambda limit_s=0: -40
    assert str(only_blames(lambda: cell.call("run", 0.5))) == "killed by signal 40"
    cell.close()

import inspect
import math
import os
import typing

import pytest

from kernels.analysis import suspicion
from kernels.child import bench
from kernels.child.__main__ import fault
from kernels.contract import replies
from kernels.contract.replies import REPLIES, Answer, Reply, Verified
from kernels.host.device import find_device
from kernels.parent.child_process import Child, CommandFailed, Forged
from tests.instrument.simulator import SimulatedBench


def test_every_command_of_the_bench_declares_its_reply():
    commands = {name: f for name, f in inspect.getmembers(bench.Bench, inspect.isfunction) if not name.startswith("_")}
    names = vars(replies) | vars(bench)
    returned = {name: typing.get_type_hints(f, names)["return"] for name, f in commands.items()}
    assert returned == REPLIES


def test_the_simulated_bench_replies_as_the_bench_does():
    answered = {
        name[1:]: f for name, f in inspect.getmembers(SimulatedBench, inspect.isfunction) if name[1:] in REPLIES
    }
    assert answered
    for name, f in answered.items():
        assert typing.get_type_hints(f, vars(replies) | {"Any": typing.Any})["return"] is REPLIES[name], name


def test_an_error_may_be_infinite_or_nan_on_the_pipe():
    reply = Verified(
        reading={"max_abs": math.inf, "row": math.nan}, inputs_changed=False, shared=False, deterministic=None, busy=[]
    )
    line = Answer(token="t", ok=reply.model_dump()).model_dump_json(exclude_unset=True)
    reading = Verified.model_validate(Answer.model_validate_json(line).ok).reading
    assert reading["max_abs"] == math.inf and math.isnan(reading["row"])


def test_an_exception_with_half_a_character_is_an_error_like_any_other():
    line = Answer(error=fault(ValueError("half \ud800"), must_replace=False)).model_dump_json(exclude_unset=True)
    assert Answer.model_validate_json(line).error.message == "ValueError: half ?"


@pytest.fixture(scope="module")
def child():
    child = Child(find_device("cpu"))
    yield child
    child.close()


def test_a_reply_is_its_model_and_an_error_says_its_kind(child):
    sizes = {"batch": 1, "heads": 1, "seq_len": 64, "head_dim": 32, "causal": False}
    child.call("open", workload={"operation": "attention", "dtype": "float32", "sizes": sizes})
    assert isinstance(child.call("load", arm="sdpa"), replies.Loaded)
    assert isinstance(child.call("compile", arm="sdpa", seed=1), replies.Compiled)
    child.call("prepare", seeds=[1, 2], sets=1)
    assert len(child.call("block", arm="sdpa", calls=3).ticks_ns) == 3
    with pytest.raises(CommandFailed) as failed:
        child.call("load", arm="no such kernel")
    assert failed.value.fault.kind == "raised" and "no such kernel" in str(failed.value)


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b'{"ok": {}}',
        b'{"token": "%s", "ok": {"ticks_ns": "fast"}}',
        b'{"token": "%s", "ok": {"ticks_ns": [1.0], "more": 1}}',
        b'{"token": "%s", "told": 1}',
        b'{"token": "%s"}',
    ],
)
def test_a_line_that_is_not_the_reply_of_the_bench_ends_the_process(line, monkeypatch):
    child = Child(find_device("cpu"))
    try:
        child.wait_ready()
        token = "a" * 16
        monkeypatch.setattr("secrets.token_hex", lambda size: token)
        read, write = os.pipe()
        os.close(child._answers)
        child._answers = read
        os.write(write, line.replace(b"%s", token.encode()) + b"\n")
        with pytest.raises(Forged):
            child.call("block", arm="sdpa", calls=1)
        assert not child.alive
    finally:
        os.close(write)
        child.close()


def test_a_probe_is_judged_by_its_model():
    quick = replies.Probed(
        seen_ns=[100.0] * 7,
        new_ns=[900.0] * 7,
        untouched_ns=[100.0] * 7,
        written_ns=[100.0] * 7,
        again_ns=[100.0] * 7,
        fresh_ns=[100.0] * 7,
        busy=[],
    )
    assert "caches results" in suspicion.why_probed(lambda **asked: quick, lambda: 1, 900.0)
    assert issubclass(replies.Probed, Reply)


KINDS = ("seen_ns", "new_ns", "untouched_ns", "written_ns", "again_ns", "fresh_ns")


@pytest.mark.parametrize(("call_ns", "calls"), [(1e3, 392), (30e6, 126), (0.5e9, 18)])
def test_a_probe_of_a_very_slow_kernel_has_few_calls(call_ns, calls):
    """Counted as the process does them, on the sets and with the sights that it is asked for."""
    asked = {}

    def probe(**of):
        asked.update(of)
        return replies.Probed(**{kind: [1.0] for kind in KINDS}, busy=[])

    assert suspicion.why_probed(probe, lambda: 1, call_ns) == ""
    count = (len(asked["seeds"]) - 1) // (2 * asked["in_turn"] + 3)
    assert count * (2 * 2 + 2 * asked["sights"] + 2 * 2 * asked["in_turn"]) == calls

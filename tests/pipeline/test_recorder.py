"""The recorder stores each event whole, once and in order; what it cannot store it keeps and confirms. No processes."""

import copy
import json
import math
import re
from pathlib import Path

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from kernels.analysis.statistics import describe
from kernels.contract.arm_result import ArmResult
from kernels.contract.events import CrossChecked, Finished, Line, Measured, Started
from kernels.contract.fitting import MAX_EVENT_BYTES
from kernels.report import tables
from kernels.workload import Config
from runs.models import Gpu, Measurement, Newest, RejectedEvent, Result, Run
from runs.pipeline import importer, recorder
from runs.queries import measurements

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(30)]
CONFIG = Config(
    name="test",
    operation="attention",
    kernels=["sdpa", "eager"],
    workloads=[{"batch": 1, "heads": 2, "seq_len": [16, 32], "head_dim": 64}],
)
AT = "2026-01-01T00:00:00+00:00"
ENVIRONMENT = {"device": "a CPU", "torch": "2", "commit": "abc"}


@pytest.fixture
def run():
    """A run that was sent to a device: its first attempt."""
    gpu = Gpu.objects.create(uuid="CPU-test", kind="cpu", name="a CPU")
    run = Run.objects.submit(CONFIG, gpu=gpu)
    Run.objects.filter(pk=run.pk).update(attempt=1, sent_at=run.created_at)
    run.refresh_from_db()
    return run


TAKEN = {
    "local_bytes": 16,
    "static_shared_bytes": 0,
    "dynamic_shared_bytes": 65_536,
    "grid": "64 x 2 x 1",
    "block": "256 x 1 x 1",
    "occupancy": 0.125,
}
"""What a launch takes."""


def result(kernel, p50_ms):
    times = {"n": 1, "rounds": 1, "samples_ns": [[p50_ms * 1e6]], "p50_low_ms": p50_ms, "p50_high_ms": p50_ms}
    times |= {
        f"{name}_ms": value for name, value in describe([p50_ms]).items() if name in ("p50", "mean", "min", "max")
    }
    more = {"sha256": kernel.ljust(64, "0"), "source": f"def {kernel}(): ...", "backend": "pytorch"}
    more |= {"registers": 168, **TAKEN}
    if kernel != "sdpa":
        more |= dict.fromkeys(("speedup", "speedup_low", "speedup_high"), 1 / p50_ms) | {"effective_sample_size": 4.5}
    return ArmResult(kernel=kernel, correctness={"correct": True}, **times, **more)


def measured(workload, **more):
    shared = {"mode": "cpu", "baseline": "sdpa", "margin": 0.01, "aa": (1.0, 0.99, 1.01), "aa_samples_ns": [[1.0]]}
    results = [result("sdpa", 1.0), result("eager", 2.0)]
    return Measured(
        workload=workload, took_s=1.0, timing={"rounds": 0.5, "check": 0.5}, **shared | {"results": results} | more
    )


def record(lines):
    """Through the recorder, as an agent sends them: each line is JSON, made once."""
    return recorder.record([sent(line) for line in lines])


def sent(line):
    return [line["run"], line["attempt"], line["seq"], json.dumps(line)] if isinstance(line, dict) else line


@pytest.mark.parametrize("foreign, contended", [(0.2, True), (0.04, False), (None, False)])
def test_others_on_the_cpu_during_the_rounds_mark_the_run_contended(run, foreign, contended):
    telemetry = {"host": {"foreign": foreign}} if foreign is not None else {}
    told = [Started(environment=ENVIRONMENT, fingerprint="f"), measured(CONFIG.workloads[0], telemetry=telemetry)]
    for seq, event in enumerate(told, 1):
        line = {"version": 2, "run": run.pk, "attempt": 1, "seq": seq, "at": AT}
        record([line | {"event": event.model_dump(mode="json", by_alias=True)}])
    run.refresh_from_db()
    assert (run.done, run.contended) == (1, contended)
    noted = set(Newest.objects.values_list("terms", flat=True))
    assert noted == {row.terms for row in Newest.objects.rows_of(run.measurements.get())}, "apart, if it is contended"
    again = importer.load(measurements.export_of(run), "x.json")
    assert again.contended is contended, "nor is it forgotten in a file"


def test_what_is_contended_later_takes_back_what_was_confirmed(run):
    confirmed, shares = [], zip(CONFIG.workloads, (0.0, 0.2), strict=True)
    told = [measured(w, telemetry={"host": {"foreign": s}}, protocol={"processes": 5}) for w, s in shares]
    for seq, event in enumerate([Started(environment=ENVIRONMENT, fingerprint="f"), *told], 1):
        line = {"version": 2, "run": run.pk, "attempt": 1, "seq": seq, "at": AT}
        record([line | {"event": event.model_dump(mode="json", by_alias=True)}])
        confirmed.append(Result.objects.filter(confirmed=True).count())
    assert confirmed == [0, 1, 0], "the baseline, until others used the device"


@pytest.fixture
def events(run):
    """All events of a run of two workloads, as its agent numbers them."""
    first, second = CONFIG.workloads
    seen = [{"key": w.key, "kernel": k, "ran": [("aten::mm", 5)]} for w in (first, second) for k in ("sdpa", "eager")]
    told = [
        Started(environment=ENVIRONMENT, fingerprint="f"),
        measured(first),
        measured(second),
        CrossChecked(seen=seen, timing={"start": 2.0, "cross-check": 3.0}),
        Finished(state="done", log="the end"),
    ]
    lines = [Line(run=run.pk, attempt=1, seq=seq, at=AT, event=event) for seq, event in enumerate(told, start=1)]
    return [line.model_dump(mode="json", by_alias=True) for line in lines]


def assert_complete(run):
    run.refresh_from_db()
    assert (run.state, run.seq, run.done, run.log) == ("done", 5, 2, "the end")
    assert Measurement.objects.count() == 2
    assert Result.objects.count() == 4
    assert all(r.ran == [["aten::mm", 5]] for r in Result.objects.all())
    assert {r.effective_sample_size for r in Result.objects.all()} == {None, 4.5}
    exported = measurements.of_run(run, raw=True)[0]
    assert exported.aa_samples_ns == [[1.0]]
    assert (exported.timing, run.timing) == ({"rounds": 0.5, "check": 0.5}, {"start": 2.0, "cross-check": 3.0})
    assert measurements.export_of(run).timing == run.timing
    assert exported.arm("eager").effective_sample_size == 4.5
    assert [row.registers for row in tables.rows([exported])] == [168, 168]
    assert [{name: getattr(row, name) for name in TAKEN} for row in tables.rows([exported])] == [TAKEN, TAKEN]
    assert not RejectedEvent.objects.exists()


def test_events_in_order_make_a_run(run, events):
    assert record(events) == {(run.pk, 1): 5}
    assert_complete(run)


def test_events_one_by_one_and_each_twice_are_stored_once(run, events):
    for event in events:
        assert record([event]) == record([event]) == {(run.pk, 1): event["seq"]}
    assert_complete(run)


def test_a_message_in_reverse_order_is_stored_in_the_right_one(run, events):
    assert record(events[::-1]) == {(run.pk, 1): 5}
    assert_complete(run)


def test_an_event_before_its_predecessor_waits_until_both_come(run, events):
    for event in events[:0:-1]:
        assert record([event]) == {(run.pk, 1): 0}
    run.refresh_from_db()
    assert (run.state, run.seq) == ("queued", 0)
    assert record([events[0]]) == {(run.pk, 1): 1}
    run.refresh_from_db()
    assert (run.state, Measurement.objects.count()) == ("running", 0)
    record(events)
    assert_complete(run)


def test_the_whole_journal_sent_again_after_the_end_changes_nothing(run, events):
    record(events)
    ids = list(Result.objects.values_list("pk", flat=True))
    assert record(events) == {(run.pk, 1): 5}
    assert record(events[:1]) == {(run.pk, 1): 5}
    assert list(Result.objects.values_list("pk", flat=True)) == ids
    assert_complete(run)


# --- no ratio joins two measurements ----------------------------------------------------------------------------------


def test_a_second_measurement_of_a_group_changes_nothing(run, events):
    """A child that measured the same group again has other times: the first ones stay, none is mixed with them."""
    record(events[:2])
    again = copy.deepcopy(events[1]) | {"seq": 3}
    others = [result("sdpa", 7.0), result("eager", 8.0), result("triton-flash", 9.0)]
    again["event"] |= {"margin": 0.5, "results": [arm.model_dump(mode="json", by_alias=True) for arm in others]}
    assert record([again]) == {(run.pk, 1): 3}
    measurement = Measurement.objects.get()
    assert measurement.margin == 0.01
    assert {r.kernel.name: r.p50_ms for r in measurement.results.all()} == {"sdpa": 1.0, "eager": 2.0}
    assert not RejectedEvent.objects.exists()


def test_arms_of_another_group_are_measured_beside_a_baseline_of_their_own(run, events):
    record(events[:2])
    other = copy.deepcopy(events[1]) | {"seq": 3}
    arms = [result("sdpa", 4.0), result("eager", 5.0)]
    other["event"] |= {"group": "eager-launch", "results": [arm.model_dump(mode="json", by_alias=True) for arm in arms]}
    record([other])
    times = Result.objects.values_list("measurement__group", "kernel__name", "p50_ms")
    assert set(times) == {
        ("main", "sdpa", 1),
        ("main", "eager", 2),
        ("eager-launch", "sdpa", 4),
        ("eager-launch", "eager", 5),
    }
    run.refresh_from_db()
    assert run.done == 1


def test_an_event_with_one_bad_result_is_not_stored_by_half(run, events):
    events[1]["event"]["results"][1].pop("kernel")
    record(events[:2])
    assert not Measurement.objects.exists()
    assert not Result.objects.exists()
    assert RejectedEvent.objects.get().seq == 2


# --- what cannot be stored --------------------------------------------------------------------------------------------


def with_log(text):
    def spoil(event):
        event["event"]["results"][0]["log"] = text

    return spoil


def with_time(value):
    def spoil(event):
        event["event"]["results"][0]["samples_ns"] = [[value]]

    return spoil


SPOILT = {
    "a NUL": (with_log("a\x00b"), "NUL"),
    "a NaN": (with_time(math.nan), "finite"),
    "an infinity": (with_time(math.inf), "finite"),
    "too many bytes": (with_log("x" * MAX_EVENT_BYTES), "bytes"),
    "a number that no column holds": (
        lambda e: e["event"]["results"][0].update(outliers=10**30),
        "OverflowError|DataError",
    ),
    "no event": (lambda e: e.update(event=None), "event"),
    "a list for an object": (lambda e: e["event"]["results"][0].update(correctness=[1]), "correctness"),
    "an unknown kind": (lambda e: e["event"].update(kind="gossip"), "gossip"),
    "a workload that is not the one of its key": (lambda e: e["event"].update(key="0" * 16), "key"),
    "a speedup without an interval": (lambda e: e["event"]["results"][1].update(speedup_low=None), "interval"),
    "a speedup of what is wrong": (lambda e: e["event"]["results"][1].update(status="incorrect"), "no speedup"),
    "a status that there is not": (lambda e: e["event"]["results"][0].update(status="splendid"), "status"),
    "the version after the next": (lambda e: e.update(version=4), "version"),
    "an impossible workload": (lambda e: e["event"]["workload"]["sizes"].update(heads=-1), "heads"),
}


@pytest.mark.parametrize("spoil, reason", SPOILT.values(), ids=SPOILT.keys())
def test_what_cannot_be_stored_is_kept_and_confirmed_and_the_run_goes_on(run, events, spoil, reason):
    spoil(events[1])
    assert record(events) == {(run.pk, 1): 5}
    rejected = RejectedEvent.objects.get()
    assert (rejected.run, rejected.attempt, rejected.seq) == (run.pk, 1, 2)
    assert re.search(reason, rejected.reason)
    assert rejected.body
    assert "\x00" not in rejected.reason + rejected.body
    run.refresh_from_db()
    assert (run.state, run.done, run.seq) == ("failed", 1, 5), "a run that lost a workload is not done"
    assert run.message.startswith("1 event could not be stored; the first: ")
    assert re.search(reason, run.message)


def test_a_run_that_lost_only_its_cross_check_is_done_and_says_so(run, events):
    events[3]["event"]["seen"][0].pop("kernel")
    record(events)
    run.refresh_from_db()
    assert (run.state, run.done) == ("done", 2)
    assert "1 event could not be stored; the first: " in run.message


def test_a_source_that_speaks_of_nul_is_not_a_nul(run, events):
    events[1]["event"]["results"][0]["source"] = r'separator = "\u0000" # or "\\u0000"'
    record(events)
    assert_complete(run)


def test_events_of_a_superseded_attempt_are_kept_and_confirmed(run, events):
    Run.objects.filter(pk=run.pk).update(attempt=2)
    assert record(events) == {(run.pk, 1): 5}
    assert RejectedEvent.objects.count() == 5
    assert "superseded by attempt 2" in RejectedEvent.objects.first().reason
    run.refresh_from_db()
    assert (run.state, run.seq, Measurement.objects.count()) == ("queued", 0, 0)


@pytest.mark.parametrize("number", [10**6, 10**30], ids=["free", "larger than any column"])
def test_events_of_an_unknown_run_are_kept_and_confirmed(run, events, number):
    lost = [event | {"run": number} for event in events]
    assert record([*lost, *events]) == {(number, 1): 5, (run.pk, 1): 5}
    assert RejectedEvent.objects.filter(reason__contains="no such run").count() == 5
    run.refresh_from_db()
    assert run.state == "done"


def test_an_event_that_was_sent_as_another_is_rejected(run, events):
    """Else the second workload could be stored in the place of the first."""
    first, second = sent(events[0]), sent(events[2])
    recorder.record([first, [*second[:2], 2, second[3]]])
    assert not Measurement.objects.exists()
    assert "it is event 3 of run" in RejectedEvent.objects.get().reason


def test_what_is_not_even_an_event_is_kept(run, events):
    record(["hello", None, *events])
    assert RejectedEvent.objects.count() == 2
    run.refresh_from_db()
    assert run.state == "done"


def test_a_database_that_is_busy_confirms_nothing(run, events, monkeypatch):
    """The events come again: to reject them would lose them."""

    def busy(*_):
        raise OperationalError("database is locked")

    with monkeypatch.context() as patched:
        patched.setattr(recorder, "_measured", busy)
        with pytest.raises(OperationalError):
            record(events)
    run.refresh_from_db()
    assert (run.seq, RejectedEvent.objects.count()) == (0, 0)
    record(events)
    assert_complete(run)


def test_an_ending_comes_once(run, events):
    """A run that a person gave up stays so, whatever its agent says later."""
    record(events[:2])
    run.refresh_from_db()
    assert run.advance(Run.State.LOST, message="given up")
    assert record(events) == {(run.pk, 1): 5}
    run.refresh_from_db()
    assert (run.state, run.message) == ("lost", "given up")


# --- the version before -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "as_dicts", [False, True], ids=["from a journal that outlived an upgrade", "from an old agent"]
)
def test_a_journal_of_version_1_is_stored(as_dicts):
    """What an agent wrote before it was upgraded, and what an agent that was not upgraded sends."""
    lines = [json.loads(line) for line in (Path(__file__).parent / "version-1.jsonl").read_text().splitlines()]
    workloads = [line["data"]["workload"] for line in lines if line["kind"] == "measured"]
    config = Config(name="old", operation="layer_norm", kernels=["eager"], workloads=workloads)
    old = Run.objects.submit(config, gpu=Gpu.objects.create(uuid="CPU-old", kind="cpu", name="a CPU"))
    Run.objects.filter(pk=old.pk).update(attempt=1, sent_at=old.created_at)
    lines = [line | {"run": old.pk} for line in lines]
    assert recorder.record(lines if as_dicts else [sent(line) for line in lines]) == {(old.pk, 1): len(lines)}
    assert not RejectedEvent.objects.exists()
    old.refresh_from_db()
    (stored,) = measurements.of_run(old, raw=True)
    (told,) = [line["data"] for line in lines if line["kind"] == "measured"]
    mine, was = stored.arm("eager"), told["results"][0]
    assert (old.state, old.done, old.log) == ("done", 1, "the end")
    assert (mine.n, mine.p50_ms, mine.p50_low_ms) == (was["stats"]["n"], was["stats"]["p50"], was["stats"]["p50_low"])
    assert (mine.samples_ns, mine.std_ms) == (was["ticks_ns"], was["stats"]["std"])
    assert (stored.aa_samples_ns, list(stored.aa), stored.margin) == (told["aa_ticks_ns"], told["aa"], told["margin"])
    assert (mine.crosscheck.calls, mine.ran) == (lines[-2]["data"]["seen"][0]["check"]["calls"], [("aten::x", 123)])


def test_many_results_in_one_message_take_no_more_queries_than_a_few(run):
    """Beside what one at a time would give: the same rows."""
    several = CONFIG.workloads[0].sizes | {"seq_len": [64 * number for number in range(1, 13)]}
    sizes = Config(name="many", operation="attention", kernels=["sdpa"], workloads=[several]).workloads
    told = [Started(environment=ENVIRONMENT, fingerprint="f"), *map(measured, sizes)]
    lines = [Line(run=run.pk, attempt=1, seq=seq, at=AT, event=event) for seq, event in enumerate(told, start=1)]
    lines = [line.model_dump(mode="json", by_alias=True) for line in lines]
    record(lines[:2])
    with CaptureQueriesContext(connection) as few:
        record(lines[2:5])
    with CaptureQueriesContext(connection) as many:
        record(lines[5:])
    assert len(many) == len(few)
    assert not [one for one in many if '"config"' in one["sql"] or '"catalogue"' in one["sql"]], "they are large"
    run.refresh_from_db()
    assert run.done == len(sizes) == run.measurements.count()
    assert Result.objects.filter(measurement__run=run).count() == 2 * len(sizes) == Newest.objects.count()


def test_one_result_that_cannot_be_stored_keeps_none_of_its_message_back(run):
    told = [Started(environment=ENVIRONMENT, fingerprint="f"), *map(measured, CONFIG.workloads)]
    lines = [Line(run=run.pk, attempt=1, seq=seq, at=AT, event=event) for seq, event in enumerate(told, start=1)]
    lines = [line.model_dump(mode="json", by_alias=True) for line in lines]
    lines[1]["event"]["key"] = "of another"
    assert record(lines) == {(run.pk, 1): 3}
    assert [one.seq for one in RejectedEvent.objects.all()] == [2]
    assert run.measurements.get().workload.key == CONFIG.workloads[1].key

"""Where the seconds of a run go: every second belongs to one phase, and is said in the file, the terminal and the page."""

import json
import time
from typing import get_args

import pytest

from kernels.cli.main import main
from kernels.contract.events import Measured, Phase
from kernels.contract.export import read_export
from kernels.parent.stopwatch import OF_COMMAND, OF_STEP, Stopwatch, added
from kernels.report.timing import SAID, as_text, spent, total_s

TINY = """
title: Tiny
operation: attention
kernels: [eager]
protocol: {warmup_s: 0.01, min_rounds: 10, max_rounds: 10, verify_seeds: 1, block_ms: 0.2}
workloads: [{batch: 1, heads: [1, 2], seq_len: 32, head_dim: 16, dtype: float32}]
"""


class Clock:
    def __init__(self):
        self.s = 100.0

    def __call__(self):
        return self.s

    def passes(self, s):
        self.s += s


def test_every_second_belongs_to_the_innermost_phase():
    clock = Clock()
    watch = Stopwatch(clock)
    clock.passes(1)
    with watch.during("start"):
        clock.passes(2)
        with watch.during("wait"):
            clock.passes(4)
        clock.passes(8)
    clock.passes(16)
    assert watch.take() == {"host": 17, "start": 10, "wait": 4}
    assert watch.take() == {}
    with pytest.raises(KeyError), watch.during("rounds"):
        clock.passes(1)
        raise KeyError
    clock.passes(1)
    assert watch.take() == {"rounds": 1, "host": 1}


def test_a_command_is_of_the_step_that_asks_for_it():
    watch = Stopwatch(Clock())
    for step, do, phase in (
        ("estimate", "block", "estimate"),
        ("warm-up", "replay", "warm-up"),
        ("round", "block", "rounds"),
        ("round", "keep", "check after"),
        ("round", "capture", "captures"),
        ("single", "block", "single calls"),
        ("checking", "block", "check after"),
        ("checking", "recheck", "check after"),
        ("compile", "load", "load"),
        ("compile", "compile", "first call"),
        ("500", "block", "rounds"),
        ("cross-check", "capture", "cross-check"),
    ):
        watch.step = step
        assert watch.phase_of(do) == phase, (step, do)


def test_the_rest_that_a_block_asks_for_is_a_phase_of_its_own():
    clock = Clock()
    watch = Stopwatch(clock)
    watch.step = "round"
    with watch.command("block", {"rest_ns": 2e9}):
        clock.passes(5)
    with watch.command("block", {"rest_ns": 9e9}):  # it cannot have rested longer than it took
        clock.passes(1)
    assert watch.take() == {"rounds": 3, "rests": 3}


def test_every_phase_is_known_and_has_words():
    assert set(SAID) == set(get_args(Phase))
    assert {*OF_COMMAND.values(), *OF_STEP.values()} <= set(get_args(Phase))
    assert added({"start": 1.0, "host": 2.0}, {"host": 3.0, "wait": 4.0}) == {"start": 1.0, "host": 5.0, "wait": 4.0}


def test_a_run_on_this_machine_says_where_its_seconds_went(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "tiny.yaml").write_text(TINY)
    out, begin = tmp_path / "out.json", time.monotonic()
    assert main(["run", str(tmp_path / "tiny.yaml"), "--device", "cpu", "--json", str(out), "--timing"]) == 0
    took_s = time.monotonic() - begin
    export = read_export(out.read_bytes())
    table = spent(export.measurements, export.timing)
    phases = {one.phase: one for one in table}
    assert {"start", "calibrate", "cross-check"} <= set(export.timing)
    assert phases["start"].run_s > 0.1 > phases["start"].workloads_s, (
        "a process that is replaced on a busy machine is quick"
    )
    for measured in export.measurements:
        assert {"load", "first call", "check", "inputs", "estimate", "warm-up", "rounds"} <= set(measured.timing)
        assert sum(measured.timing.values()) == pytest.approx(measured.took_s, abs=0.1)
    assert 0.8 * took_s < total_s(table) <= took_s
    assert sum(one.share for one in table) == pytest.approx(1)
    said = capsys.readouterr().out
    assert "seconds  share  phase" in said and SAID["probes"] in said and "the whole run" in said


def test_what_an_older_or_a_newer_run_says_is_read(tmp_path):
    assert as_text(spent([], {})) == "No times of phases were recorded."
    (one,) = spent([], {"a phase of tomorrow": 2.0})
    assert (one.said, one.run_s, one.share) == ("a phase of tomorrow", 2.0, 1.0)
    assert json.loads(Measured.model_construct(timing={}).model_dump_json())["timing"] == {}

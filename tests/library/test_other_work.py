"""Kernels that do other work, for comparison: a ratio without a word, which counts nowhere."""

import pytest

from kernels.analysis.correctness import judge, without_values
from kernels.analysis.standing import ranking
from kernels.analysis.verdicts import verdict
from kernels.catalog import declaration
from kernels.contract.arm_result import ArmResult, Verdict
from kernels.contract.events import Measured
from kernels.parent.arm import Arm
from kernels.parent.reading import Reading
from kernels.parent.results import Limits, arm_results
from kernels.report import measures, tables
from kernels.report.cells import as_csv
from kernels.report.summary import summary
from kernels.workload import Workload

WORKLOAD = Workload(operation="attention", sizes={"batch": 1, "heads": 1, "seq_len": 8, "head_dim": 8})
TIMES = {"n": 80, "rounds": 20, "p50_ms": 1.0, "p50_low_ms": 0.99, "p50_high_ms": 1.01}
FASTER = {"speedup": 2.0, "speedup_low": 1.99, "speedup_high": 2.01}
RIGHT, UNKNOWN = {"correct": True}, {"correct": None}


def measured(**others):
    """A baseline and these kernels."""
    arms = [ArmResult(kernel="sdpa", correctness=RIGHT, **TIMES)]
    arms += [ArmResult(kernel=name.replace("_", "-"), **TIMES | FASTER | fields) for name, fields in others.items()]
    return Measured(workload=WORKLOAD, mode="cold", baseline="sdpa", margin=0.01, results=arms)


OTHER = {"other_work": "reads nothing", "correctness": UNKNOWN}


@pytest.mark.parametrize("correctness", [RIGHT, UNKNOWN, None], ids=str)
def test_it_has_a_ratio_and_no_word(correctness):
    event = measured(mine=OTHER | {"correctness": correctness})
    mine = event.results[1]
    assert mine.speedup == 2.0 and verdict(mine, event) == Verdict.OTHER_WORK
    untimed = ArmResult(kernel="mine", **OTHER)
    assert verdict(untimed, event.model_copy(update={"mode": "verify"})) == Verdict.OTHER_WORK


def test_it_is_in_no_mean_and_in_no_count():
    table = tables.rows([measured(mine=OTHER, honest={"correctness": RIGHT})])
    standings = {one.kernel: one for one in ranking(tables.compared(table)).standings}
    assert (standings["honest"].n, standings["mine"].n, standings["mine"].mean) == (1, 0, None)
    alone = tables.rows([measured(honest={"correctness": RIGHT})])
    said = str(summary(table, "attention"))
    assert said.replace("mine has no rank: not the same work. ", "") == str(summary(alone, "attention")) != said
    assert summary(tables.rows([measured(mine=OTHER)]), "attention").strong == "Measured; no comparison"


def test_other_work_that_is_faster_than_the_headline_is_said():
    quick = {"p50_ms": 0.5, "p50_low_ms": 0.49, "p50_high_ms": 0.51}
    said = str(summary(tables.rows([measured(dense=OTHER | quick, sparse={"correctness": RIGHT})]), "attention"))
    assert (
        "dense, which does other work, is faster than sparse: 500 us (490 to 510) against 1.00 ms (0.990 to 1.01)."
        in said
    )
    alike = str(summary(tables.rows([measured(dense=OTHER, sparse={"correctness": RIGHT})]), "attention"))
    assert "other work" not in alike, "their intervals overlap"
    undecided = {"speedup": 1.0, "speedup_low": 0.99, "speedup_high": 1.01, "correctness": RIGHT}
    none = str(summary(tables.rows([measured(dense=OTHER | quick, sparse=undecided)]), "attention"))
    assert "other work" not in none, "nobody won"


def test_files_say_what_it_does_instead():
    table = tables.rows([measured(mine=OTHER)])
    assert table[1].why == "not the same work: it reads nothing" and table[1].other_work == "reads nothing"
    assert "not the same work: it reads nothing" in as_csv(tables.as_records(table), tables.COLUMNS)
    assert '"verdict": "not the same work"' in list(measures.as_jsonl(table, []))[1]
    assert "not the same work" in tables.as_text(table)


def test_nothing_is_compared_with_a_baseline_that_does_other_work():
    base = ArmResult(kernel="sdpa", **TIMES, **OTHER)
    other = ArmResult(kernel="mine", correctness=RIGHT, **TIMES, **FASTER)
    event = Measured(workload=WORKLOAD, mode="cold", baseline="sdpa", margin=0.01, results=[base, other])
    assert event.results[1].speedup is None
    arms = [Arm("sdpa", facts={"other_work": "reads nothing"}), Arm("mine")]
    reading = Reading("cpu", {"sdpa": [[200.0, 210.0]] * 8, "mine": [[100.0, 101.0]] * 8})
    results = arm_results(arms, reading, "sdpa", Limits(WORKLOAD.problem, "a CPU"), 1)
    assert all(one.speedup is None for one in results)
    assert reading.notes == ["the baseline sdpa is not the same work: nothing is compared with it"]


def test_it_has_times_and_no_rates():
    arms = [Arm("sdpa"), Arm("mine", facts={"other_work": "reads nothing"})]
    reading = Reading("cpu", {"sdpa": [[200.0, 210.0]] * 8, "mine": [[100.0, 101.0]] * 8})
    base, mine = arm_results(arms, reading, "sdpa", Limits(WORKLOAD.problem, "a CPU"), 1)
    assert base.tflops and base.gb_per_s and mine.speedup > 1.5
    assert (mine.tflops, mine.gb_per_s, mine.limit_share) == (None, None, None)


def test_its_values_are_not_judged_and_the_rest_is():
    reading = {"frobenius": 1.0, "max_abs": 9.0, "late": 0, "unwritten": 0, "distribution": "x30", "fits": True}
    found = judge(without_values([reading]), "float16", {"inputs_changed": False})
    assert (found["correct"], found["why"]) == (None, "")
    for fault, why in (
        ({"late": 1}, "the output changed"),
        ({"unwritten": 3}, "3 elements"),
        ({"wrong_kind": "no"}, "no"),
    ):
        found = judge(without_values([reading | fault]), "float16")
        assert found["correct"] is False and why in found["why"]
    changed = judge(without_values([reading]), "float16", {"inputs_changed": True})
    assert changed["correct"] is False


def test_the_declaration_says_it_in_a_clause():
    said = declaration("nsa", backend="pytorch", function_name="dense", other_work="reads all")
    assert said["other_work"] == "reads all"
    for wrong in (3, "two\nlines"):
        with pytest.raises(ValueError, match="must say in a clause"):
            declaration("nsa", backend="pytorch", function_name="dense", other_work=wrong)
    with pytest.raises(ValueError, match="it cannot do other work"):
        declaration("nsa", backend="pytorch", function_name="eager", other_work="reads all")

"""What changed between two runs: which results are compared, what is said of them, and what is not."""

import collections
import copy
import csv
import io
import itertools
import json
import math
from pathlib import Path

import pytest

from kernels.analysis.statistics import change, margin_from, word
from kernels.contract.arm_result import ArmResult
from kernels.contract.events import Measured
from kernels.report.comparison import (
    COLUMNS,
    GONE,
    NEW,
    NOT_COMPARED,
    RunResults,
    as_csv,
    as_markdown,
    as_text,
    rows,
    why_not,
    worse,
)
from kernels.report.comparison_summary import summary
from kernels.workload import Workload

MEASURED = Path(__file__).parents[2] / "docs" / "measurements"
ENVIRONMENT = {"device": "NVIDIA H200", "uuid": "GPU-1", "driver": "580", "torch": "2.11", "harness": "5"}


def result(kernel, speedup=None, sha="a", status="ok", rounds=40, **more):
    """A result; its speedup with an interval of 0.2% to either side, unless it is the baseline's."""
    found = {"kernel": kernel, "status": status, "sha256": sha, "correctness": {"correct": status == "ok"}}
    if status == "ok":
        p50_ms = 0.01 / (speedup or 1)
        found |= {"n": rounds, "rounds": rounds, "p50_ms": p50_ms, "p50_low_ms": p50_ms, "p50_high_ms": p50_ms}
    if speedup:
        found |= {"speedup": speedup, "speedup_low": speedup / 1.002, "speedup_high": speedup * 1.002}
    return ArmResult(**found | more)


def measurement(*results, seq_len=512, **more):
    workload = Workload(operation="attention", sizes={"batch": 1, "heads": 8, "seq_len": seq_len, "head_dim": 64})
    shared = {"mode": "graph", "margin": 0.01, "baseline": "sdpa", "protocol": {"paired": True, "rest": 1.0}}
    return Measured(workload=workload, **shared | {"results": [result("sdpa"), *results]} | more)


def run(*measurements, **environment):
    return RunResults(ENVIRONMENT | environment, list(measurements))


def changed(before, after):
    """The row of the one kernel beside the baseline, of runs of one workload."""
    return next(row for row in rows(run(before), run(after)) if row.kernel != "sdpa")


# --- the estimate -----------------------------------------------------------------------------------------------------


def test_a_change_is_the_ratio_of_speedups_with_the_uncertainty_of_both():
    ratio, low, high = change((1.0, 0.99, 1.01), (1.2, 1.2 * 0.98, 1.2 * 1.02))
    assert ratio == pytest.approx(1.2)
    assert low == pytest.approx(1.2 * (1 - (0.01**2 + 0.02**2) ** 0.5), rel=1e-3)
    assert high == pytest.approx(1.2 * (1 + (0.01**2 + 0.02**2) ** 0.5), rel=1e-3)


def test_a_change_back_is_the_inverse():
    there = change((1.1, 1.0, 1.3), (0.9, 0.85, 0.91))
    back = change((0.9, 0.85, 0.91), (1.1, 1.0, 1.3))
    assert [1 / back[0], 1 / back[2], 1 / back[1]] == pytest.approx(there)


def test_nothing_is_said_of_fresh_processes_that_measured_the_same_on_a_gpu():
    """Every two of ten processes on an H200, twelve workloads from 6 us to 20 ms."""
    processes = json.loads((MEASURED / "evidence-h200-2026-11-21.json").read_text())["pairs"]
    said = collections.Counter(
        word_of(one["workloads"][key], other["workloads"][key], "triton-flash", "triton-flash")
        for one, other in itertools.permutations(processes, 2)
        for key in one["workloads"].keys() & other["workloads"].keys()
    )
    assert said == {"SAME": 936, "UNDECIDED": 4}


def test_the_spread_that_was_fitted_to_one_h200_holds_on_others_and_nothing_is_said_on_any_card():
    """Two processes of the same kernel on other cards, with the intervals of an H200's spread."""
    within, said = collections.Counter(), collections.Counter()
    for file in (*MEASURED.glob("evidence-h?00-of-two-*.json"), MEASURED / "evidence-of-another-h200-2026-11-23.json"):
        device = json.loads(file.read_text())["environment"]["device"]
        for one, other in itertools.combinations(json.loads(file.read_text())["pairs"], 2):
            for key in one["workloads"].keys() & other["workloads"].keys():
                before, after = one["workloads"][key], other["workloads"][key]
                was, now = (
                    tuple(side["speedup"]["triton-flash"][end] for end in ("ratio", "low", "high"))
                    for side in (before, after)
                )
                within[device, change(was, now)[1] <= 1 <= change(was, now)[2]] += 1
                said[word_of(before, after, "triton-flash", "triton-flash")] += 1
    assert (within["NVIDIA H200", True], within["NVIDIA H200", False]) == (163, 1)
    assert said.keys() == {"SAME", "UNDECIDED"}, said


def test_three_percent_more_work_is_found_between_processes_on_a_gpu():
    """A kernel that does 5% more work than another, beside one that does 2% more, in other processes."""
    processes = json.loads((MEASURED / "planted-h200-2026-11-22.json").read_text())["planted"]
    found = [row for process in processes for row in process["workloads"].values()]
    said = collections.Counter(
        word_of(one, other, "planted-2", "planted-5") for one, other in itertools.permutations(found, 2)
    )
    assert said == {"SLOWER": 380}
    for kernel in ("planted-2", "planted-5"):
        words = {word_of(one, other, kernel, kernel) for one, other in itertools.permutations(found, 2)}
        assert words == {"SAME"}


def word_of(before, after, kernel, later_kernel):
    was, now = before["speedup"][kernel], after["speedup"][later_kernel]
    _, low, high = change(*([side[end] for end in ("ratio", "low", "high")] for side in (was, now)))
    margin = max(margin_from(before["aa"]), margin_from(after["aa"]))
    return word(low, high, margin, min(was["rounds"], now["rounds"]))


# --- whether two runs can be compared ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "environment, said",
    [
        ({"driver": "590", "torch": "2.12"}, "driver 580 before, 590 after; torch 2.11 before, 2.12 after"),
        ({"harness": "6"}, "harness 5 before, 6 after"),
        ({"uuid": "GPU-2"}, "two cards, GPU-1 and GPU-2; cards of one model differ"),
        ({"uuid": None}, "Unknown whether both runs used the same card"),
    ],
)
def test_another_device_or_version_is_named(environment, said):
    before = run(measurement(result("mine", 1.2)))
    assert why_not(before, before) == ""
    assert said in why_not(before, run(measurement(result("mine", 1.3)), **environment))


def test_runs_without_a_workload_in_common_or_that_never_began():
    before = run(measurement())
    assert why_not(before, run(measurement(seq_len=64))) == "The runs have no workload in common."
    assert why_not(before, RunResults({}, [])) == "The run after has no results."
    assert why_not(RunResults({}, []), before) == "The run before has no results."


# --- whether two results can be ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("now, verdict", [(1.26, "FASTER"), (1.14, "SLOWER"), (1.201, "SAME"), (1.212, "UNDECIDED")])
def test_a_kernel_over_what_it_was(now, verdict):
    row = changed(measurement(result("mine", 1.2)), measurement(result("mine", now, sha="b")))
    assert row.verdict == verdict
    assert row.change == pytest.approx(now / 1.2)
    assert (row.speedup_before, row.speedup_after) == (1.2, now)
    assert all(one.low < one.ratio < one.high for one in row.speedups) and all(row.times_us), "each has its interval"
    assert row.same_source is False
    assert row.change_low < row.change < row.change_high


def test_the_wider_margin_of_the_two_counts():
    after = measurement(result("mine", 1.26, sha="b"))
    assert changed(measurement(result("mine", 1.2), margin=0.06), after).verdict == "UNDECIDED"
    assert changed(measurement(result("mine", 1.2), margin=0.03), after).verdict == "FASTER"


@pytest.mark.parametrize(
    "before, after, verdict, why",
    [
        ({"mode": "cold"}, {}, NOT_COMPARED, "mode cold before, graph after"),
        (
            {"protocol": {"paired": True, "rest": 0.0}},
            {},
            NOT_COMPARED,
            "another protocol: rests 0.0 before, 1.0 after",
        ),
        (
            {"baseline": "eager", "results": [result("eager"), result("mine", 1.2)]},
            {},
            NOT_COMPARED,
            "over eager before, over sdpa after",
        ),
        (
            {"results": [result("sdpa", sha="b"), result("mine", 1.2)]},
            {},
            NOT_COMPARED,
            "the source of the baseline sdpa",
        ),
        ({"results": [result("sdpa"), result("mine")]}, {}, NOT_COMPARED, "without a speedup before"),
        ({"results": [result("sdpa"), result("mine", status="incorrect")]}, {}, "ok", "incorrect before"),
        ({"results": [result("sdpa")]}, {}, NEW, ""),
        (
            {},
            {"results": [result("sdpa"), result("mine", status="crashed", why="killed")]},
            "crashed",
            "killed",
        ),
        ({}, {"results": [result("sdpa")]}, GONE, ""),
        ({}, {"results": [result("sdpa"), result("mine", 1.2, rounds=3)]}, "needs more rounds", ""),
    ],
)
def test_what_is_not_compared_says_why_and_has_no_figure(before, after, verdict, why):
    row = changed(measurement(result("mine", 1.2), **before), measurement(result("mine", 1.2), **after))
    assert row.verdict == verdict
    assert why in row.why
    assert row.verdict == "needs more rounds" or row.change is None


def test_one_row_for_each_kernel_and_workload_of_either_run():
    before = run(measurement(result("mine", 1.2)), measurement(result("mine", 1.2), seq_len=64))
    after = run(measurement(result("mine", 1.2), result("other", 1.1)), measurement(seq_len=128))
    found = [(row.workload.split()[4], row.kernel, row.verdict) for row in rows(before, after)]
    assert found == [
        ("S=512", "sdpa", "baseline"), ("S=512", "mine", "SAME"), ("S=512", "other", "new"), ("S=128", "sdpa", "new"),
        ("S=64", "sdpa", "gone"), ("S=64", "mine", "gone"),
    ]  # fmt: skip
    assert rows(run(measurement(mode="cold")), run(measurement()))[0].verdict == NOT_COMPARED
    assert len(rows(run(measurement(mode="cold")), run(measurement()))) == 1, "what is in another mode is not gone"


# --- what nobody changed ----------------------------------------------------------------------------------------------


def test_where_a_kernel_moved_whose_source_is_the_same_less_than_twice_that_says_nothing():
    before = measurement(result("mine", 1.2), result("eager", 0.50))
    moved = measurement(result("mine", 1.24, sha="b"), result("eager", 0.52))
    steady = measurement(result("mine", 1.24, sha="b"), result("eager", 0.50))
    mine, eager = (row for row in rows(run(before), run(moved)) if row.kernel != "sdpa")
    assert (mine.verdict, eager.verdict) == ("UNDECIDED", "UNDECIDED")
    assert mine.margin == pytest.approx(0.08)
    assert changed(before, steady).verdict == "FASTER"
    far = measurement(result("mine", 1.5, sha="b"), result("eager", 0.52))
    assert changed(before, far).verdict == "UNDECIDED", "above a margin of 5% nothing is decided"
    a_little = measurement(result("mine", 1.5, sha="b"), result("eager", 0.51))
    assert changed(before, a_little).verdict == "FASTER", "it moved further than twice 2%"
    said = " ".join(summary(rows(run(before), run(moved))).rest)
    assert "1 is undecided, but eager moved on 1 workload: results are undecided there." in said


# --- in words and other forms -----------------------------------------------------------------------------------------


def test_what_is_said_first_is_of_the_kernel_that_was_changed():
    before = run(*(measurement(result("mine", 1.2), result("eager", 0.5), seq_len=n) for n in (64, 128, 256)))
    after = run(
        *(
            measurement(result("mine", now, sha="b"), result("eager", 0.5), seq_len=n)
            for n, now in ((64, 1.3), (128, 1.4), (256, 1.1))
        )
    )
    said = summary(rows(before, after))
    assert said.strong == "mine is mixed: faster than before on 2 of 3 workloads, slower on 1"
    assert said.tone == "same"
    assert said.rest == [
        "Geometric mean of the changes 1.050x over 3 (1.049 to 1.052), least 0.917x.",
        "Of 3 results of unchanged kernels, 3 are the same; none is faster or slower.",
    ]


def test_of_many_edited_kernels_one_sentence_says_who_is_faster_and_who_is_slower():
    """Seven kernels had seven sentences, and the first was of one that was faster, whatever became slower."""
    now = {"a": 1.3, "b": 1.3, "c": 1.3, "d": 1.1, "e": 1.2}

    def of(sha, speeds):
        return run(measurement(*(result(name, speed, sha=sha) for name, speed in speeds.items())))

    said = summary(rows(of("a", dict.fromkeys(now, 1.2)), of("b", now)))
    assert said.strong == "3 kernels are faster than before, d is slower than before, e is as fast as before"
    assert said.tone == "same" and len(said.ranks) == 5
    assert said.lede == [said.rest[0]] and said.lede[0].startswith("No unchanged kernel was compared")
    assert said.ranks[3] == "d is slower than before. 0.917x, interval 0.914 to 0.919."
    assert all(sentence in str(said) for sentence in said.ranks), "where nothing is folded, all of it is said"
    faster = summary(rows(of("a", dict.fromkeys("abc", 1.2)), of("b", dict.fromkeys("abc", 1.3))))
    assert (faster.strong, faster.tone) == ("3 kernels are faster than before", "faster")
    before, after = of("a", dict.fromkeys("abc", 1.2)), of("b", dict.fromkeys("abc", 1.3))
    for one, now in ((before, 1.2), (after, 1.202)):
        one.measurements.append(measurement(*(result(name, now, sha=str(now)) for name in "abc"), seq_len=64))
    some = summary(rows(before, after))
    assert (some.strong, some.tone) == ("3 kernels are faster than before on 3 of 6 results", "faster")


def test_what_needs_more_rounds_or_is_too_noisy_is_in_no_mean():
    before = run(*(measurement(result("mine", 1.2), seq_len=n) for n in (64, 128, 256)))
    later = [result("mine", now, sha="b", rounds=n) for now, n in ((1.32, 40), (1.8, 5), (1.8, 40))]
    margins = (0.01, 0.01, 0.06)
    after = [measurement(one, seq_len=n, margin=m) for one, n, m in zip(later, (64, 128, 256), margins, strict=True)]
    said = summary(rows(before, run(*after)))
    assert said.rest[0] == (
        "It is undecided on 1. Geometric mean of the changes 1.100x over 1 (1.097 to 1.103), least 1.100x; "
        "1 left out: too noisy; 1 left out: needs more rounds."
    )


def test_where_only_the_control_moved_a_a_is_not_blamed():
    before = run(measurement(result("mine", 1.2), result("control", 1.1, "c")))
    after = run(measurement(result("mine", 1.22, sha="b"), result("control", 1.144, "c")))
    said = " ".join(summary(rows(before, after)).rest)
    assert "The unchanged kernels moved too much for a comparison." in said and "A/A" not in said


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        (True, False, "the run before is contended"),
        (False, True, "the run after is contended"),
        (True, True, "both runs are contended"),
    ],
)
def test_a_contended_run_decides_nothing(was, now, words):
    before, after = (
        RunResults(ENVIRONMENT, [measurement(result("mine", speedup, sha=sha))], contended)
        for speedup, sha, contended in ((1.2, "a", was), (1.3, "b", now))
    )
    table = rows(before, after)
    said = summary(table)
    assert (said.strong, said.tone) == (f"No change in speed is decided: {words}", "same")
    assert said.rest == ["Other processes used the device."]
    assert [row.verdict for row in table if row.kernel == "mine"] == ["UNDECIDED"], (
        "the row says what the sentence says"
    )
    unchanged = summary(rows(before, RunResults(ENVIRONMENT, before.measurements, now)))
    assert unchanged.strong == "No kernel source changed"
    assert unchanged.rest[0].lower() == f"{words}: other processes used the device."
    mine = next(row for row in csv.DictReader(io.StringIO(as_csv(table))) if row["kernel"] == "mine")
    assert mine["contended"] == {(True, False): "before", (False, True): "after", (True, True): "both"}[was, now]
    assert "contended" in as_markdown(table) and "contended" in as_text(table)


def test_nothing_changed_and_nothing_to_compare():
    before = run(measurement(result("mine", 1.2)))
    assert summary(rows(before, before)).strong == "No kernel source changed"
    assert summary(rows(before, run(measurement()))).strong == "No result can be compared"


def test_the_range_of_few_rounds_counts_twice_as_wide():
    few, enough = (changed(m, m) for m in (measurement(result("mine", 0.3, rounds=n)) for n in (7, 8)))
    assert few.change == enough.change == 1
    assert math.log(few.change_high) == pytest.approx(2 * math.log(enough.change_high))


def test_without_a_control_that_is_said():
    before, after = (run(measurement(result("mine", 1.2, sha=sha))) for sha in "ab")
    assert "so nothing controls for a difference between the two runs" in summary(rows(before, after)).rest[-1]


def test_what_fails_and_was_not_there_before_is_new():
    table = rows(run(measurement()), run(measurement(result("mine", status="failed"))))
    assert "1 new result failed (mine)." in summary(table).rest


def test_a_kernel_that_became_wrong_is_said_and_worse():
    before = run(measurement(result("mine", 1.2)))
    after = run(measurement(result("mine", status="incorrect", sha="b", why="largest error 3")))
    table = rows(before, after)
    assert "1 result is incorrect now (mine)." in summary(table).rest
    assert [row.kernel for row in worse(table)] == ["mine"]
    out = rows(before, run(measurement(result("mine", status="out of memory"))))
    assert "1 result ran out of memory now (mine)." in summary(out).rest
    assert summary(rows(after, after)).rest == worse(rows(after, after)) == [], "it was so before"
    assert worse(rows(before, before)) == []


def test_an_edited_kernel_that_became_wrong_is_an_edited_one():
    def after(*more):
        wrong = [result(name, status="incorrect", sha="b") for name in ("mine", "other")]
        return run(measurement(*wrong[: 2 - len(more)], result("control", 1.1), *more))

    before = run(measurement(result("mine", 1.2), result("other", 1.2), result("control", 1.1)))
    both = summary(rows(before, after()))
    assert both.strong == "The sources of mine and other changed, and no result of them can be compared"
    assert both.rest[0].startswith("Of 1 result of unchanged kernels")
    one = summary(rows(before, after(result("other", 1.3, sha="b"))))
    assert one.strong == "other is faster than before"
    assert "The source of mine changed, and no result of it can be compared." in one.rest


def test_the_table_in_other_forms():
    before, after = run(measurement(result("mine", 1.2))), run(measurement(result("mine", 1.3, sha="b")))
    table = rows(before, copy.deepcopy(after))
    read = list(csv.DictReader(io.StringIO(as_csv(table))))
    assert list(read[0]) == list(COLUMNS)
    assert float(read[1]["change"]) == pytest.approx(1.3 / 1.2)
    assert (
        "| mine | FASTER | 1.083x (1.080 to 1.086) | 1.0% | 1.200x ±0.2% | 1.300x ±0.2% | 8.33 ±0.0% | 7.69 ±0.0% |"
        in as_markdown(table)
    )
    assert "FASTER" in as_text(table).splitlines()[2]


def test_what_never_ran_before_is_not_gone():
    """A kernel that an earlier device or version could not run was called gone."""
    before = measurement(result("mine", 1.2), result("other", status="unsupported"))
    table = rows(run(before), run(measurement(result("mine", 1.2))))
    assert [row.kernel for row in table] == ["sdpa", "mine"]
    ran = measurement(result("mine", 1.2), result("other", status="crashed"))
    assert [row.verdict for row in rows(run(ran), run(measurement(result("mine", 1.2)))) if row.kernel == "other"] == [
        "gone"
    ]

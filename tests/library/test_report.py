"""Results as rows, files and sentences: what the terminal, the page and the downloads have in common."""

import csv
import io
import math

import pytest

from kernels.analysis.standing import Compared, ranking, standing_of
from kernels.analysis.verdicts import verdict, why_noisy
from kernels.contract.arm_result import ArmResult, Ratio, Status, Verdict
from kernels.contract.events import Measured, ProtocolFacts
from kernels.report.cells import as_csv, microseconds, plus_minus, three_digits
from kernels.report.summary import summary
from kernels.report.tables import (
    COLUMNS,
    against_itself,
    as_markdown,
    as_records,
    as_text,
    compared,
    failures,
    heading,
    main_kernel,
    rows,
    usual_lines,
)
from kernels.workload import Workload

FAST, SLOW, SAME, OPEN = (1.19, 1.21), (0.49, 0.51), (0.998, 1.002), (0.95, 1.08)
ALONE = "Every timed kernel was correct when it was checked alone."


def result(kernel, interval=None, p50=0.01, status="ok", **more):
    """A result of a kernel; with an interval of its speedup, unless it is the baseline's."""
    found = {"kernel": kernel, "status": status, "sha256": f"{kernel}-hash", "correctness": {"correct": True}}
    if status == "ok":
        found |= {"n": 400, "p50_ms": p50, "p50_low_ms": 0.99 * p50, "p50_high_ms": 1.01 * p50, "p90_ms": 1.1 * p50}
        found |= {"rounds": 20, "tflops": 50.0, "gb_per_s": 190.0, "limit_share": 0.051}
    if interval:
        low, high = interval
        found |= {"speedup": math.sqrt(low * high), "speedup_low": low, "speedup_high": high}
    return ArmResult(**found | more)


def checked(kernel, **more):
    """A result that was not timed."""
    return ArmResult(kernel=kernel, sha256=f"{kernel}-hash", **{"correctness": {"correct": True}} | more)


def event(*results, seq_len=512, operation="attention", **more):
    """What was measured of one workload."""
    sizes = {"batch": 1, "heads": 8, "seq_len": seq_len, "head_dim": 64}
    if operation == "layer_norm":
        sizes = {"rows": seq_len, "cols": 64}
    shared = {"mode": "graph", "margin": 0.01, "baseline": "sdpa"}
    return Measured(workload=Workload(operation=operation, sizes=sizes), results=list(results), **shared | more)


def said(*events):
    found = summary(rows(events), "attention")
    return found.strong, " ".join([*found.rest, *found.notes]), found.tone


# --- rows -------------------------------------------------------------------------------------------------------------


def test_causal_rates_count_unmasked_work_and_have_their_dense_equivalent_beside():
    """The L4 report counts all S^2 scores of causal attention: 67.65 TFLOP/s, where half are computed."""
    sizes = {"batch": 8, "heads": 16, "seq_len": 512, "head_dim": 64}
    events = [
        event(result("sdpa", tflops=33.88)).model_copy(
            update={"workload": Workload(operation="attention", sizes=sizes | {"causal": causal})}
        )
        for causal in (True, False)
    ]
    causal, dense = rows(events)
    assert (causal.tflops, causal.dense_tflops) == (33.88, pytest.approx(67.63, abs=0.01))
    assert dense.dense_tflops is None
    lines = as_markdown([causal, dense]).splitlines()
    assert "| TFLOP/s unmasked | dense-equivalent |" in lines[0]
    assert "| 33.9 | 67.6 |" in lines[2]
    assert "| 33.9 |  |" in lines[3]
    assert "| TFLOP/s |" in as_markdown([dense]).splitlines()[0], "where nothing is masked, nothing is said"
    assert "dense_tflops" in COLUMNS


def test_memory_stands_beside_the_inputs_and_outputs_that_it_leaves_out():
    row = rows([event(result("sdpa", peak_memory_bytes=7))])[0]
    tensor = 8 * 512 * 64 * 2
    assert (row.input_bytes, row.output_bytes, row.peak_memory_bytes) == (3 * tensor, tensor, 7)


def test_a_row_for_every_workload_and_kernel_in_the_order_measured():
    table = rows([event(result("sdpa"), result("eager", SLOW)), event(result("sdpa"), seq_len=64)])
    assert [(row.workload.split()[4], row.kernel) for row in table] == [
        ("S=512", "sdpa"), ("S=512", "eager"), ("S=64", "sdpa"),
    ]  # fmt: skip
    assert all(set(COLUMNS) <= set(record) for record in as_records(table))
    row = table[1]
    assert (row.verdict, row.speedup_low, row.speedup_high, row.n) == ("SLOWER", 0.49, 0.51, 400)
    assert (row.p50_ms, row.baseline, row.mode, row.correct) == (0.01, "sdpa", "graph", True)


def test_a_row_says_how_long_its_device_rested_and_how_many_rounds_tell_as_much():
    fast = result("eager", FAST, effective_sample_size=7.5)
    row = rows([event(result("sdpa"), fast, protocol={"paired": True, "rest": 0.5})])[1]
    assert (row.rest, row.effective_sample_size) == (0.5, 7.5)


def test_p90_is_of_single_calls_where_the_samples_are_graph_replays():
    (row,) = rows([event(result("sdpa", p50=0.01))])
    assert (row.p90_ms, row.p90_n) == (pytest.approx(0.011), 400)
    cold = {"n": 100, "p50_ms": 0.012, "p90_ms": 0.019, "p95_ms": 0.02, "p99_ms": 0.03}
    (row,) = rows([event(result("sdpa", p50=0.01, cold=cold))])
    assert (row.p50_ms, row.p90_ms, row.p90_n) == (0.01, 0.019, 100)


def test_what_is_not_known_is_none():
    bare = ArmResult(kernel="eager", status="crashed", why="killed by SIGSEGV")
    row = rows([event(bare)])[0]
    assert (row.p50_ms, row.speedup, row.tflops, row.correct, row.n) == (None,) * 5
    assert (row.verdict, row.why, row.ran) == ("crashed", "killed by SIGSEGV", "")


@pytest.mark.parametrize(
    "found, expected",
    [
        (result("sdpa"), "baseline"),
        (result("eager", FAST), "FASTER"),
        (result("eager", SLOW), "SLOWER"),
        (result("eager", SAME), "SAME"),
        (result("eager", OPEN), "UNDECIDED"),
        (result("eager"), ""),
        (result("eager", status="timed out"), "timed out"),
        (result("sdpa", status="crashed"), "crashed"),
        (result("eager", FAST, rounds=4), "needs more rounds"),
        (result("eager", FAST, rounds=500, paired=False), "unpaired"),
        (checked("eager"), "correct"),
        (checked("sdpa"), "correct"),
    ],
)
def test_one_word_for_a_result(found, expected):
    assert verdict(found, event(found)) == expected


def test_a_wide_margin_takes_a_word_back():
    assert rows([event(result("eager", (1.02, 1.03)))])[0].verdict == "FASTER"
    assert rows([event(result("eager", (1.02, 1.03)), margin=0.05)])[0].verdict == "UNDECIDED"
    assert rows([event(result("eager", SAME), margin=0.05)])[0].verdict == "SAME"


HOST = {"foreign": 0.31, "steal": 0.0, "cores": 8}


@pytest.mark.parametrize(
    "more, why",
    [
        ({}, "the baseline was noisy: A/A from 0.87 to 2.62"),
        ({"mode": "cpu", "telemetry": {"host": HOST}}, "this machine was busy: A/A from 0.87 to 2.62"),
        (
            {"mode": "batch", "isolated": True, "isolation": {"on_cpu": True}, "telemetry": {"host": HOST}},
            "this machine was busy: A/A from 0.87 to 2.62",
        ),
        (
            {"mode": "batch", "isolated": True, "isolation": {}, "telemetry": {"host": HOST}},
            "the baseline was noisy: A/A from 0.87 to 2.62",
        ),
        (
            {"mode": "cpu", "telemetry": {"host": HOST | {"foreign": 0.04}}},
            "the baseline was noisy: A/A from 0.87 to 2.62",
        ),
    ],
)
def test_noise_never_wins(more, why):
    """A busy host once made eager 7.7 times as fast as sdpa, with a grade."""
    noisy = event(result("sdpa"), result("mine", (3.0, 9.0)), margin=3.24, aa=(1.9, 0.874, 2.62), **more)
    quiet = event(result("sdpa"), result("mine", (0.97, 0.98)), seq_len=64)
    row = rows([noisy])[1]
    assert (row.verdict, row.why) == ("UNDECIDED", why)
    strong, rest, tone = said(noisy)
    assert (strong, tone) == (
        "mine was compared with sdpa, without a verdict",
        "same",
    )
    assert f"Undecided: {why}." in rest
    assert "x" not in rest.split("Nothing")[0], "no mean, no ratio"
    strong, rest, tone = said(noisy, quiet)
    contended = why.startswith("this machine was busy:")
    assert (strong, tone) == ("mine is slower than sdpa on 1 of 2 workloads", "same" if contended else "slower")
    assert rest.startswith("0.975x (0.970 to 0.980); 1 left out: too noisy.")
    assert f"Undecided on 1 of 2 workloads: {why}." in rest


def test_a_kernel_that_left_after_five_rounds_keeps_its_word_by_an_interval_twice_as_wide():
    """Until harness 5 kernels far behind left after five rounds."""
    left = {"rounds": 5, "left_after_round": 5}
    far, near = event(result("eager", (0.40, 0.42), **left)), event(result("eager", (0.80, 0.985), **left))
    assert [rows([one])[0].verdict for one in (far, near)] == ["SLOWER", "UNDECIDED"]
    assert rows([event(result("eager", (0.40, 0.42), rounds=5))])[0].verdict == "needs more rounds"
    assert rows([far])[0].speedup_low == 0.40, "what is shown is what was measured"


@pytest.mark.parametrize("status", ["incorrect", "suspect", "impossible", "crashed"])
def test_no_ratio_stands_over_a_baseline_that_is_not_ok(status):
    failed = result("sdpa", status=status)
    table = rows([event(failed, result("mine", FAST))])
    assert (table[1].verdict, table[1].speedup, table[1].effective_sample_size) == ("", None, None)
    assert "faster" not in " ".join(said(event(failed, result("mine", FAST)))[:2])


def test_the_kernel_that_says_most_is_the_innermost_of_the_longest():
    assert main_kernel([]) == ""
    assert main_kernel([["copy", 10], ["flash_fwd", 900], ["combine", 90]]) == "flash_fwd"
    outer_and_inner = [["aten::sdpa", 1000], ["aten::_flash_attention_for_cpu", 990], ["aten::empty", 5]]
    assert main_kernel(outer_and_inner) == "aten::_flash_attention_for_cpu"


# --- figures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value, text",
    [
        (None, ""), (0, "0"), (9.9, "9.90"), (9.999, "10.0"), (50, "50.0"), (321, "321"), (999.9, "1000"),
        (14_800, "14800"), (14_849, "14800"), (0.001234, "0.00123"), (-2.5, "-2.50"), (1e-7, "1.00e-07"),
        (2e9, "2.00e+09"), (0.1, "0.100"), (99.95, "100"),
    ],
)  # fmt: skip
def test_three_significant_digits(value, text):
    assert three_digits(value) == text


@pytest.mark.parametrize(
    "interval, text",
    [
        ((1.2, 1.195, 1.205), "±0.4%"),
        ((1.0, 0.8, 1.25), "±25%"),
        ((1.0, 0.97, 2.0), "0.970 to 2.00"),
        ((0.0, 0.0, 0.1), "0 to 0.100"),
    ],
)
def test_an_interval_is_written_as_its_larger_side_or_by_its_ends(interval, text):
    assert plus_minus(Ratio(*interval)) == text


def test_microseconds_are_milliseconds_times_a_thousand():
    assert (microseconds(0.0099), microseconds(14.8), microseconds(None)) == ("9.90", "14800", "")


# --- files ------------------------------------------------------------------------------------------------------------


def test_csv_has_every_column_once_and_reads_back():
    strange = result('a,b\n"c"', status="failed", why='said "no",\nthen nothing')
    text = as_csv(as_records(rows([event(result("sdpa"), strange)])), COLUMNS)
    read = list(csv.DictReader(io.StringIO(text)))
    assert tuple(read[0]) == COLUMNS
    assert (float(read[0]["p50_ms"]), read[0]["speedup"]) == (0.01, "")
    assert (read[1]["kernel"], read[1]["why"]) == ('a,b\n"c"', 'said "no",\nthen nothing')


def test_csv_of_nothing_is_its_header():
    assert as_csv([], COLUMNS) == ",".join(COLUMNS) + "\n"


def test_markdown_is_a_table_whose_lines_are_equally_long():
    text = as_markdown(rows([event(result("sdpa"), result("a|b", FAST), result("eager", status="crashed"))]))
    lines = text.splitlines()
    assert len(lines) == 5
    assert {line.replace("\\|", "").count("|") for line in lines} == {10}
    assert lines[3].startswith(
        "| attention fp16 B=1 H=8 S=512 D=64 | a\\|b | FASTER | 10.0 (9.90 to 10.1) | 11.0 | 50.0 | 5% |"
    )
    assert "1.200x (1.190 to 1.210)" in lines[3]
    assert "| crashed |  |  |  |  |  |  |" in lines[4]


AA = {"aa": (0.9992, 0.997, 1.001)}


def test_a_table_says_what_its_baseline_did_against_itself():
    one, other = event(result("sdpa"), **AA), event(result("sdpa"), seq_len=64, aa=(1.0021, 1.0, 1.004), margin=0.023)
    assert against_itself(rows([one])) == "A/A: sdpa against itself 0.999 (0.997 to 1.001); margin 1.0%."
    both = "A/A: sdpa against itself 0.999 to 1.002 over 2 workloads, intervals within 0.997 to 1.004; margin 1.0% to 2.3%."
    assert against_itself(rows([one, other])) == both
    assert as_text(rows([one, other])).endswith("\n" + both)
    assert as_markdown(rows([one, other])).endswith(f"|\n\n{both}\n")
    assert against_itself(rows([event(result("sdpa"))])) == against_itself([]) == ""
    apart = event(result("sdpa"), mode="cold", aa=(1.2, 1.1, 1.3), margin=0.6)
    groups = "A/A: sdpa against itself 0.999 to 1.200, intervals within 0.997 to 1.300; margin 1.0% to 60.0%."
    assert against_itself(rows([one.model_copy(update={"mode": "cold"}), apart])) == groups, (
        "two groups of one workload"
    )
    (row,) = rows([one])
    assert (row.aa, row.aa_low, row.aa_high) == AA["aa"]


def test_columns_that_nobody_fills_are_left_out():
    alone = checked("sdpa")
    assert as_text(rows([event(alone, mode="verify")])).splitlines()[0].split() == ["workload", "kernel", "verdict"]
    lines = as_markdown(rows([event(alone)])).splitlines()
    assert lines[:2] == ["| workload | kernel | verdict |", "| --- | --- | --- |"]
    assert "speedup" not in as_markdown(rows([event(result("sdpa"))])), "there is no other kernel"


def test_a_heading_says_what_was_measured_on_what():
    environment = {
        "device": "NVIDIA H200",
        "driver": "580.1",
        "torch": "2.11.0",
        "harness": "5",
        "triton": "",
        "os": "Linux",
    }
    plain = "Six shapes, NVIDIA H200, driver 580.1, torch 2.11.0, harness 5"
    assert heading("Six shapes", environment) == plain
    assert heading("Six shapes", environment, "http://h/runs/3/") == f"[Six shapes](http://h/runs/3/){plain[10:]}"
    assert heading("a [b](c) <i>", {}) == "a \\[b\\](c) \\<i\\>"
    assert as_markdown(rows([event(result("sdpa"))]), f"{plain}\r\n| x |").startswith(f"{plain} | x |\n\n| workload |")


def test_text_is_aligned_and_says_why_below():
    crashed = result("eager", status="crashed", why="compile: killed by SIGSEGV\nand more")
    lines = as_text(rows([event(result("sdpa"), crashed)])).splitlines()
    assert len(lines) == 4
    assert lines[0].index("verdict") == lines[1].index("baseline") == lines[2].index("crashed")
    assert lines[3] == "    compile: killed by SIGSEGV"
    assert as_text([]).startswith("workload  kernel  verdict")


def test_the_figure_is_the_one_of_the_operation():
    attention, norm = event(result("sdpa")), event(result("eager"), operation="layer_norm", baseline="eager")
    assert "| TFLOP/s |" in as_markdown(rows([attention]))
    assert "| 50.0 |" in as_markdown(rows([attention]))
    assert "| GB/s |" in as_markdown(rows([norm]))
    assert "| 190 |" in as_markdown(rows([norm]))


def test_unsupported_is_no_failure_and_everything_else_that_is_not_ok_is():
    statuses = (
        "ok",
        "unsupported",
        "incorrect",
        "out of memory",
        "timed out",
        "crashed",
        "impossible",
        "suspect",
        "failed",
    )
    table = rows([event(*(result(status, status=status) for status in statuses))])
    assert [row.status for row in failures(table)] == list(statuses[2:])


# --- the answer -------------------------------------------------------------------------------------------------------


def test_all_faster():
    both = [event(result("sdpa"), result("mine", FAST), seq_len=s) for s in (64, 128)]
    strong, rest, tone = said(*both)
    assert (strong, tone) == ("mine is faster than sdpa on 2 of 2 workloads", "faster")
    assert rest == "Geometric mean 1.200x over 2 workloads (1.193 to 1.207), least 1.200x. " + ALONE


def test_mixed():
    table = [
        event(result("sdpa"), result("mine", FAST), result("eager", SLOW), seq_len=64),
        event(result("sdpa"), result("mine", SLOW), result("eager", FAST), seq_len=128),
        event(result("sdpa"), result("mine", FAST), result("eager", OPEN), seq_len=256),
        event(result("sdpa"), result("mine", SAME), result("eager", status="timed out"), seq_len=512),
    ]
    strong, rest, tone = said(*table)
    assert (strong, tone) == ("mine is faster than sdpa on 2, slower on 1 of 4 workloads", "same")
    assert rest.startswith("Same on 1, geometric mean 0.921x over 4 workloads (0.916 to 0.926), least 0.500x.")
    assert "is the best" not in rest
    assert "eager is also faster than sdpa on some workloads." in rest
    assert "1 result timed out (eager on fp16 B=1 H=8 S=512 D=64)." in rest


def test_what_a_mean_leaves_out_is_said():
    table = [event(result("sdpa"), result("mine", SLOW), seq_len=s) for s in (64, 128)]
    table.append(event(result("sdpa"), result("mine", status="unsupported"), seq_len=256))
    strong, rest, tone = said(*table)
    assert (strong, tone) == ("mine is slower than sdpa on 2 of 3 workloads", "slower")
    assert rest.startswith(
        "Geometric mean 0.500x over 2 workloads (0.493 to 0.507), least 0.500x; 1 left out: unsupported."
    )


def test_a_single_workload_has_its_interval_and_no_mean():
    strong, rest, tone = said(event(result("sdpa"), result("mine", FAST)))
    assert (strong, tone) == ("mine is faster than sdpa", "faster")
    assert rest == "1.20x (1.19 to 1.21). " + ALONE


@pytest.mark.parametrize("interval, words", [(SAME, "as fast as sdpa"), (OPEN, "not clearly different from sdpa")])
def test_neither_faster_nor_slower(interval, words):
    strong, _, tone = said(event(result("sdpa"), result("mine", interval)))
    assert (strong, tone) == (f"mine is {words}", "same")


def test_the_kernel_with_the_best_mean_is_spoken_of():
    short = event(result("sdpa"), result("one", FAST), result("two", (1.5, 1.6)), seq_len=64)
    long = event(result("sdpa"), result("one", FAST), result("two", SLOW), seq_len=128)
    assert said(short, long)[0] == "one is faster than sdpa on 2 of 2 workloads"
    assert said(short)[0] == "two is faster than sdpa"
    assert "two is the best of 2 kernels: 1.55x, at least 1.49x (corrected for 2 comparisons)." in said(short)[1]


def test_kernels_whose_intervals_reach_each_other_are_tied():
    """One of three with the same interval was "the best of 4 kernels"."""
    arms = [result("sdpa"), result("one", (2.26, 2.30)), result("two", (2.25, 2.30)), result("three", (2.24, 2.29))]
    rest = said(event(*arms, result("slow", SLOW)))[1]
    assert "one is tied with two and three for the best of 4 kernels: 2.28x, at least 2.2" in rest
    assert "is the best" not in rest


def test_a_kernel_on_one_workload_in_two_modes_is_told_apart():
    table = rows([event(result("sdpa"), result("one", FAST), mode=mode) for mode in ("cold", "graph")])
    label = table[0].workload
    assert [line[0] for line in usual_lines(table)[1:]] == [f"{label} cold"] * 2 + [f"{label} graph"] * 2
    assert [line[0] for line in usual_lines(table[:2])[1:]] == [label] * 2
    assert f"| {label} graph | one |" in as_markdown(table)


def test_a_little_on_many_does_not_outrank_much_on_few():
    """1.02x on six and 0.3x on six was faster on 6 of 12, and above one that is 1.5x on five and never slower."""
    often = [result("often", (1.018, 1.022)) for _ in range(6)] + [result("often", (0.29, 0.31)) for _ in range(6)]
    steady = [result("steady", (1.48, 1.52)) for _ in range(5)] + [result("steady", SAME) for _ in range(7)]
    table = [event(result("sdpa"), a, b, seq_len=64 + n) for n, (a, b) in enumerate(zip(often, steady, strict=True))]
    strong, rest, _ = said(*table)
    assert strong == "steady is faster than sdpa on 5 of 12 workloads"
    assert "steady is the best of 2 kernels on the 12 workloads that all of them passed: " in rest
    assert [one.word for one in ranking(compared(rows(table))).standings] == ["faster", "mixed"]


def test_ranks_are_over_what_all_passed_and_who_failed_is_named():
    """A kernel that is measured only where it is good must not win by that."""
    table = [event(result("sdpa"), result("all", (1.28, 1.32)), result("some", (1.28, 1.32)), seq_len=64)]
    table += [event(result("sdpa"), result("all", (1.08, 1.12)), result("some", status="crashed"), seq_len=128)]
    ranked = ranking(compared(rows(table)))
    assert ranked.common == 1
    assert ranked.means["all"].ratio == pytest.approx(ranked.means["some"].ratio, rel=1e-6)
    assert ranked.absent == {"some": {"crashed": 1}}
    rest = said(*table)[1]
    assert "1 result crashed (some on fp16 B=1 H=8 S=128 D=64)." in rest
    assert "all is tied with some for the best of 2 kernels on the workload that all of them passed: " in rest


@pytest.mark.parametrize("failed, where", [(3, "on 3 of 4 workloads"), (4, "on all 4 workloads")])
def test_of_many_workloads_where_a_kernel_failed_their_number_is_said(failed, where):
    table = [
        event(result("sdpa"), result("some", status="crashed") if n < failed else result("some", FAST), seq_len=64 + n)
        for n in range(4)
    ]
    assert f"{failed} results crashed (some {where})." in said(*table)[1]


def test_a_kernel_that_failed_everywhere_has_no_rank_and_is_no_comparison():
    rest = said(event(result("sdpa"), result("one", FAST), result("wrong", status="incorrect")))[1]
    assert "the best of" not in rest and "comparisons" not in rest
    assert "wrong has no rank: incorrect." in rest
    two = said(event(result("sdpa"), result("one", FAST), result("two", SLOW), result("wrong", status="incorrect")))[1]
    assert "one is the best of 2 kernels: " in two and "(corrected for 2 comparisons)" in two


def test_several_reasons_for_no_decision_are_one_sentence():
    noisy = [
        event(result("sdpa"), result("mine", FAST), margin=margin, aa=(1.0, 1 - margin, 1 + margin), seq_len=s)
        for s, margin in ((64, 0.1), (128, 0.13), (256, 0.4))
    ]
    quiet = event(result("sdpa"), result("mine", FAST), seq_len=512)
    said_of_all = "Undecided on 3 of 4 workloads: the baseline was noisy, with margins from 10% to 40%."
    assert said_of_all in said(*noisy, quiet)[1]
    alike = [
        event(result("sdpa"), result("mine", FAST), margin=0.1, aa=(1.0, low, 1.1), seq_len=s)
        for s, low in ((64, 0.9), (128, 0.95))
    ]
    assert "Undecided: " not in said(*alike)[1] and "the baseline was noisy, with margins of 10%." in said(*alike)[1]


@pytest.mark.parametrize(
    "margins, words", [((126.52, 199.42), "with margins above 100%."), ((0.4, 126.52), "from 40% to above 100%.")]
)
def test_a_margin_above_100_percent_is_said_as_such(margins, words):
    noisy = [
        event(result("sdpa"), result("mine", FAST), margin=margin, aa=(1.0, 1 / (1 + margin), 1 + margin), seq_len=s)
        for s, margin in zip((64, 128), margins, strict=True)
    ]
    assert words in said(*noisy)[1]


def test_a_contended_run_has_no_best_kernel():
    table = rows([event(result("sdpa"), result("one", FAST), result("two", SLOW))])
    assert "The run is contended: other processes used the device." in str(summary(table, "attention", contended=True))
    assert "is the best" in str(summary(table, "attention"))
    assert "best" not in str(summary(table, "attention", contended=True))
    busy = event(result("sdpa"), result("one", FAST), result("two", SLOW), mode="cpu", telemetry={"host": HOST})
    assert "Other processes used up to 31% of this machine's CPU time: the run is contended." in said(busy)[1]
    assert "best" not in said(busy)[1]


def test_what_was_checked_is_counted():
    how = {"correct": True, "seeds": 4, "timed_calls_checked": 6}
    both = [result("sdpa", correctness=how, n=40), result("mine", FAST, correctness=how, n=70)]
    text = said(event(*both, mode="cold"))[1]
    assert "12 outputs from the rounds were checked: all are correct." in text, "some are of the other half of A/A"
    assert "every" not in text.lower()


def test_others_are_named_only_if_they_win_somewhere():
    base = result("sdpa")
    assert (
        "No other kernel has the verdict FASTER than sdpa."
        in said(event(base, result("one", FAST), result("two", SLOW)))[1]
    )
    three = event(base, result("one", (1.5, 1.6)), result("two", FAST), result("three", FAST))
    assert "two and three are also faster than sdpa." in said(three)[1]


def test_who_is_faster_everywhere_and_who_somewhere():
    table = [
        event(result("sdpa"), result("one", (1.5, 1.6)), result("two", FAST), result("three", FAST), seq_len=64),
        event(result("sdpa"), result("one", (1.5, 1.6)), result("two", FAST), result("three", SLOW), seq_len=128),
    ]
    text = said(*table)[1]
    assert "two is also faster than sdpa on all 2 workloads. three is also faster than sdpa on some workloads." in text
    table.append(event(result("sdpa"), result("one", (1.5, 1.6)), seq_len=256))
    assert "two and three are also faster than sdpa on some workloads." in said(*table)[1], "two was measured on 2 of 3"


def test_who_is_faster_than_the_best_on_a_workload_is_named():
    table = [
        event(
            result("sdpa"),
            result("one", (1.9, 2.0)),
            result("two", (1.1, 1.2)),
            result("three", (1.85, 1.95)),
            seq_len=64,
        ),
        event(
            result("sdpa"),
            result("one", (1.1, 1.2)),
            result("two", (1.4, 1.5)),
            result("three", (1.1, 1.2)),
            seq_len=128,
        ),
    ]
    text = said(*table)[1]
    assert "two is faster than one on 1 of 2 workloads." in text
    assert "three is faster than one" not in text, "their intervals meet"
    assert "faster than one" not in str(summary(rows(table), "attention", contended=True))


def test_all_failed():
    table = event(result("sdpa", status="crashed"), result("mine", status="incorrect"))
    strong, rest, tone = said(table)
    assert (strong, tone) == ("No kernel could be measured", "same")
    assert rest == "1 result is incorrect (mine). 1 result crashed (sdpa)."


def test_of_many_failures_the_answer_is_one_sentence_and_names_a_few_kernels():
    """It was five lines long: every name, once for each status."""
    names = ["a", "b", "c", "d", "e"]
    failed = [result(name, status="failed") for name in names]
    one = summary(rows([event(result("sdpa"), result("mine", FAST), *failed)]), "attention")
    assert one.lede[-1] == "5 kernels failed: a, b, c and 2 more." and not one.faults
    both = [
        event(result("sdpa"), result("mine", FAST), result("w", status="incorrect"), *failed, seq_len=n)
        for n in (64, 96, 128)
    ]
    said = summary(rows(both), "attention")
    assert (
        said.strong.startswith("mine is faster")
        and said.lede[-1] == "6 kernels have results that are not ok: w, a, b and 3 more."
    )
    assert said.faults == [
        "3 results are incorrect (w on all 3 workloads).",
        "5 kernels failed: a, b, c and 2 more, on all 3 workloads.",
    ]
    assert set(said.faults) < set(said.rest) and not set(said.faults) & set(said.lede)


def test_an_incorrect_output_is_never_called_correct():
    wrong = result("mine", status="incorrect", correctness={"correct": False})
    strong, rest, _ = said(event(result("sdpa"), wrong))
    assert strong == "mine is incorrect"
    assert rest == ALONE, "that mine is incorrect is said once"
    timed_and_wrong = result("mine", FAST, correctness={"correct": False})
    assert ALONE not in said(event(result("sdpa"), timed_and_wrong))[1]


def test_fixed_gives_ratios_and_no_verdict():
    how = {"rounds": 500, "paired": False}
    table = [
        event(result("sdpa"), result("mine", FAST, **how), result("eager", FAST, **how), seq_len=s) for s in (64, 128)
    ]
    strong, rest, tone = said(*table)
    assert (strong, tone) == ("No kernel has a verdict", "same"), "of two, neither is named"
    assert rest.startswith("The kernels ran one after the other: drift could explain ")
    assert "faster" not in strong + rest


def test_too_few_rounds_give_no_verdict():
    strong, rest, _ = said(event(result("sdpa"), result("mine", FAST, rounds=7)))
    assert strong == "mine was compared with sdpa, without a verdict"
    assert "More rounds are needed for a verdict." in rest
    early, late = result("mine", FAST, rounds=7), result("other", SLOW)
    assert said(event(result("sdpa"), early, result("other", SLOW, rounds=7)))[0] == "No kernel has a verdict"
    assert said(event(result("sdpa"), early, late))[0] != "No kernel has a verdict", "one has"


def test_a_check_without_times_counts_what_is_correct():
    right, wrong = checked("sdpa"), result("mine", status="incorrect", correctness={"correct": False})
    skipped = result("other", status="unsupported", correctness=None)
    assert said(event(right, wrong, skipped, mode="verify"))[0] == "1 of 2 outputs checked are correct"
    assert said(event(wrong, mode="verify"))[0] == "0 of 1 outputs checked are correct"


def test_a_check_of_the_baseline_alone_says_so():
    """The only kernel that was asked for is unsupported: "2 of 2 outputs checked are correct" were not its."""
    skipped = result("other", status="unsupported", correctness=None, why="has no argument causal")
    strong = said(event(checked("sdpa"), skipped, mode="verify"))[0]
    assert strong == (
        "1 of 1 outputs checked are correct, all of them of the baseline sdpa: other did not run: has no argument causal"
    )


def test_nothing_measured_yet_is_no_answer():
    assert said() == ("", "", "same")


def test_the_library_behind_the_baseline_is_named_by_the_kernel_that_ran():
    ran = {"ran": [["cudnn_generated_fort_native_sdpa_sm90", 9000]]}
    assert said(event(result("sdpa", **ran), result("mine", FAST)))[1].endswith("sdpa ran cuDNN.")
    unknown = event(result("sdpa", ran=[["unheard_of", 1]]), result("mine", FAST))
    assert "sdpa ran" not in said(unknown)[1]
    assert summary(rows([event(result("sdpa", **ran))]), "gone").notes == [ALONE]


# --- rested and under load --------------------------------------------------------------------------------------------


def test_times_of_a_rested_device_are_said_to_be():
    loaded = {"crosscheck": {"wall_ns": 23.8e6, "host_bound": False}}
    table = rows(
        [event(result("sdpa", p50=20.0, **loaded), result("slow", SLOW, p50=40.0, crosscheck=None), mode="cold")]
    )
    assert [row.under_load for row in table] == [pytest.approx(1.19), None]
    told = " ".join(summary(table, "attention").notes)
    assert "Back to back, sdpa runs up to 19% slower, probably because the clock falls" in told
    many = rows([event(*(result(name, p50=20.0, **loaded) for name in ("sdpa", "one", "two")), mode="cold")])
    assert "Back to back, 3 kernels run up to 19% slower" in " ".join(summary(many, "attention").notes)


def test_nothing_is_said_of_rests_that_nobody_had():
    loaded = event(result("sdpa", p50=20.0, crosscheck={"wall_ns": 23.8e6, "host_bound": False}), mode="cold")
    for protocol, factor in (({"rest": 1.0}, pytest.approx(1.19)), ({"rest": 0.0}, None)):
        (row,) = rows([loaded.model_copy(update={"protocol": ProtocolFacts(**protocol)})])
        assert row.under_load == factor


@pytest.mark.parametrize(
    "mode, p50, wall_ns", [("cold", 20.0, 20.8e6), ("sustained", 20.0, 24e6), ("graph", 0.01, 14e3)]
)
def test_nothing_is_said_of_what_holds_or_is_not_known(mode, p50, wall_ns):
    (row,) = rows([event(result("sdpa", p50=p50, crosscheck={"wall_ns": wall_ns}), mode=mode)])
    assert row.under_load is None
    assert "Back to back" not in " ".join(summary([row], "attention").notes)


def test_faster_here_and_slower_there_is_mixed():
    strong, rest, tone = said(
        *[event(result("sdpa"), result("mine", how), seq_len=n) for n, how in ((64, FAST), (65, SLOW), (66, SLOW))]
    )
    assert (strong, tone) == ("mine is slower than sdpa on 2, faster on 1 of 3 workloads", "same")
    assert rest.startswith("Geometric mean 0.669x over 3 workloads (0.")


def test_no_other_kernel_is_said_of_one_that_wins_only():
    slow = event(result("sdpa"), result("one", SLOW), result("two", SLOW))
    assert "No kernel has the verdict FASTER than sdpa." in said(slow)[1]
    assert "other" not in said(slow)[1]


def test_a_kernel_without_figures_says_why_in_a_clause():
    noisy = Compared("a", "eager", "sdpa", Verdict.UNDECIDED, Ratio(0.9, 0.8, 1.0), 0.2, 20)
    assert standing_of([noisy, noisy._replace(place="b")]).phrase == "no verdict against sdpa: too noisy on 2 of 2"
    failed = Compared("a", "eager", "sdpa", Status.FAILED, None, 0.0, 0)
    assert standing_of([failed]).phrase == "not compared with sdpa"


def test_the_reason_of_noise_is_what_shows_it():
    assert why_noisy((1.0, 0.87, 1.2), 0.24, True) == "this machine was busy: A/A from 0.87 to 1.20"
    assert why_noisy((1.0, 0.98, 1.03), 0.24, False) == "the margin is 24%, above 5%"
    assert why_noisy((1.0, 0.87, 1.2), 0.04, True) == ""
    assert why_noisy((1.0, 0.0034, 210.87), 126.5, True) == "this machine was busy: A/A from 0.003 to 210.87"
    assert why_noisy(None, 126.52, False) == "the margin is above 100%"


def test_a_kernel_that_cannot_run_here_is_the_headline():
    refused = result("mine", status="unsupported").model_copy(update={"why": "it needs a CUDA device"})
    assert said(event(result("sdpa"), refused))[0] == "mine did not run: it needs a CUDA device"
    assert said(event(result("sdpa"), refused, result("other", status="failed")))[0] == "Measured; no comparison"


def test_wrong_kernels_are_the_headline_where_nothing_is_compared():
    wrong = [result(name, status=word) for name, word in (("a", "incorrect"), ("b", "suspect"))]
    assert said(event(result("sdpa"), *wrong))[0] == "2 kernels are incorrect or suspect"
    assert said(event(result("sdpa"), wrong[1]))[0] == "b is suspect"

"""Measures: what each figure is, over what, in which unit, and why it is missing."""

import dataclasses
import json

import pytest

from kernels.contract.arm_result import ArmResult
from kernels.contract.events import Measured
from kernels.report import formats, measures, tables
from kernels.report.measures import BY_KEY, MEASURES, UnknownMeasure, chosen, usual
from kernels.workload import Workload

TIMES = {
    "n": 400, "rounds": 20, "p50_ms": 0.01, "p50_low_ms": 0.008, "p50_high_ms": 0.0125, "mean_ms": 0.011, "std_ms": 0.001,
    "min_ms": 0.007, "max_ms": 0.03, "p90_ms": 0.012, "p95_ms": 0.013, "p99_ms": 0.02, "tflops": 50.0, "gb_per_s": 190.0,
    "limit_share": 0.25, "compile_s": 1.5, "registers": 64, "peak_memory_bytes": 2_000_000,
}  # fmt: skip
SLOW = {"speedup": 0.145, "speedup_low": 0.14, "speedup_high": 0.16}
SIZES = {"batch": 4, "heads": 8, "seq_len": 512, "head_dim": 64}


def row_of(operation="attention", sizes=SIZES, mode="cold", protocol=None, kernel="mine", **more):
    arm = ArmResult(kernel=kernel, backend="triton", **TIMES | more)
    workload = Workload(operation=operation, sizes=sizes)
    measured = Measured(
        workload=workload, mode=mode, margin=0.01, baseline="sdpa", protocol=protocol or {}, results=[arm]
    )
    return tables.rows([measured])[0]


def value(key, row):
    return BY_KEY[key].of(row)


def test_every_measure_has_a_unit_a_title_and_a_sentence():
    assert len(BY_KEY) == len(MEASURES)
    for one in MEASURES:
        assert one.unit and one.title and one.about.endswith("."), one.key


@pytest.mark.parametrize(
    ("key", "figure"),
    [
        ("slowdown", 1 / 0.145),
        ("gflops", 50_000.0),
        ("dense_tflops", 50.0 * 4 * 512**2 / (4 * 512 * 513 / 2)),
        ("calls_per_s", 100_000.0),
        ("queries", 4 * 8 * 512),
        ("queries_per_s", 4 * 8 * 512 * 100_000.0),
        ("per_batch_head_ms", 0.01 / 32),
        ("per_head_ms", 0.01 / 8),
        ("input_bytes", 3 * 4 * 8 * 512 * 64 * 2),
        ("joules", 0.5),
        ("gpu_busy", 0.8),
    ],
)
def test_figures_that_follow_from_others(key, figure):
    row = row_of(sizes=SIZES | {"causal": True}, crosscheck={"joules": 0.5, "span_ns": 8.0, "wall_ns": 10.0}, **SLOW)
    assert value(key, row) == pytest.approx(figure)


def test_the_first_and_the_third_seed_count_the_same():
    """Total queries of B=32, H=8, S=128 are 32,768; 12.27 ms over 96 heads are 127.8 us."""
    assert value("queries", row_of(sizes={"batch": 32, "heads": 8, "seq_len": 128, "head_dim": 64})) == 32_768
    times = {"p50_ms": 12.27, "p50_low_ms": 12.2, "p50_high_ms": 12.3}
    row = row_of(sizes={"batch": 16, "heads": 96, "seq_len": 4096, "head_dim": 128}, **times)
    assert value("per_head_ms", row) * 1e3 == pytest.approx(127.8, abs=0.05)
    assert value("per_batch_head_ms", row) == pytest.approx(12.27 / 1536)


def test_intervals_follow_the_p50_and_the_speedup():
    row = row_of(**SLOW)
    assert BY_KEY["p50_ms"].ends(row) == pytest.approx((0.008, 0.0125))
    assert BY_KEY["tflops"].ends(row) == pytest.approx((50 * 0.01 / 0.0125, 50 * 0.01 / 0.008))
    assert BY_KEY["per_head_ms"].ends(row) == pytest.approx((0.001, 0.0125 / 8))
    assert BY_KEY["slowdown"].ends(row) == pytest.approx((1 / 0.16, 1 / 0.14))
    assert BY_KEY["mean_ms"].ends(row) is None
    assert BY_KEY["slowdown"].ends(row_of()) is None


def test_it_is_said_what_samples_a_figure_is_over():
    cold = {"n": 144, "p50_ms": 0.012, "p90_ms": 0.019, "p95_ms": 0.02, "p99_ms": 0.03}
    calls, replays = row_of(), row_of(mode="graph", protocol={"sets": 8}, cold=cold)
    assert (calls.over, calls.p90_over) == ("400 calls", "400 calls")
    assert (replays.over, replays.p90_over) == ("400 replays of 8 calls each", "144 single calls on cold inputs")
    assert (value("p95_ms", replays), value("p99_ms", replays)) == (0.02, 0.03)


def test_a_percentile_needs_its_samples():
    few = row_of(n=40)
    assert value("p95_ms", few) == 0.013
    assert value("p99_ms", few) is None
    assert (value("p90_ms", few), value("p90_ms", row_of(n=9))) == (0.012, None), "of 5 calls it is the slowest"
    assert BY_KEY["p99_ms"].why_empty(few) == "p99 needs 100 samples; there are 40"


def test_what_an_operation_does_not_say_is_empty_and_says_so():
    row = row_of("gemm", {"m": 64, "n": 64, "k": 64})
    for key, what in (("queries_per_s", "what a query is"), ("per_head_ms", "how many heads a call has")):
        assert value(key, row) is None
        assert BY_KEY[key].why_empty(row) == f"the operation gemm does not say {what}"


def test_what_was_not_kept_is_empty():
    row = row_of(mean_ms=None, registers=None)
    assert value("mean_ms", row) is None and value("registers", row) is None
    assert BY_KEY["mean_ms"].why_empty(row) == "not measured here, or not kept"
    assert BY_KEY["slowdown"].why_empty(row) == "nothing is compared here"


def test_columns_are_chosen_by_key_in_one_order():
    keys = [one.key for one in chosen(["p99_ms, mean_ms", "speedup"], "TFLOP/s")]
    assert keys == ["speedup", "mean_ms", "p99_ms"]
    assert chosen(["all"], "GB/s") == list(MEASURES)
    assert chosen(["", ","], "GB/s") == usual("GB/s")
    assert [one.key for one in usual("GB/s")] == [
        "speedup", "p50_ms", "p90_ms", "frobenius", "gb_per_s", "limit_share", "n", "rounds",
    ]  # fmt: skip
    with pytest.raises(UnknownMeasure, match=r"^There is no column 'p98'\. There are: speedup, slowdown, "):
        chosen(["mean_ms,p98"], "TFLOP/s")


def test_a_file_has_each_figure_with_its_interval():
    asked = chosen(["p50_ms,mean_ms,tflops"], "TFLOP/s")
    record = measures.record(row_of(), asked)
    assert tuple(measures.fields(asked)) == tuple(record)
    assert list(record)[len(measures.NAMED) :] == [
        "p50_ms", "p50_low_ms", "p50_high_ms", "mean_ms", "tflops", "tflops_low", "tflops_high",
    ]  # fmt: skip
    assert record["tflops_low"] == pytest.approx(40.0)
    assert tuple(measures.fields([])) == tables.COLUMNS
    (line,) = measures.as_jsonl([row_of()], asked)
    assert json.loads(line) == record and line.endswith("\n")


def test_the_terminal_has_units_and_intervals_and_no_empty_column():
    table = [row_of(**SLOW), row_of(kernel="other", joules=None)]
    lines = measures.lines(table, chosen(["slowdown,mean_ms,tflops,joules"], "TFLOP/s"))
    assert lines[0] == ["workload", "kernel", "verdict", "slowdown, x", "mean, us", "TFLOP/s"]
    assert lines[1][3:] == ["6.897 (6.250 to 7.143)", "11.0", "50.0 (40.0 to 62.5)"]
    assert lines[2][3:] == ["", "11.0", "50.0 (40.0 to 62.5)"]
    assert measures.lines(table, []) == tables.usual_lines(table)


def test_digits_tell_the_ends_of_an_interval_apart():
    close = row_of(p50_ms=0.010867, p50_low_ms=0.010861, p50_high_ms=0.010877)
    assert (BY_KEY["p50_ms"].text(close), BY_KEY["p50_ms"].interval_text(close)) == ("10.87", "10.86 to 10.88")
    assert BY_KEY["calls_per_s"].text(row_of()) == "100,000"


def test_every_figure_of_a_row_that_a_csv_leaves_out_is_a_measure():
    """A new field of a Row needs one entry in MEASURES."""
    numbers = {"mean_ms", "std_ms", "min_ms", "max_ms", "p95_ms", "p99_ms", "joules", "queries"}
    assert numbers <= set(BY_KEY) & set(tables.NOT_IN_CSV)
    assert numbers <= {field.name for field in dataclasses.fields(tables.Row)}


ENVIRONMENT = {"device": "NVIDIA H100 PCIe", "capability": "9.0"}


def formatted(name, *arms, operation="attention", sizes=SIZES):
    workload = Workload(operation=operation, sizes=sizes)
    measured = Measured(workload=workload, mode="cold", margin=0.01, baseline="sdpa", results=list(arms))
    return list(formats.records(name, [measured], ENVIRONMENT))


def test_rows_with_the_sizes_in_an_object():
    (row,) = formatted("nested", ArmResult(kernel="mine", backend="tilelang-cutedsl", **TIMES))
    assert row == {
        "kernel": "mha", "backend": "cutedsl", "implementation": "mine", "arch": "sm_90",
        "gpu_model": "NVIDIA H100 PCIe", "compute_capability": "9.0",
        "problem_size": {"batch": 4, "heads": 8, "kv_heads": 8, "seq_len": 512, "dim": 64, "is_causal": False},
        "dtype": "float16", "latency_ms": 0.01, "tflops": 50.0, "compilation_time": 1.5, "mode": "cold", "environment": "",
    }  # fmt: skip


def test_other_work_is_no_row():
    """Dense attention stood beside the sparse kernels as if it did their work."""
    dense = ArmResult(kernel="sdpa", backend="pytorch", other_work="attends to every key", **TIMES)
    for name in ("nested", "flat"):
        rows = formatted(name, dense, ArmResult(kernel="mine", backend="triton", **TIMES))
        assert [row["implementation"] for row in rows] == ["mine"]


def test_rows_of_one_level():
    (row,) = formatted("flat", ArmResult(kernel="mine", backend="triton", **TIMES))
    assert row["batch_size"] == 4 and row["sequence_length"] == 512
    assert (row["operation"], row["implementation"], row["time_ms"]) == ("attention", "mine", 0.011)
    inputs = 3 * 4 * 8 * 512 * 64 * 2 / 1e6
    assert row["memory_mb"] == pytest.approx(2.0 + inputs) and row["backend"] == "triton"
    assert (row["throughput_gbps"], row["gpu_efficiency"]) == (pytest.approx(190.0 * 0.01 / 0.011), None)
    assert row["inference_speed"] == pytest.approx(1000 / 0.011)
    seen = {"span_ns": 8e3, "wall_ns": 10e3}
    (row,) = formatted("flat", ArmResult(kernel="mine", backend="triton", crosscheck=seen, **TIMES))
    assert row["gpu_efficiency"] == pytest.approx(80.0)


@pytest.mark.parametrize(
    ("operation", "sizes"),
    [
        ("layer_norm", {"batch": 32, "seq_len": 512, "dim": 768}),
        ("layer_norm", {"rows": 16384, "cols": 768}),
        ("cross_entropy", {"rows": 16384, "vocab": 768}),
    ],
)
def test_rows_of_an_operation_on_rows_are_one_sequence(operation, sizes):
    (row,) = formatted("flat", ArmResult(kernel="mine", **TIMES), operation=operation, sizes=sizes)
    assert (row["batch_size"], row["sequence_length"], row["tensor_dimension"]) == (1, 16384, 768)
    assert not {"rows", "cols", "vocab"} & set(row)


@pytest.mark.parametrize("name", formats.FORMATS)
def test_rows_of_others_are_results_that_are_ok(name):
    wrong = ArmResult(kernel="wrong", status="incorrect", **TIMES)
    untimed = ArmResult(kernel="untimed", correctness={"correct": True})
    right = ArmResult(kernel="mine", **TIMES)
    assert [row["implementation"] for row in formatted(name, wrong, untimed, right)] == ["mine"]

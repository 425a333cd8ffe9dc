"""`--columns` and `--jsonl` of `run` and `check`: the table, the files, and what is refused."""

import csv
import json

import pytest

from kernels.cli.choice import columns
from kernels.cli.collector import DONE, Collector
from kernels.cli.main import main, parser
from kernels.cli.progress import Progress
from kernels.contract.arm_result import ArmResult
from kernels.contract.events import Measured
from kernels.report import measures, tables
from kernels.workload import Config, Workload

SIZES = {"batch": 1, "heads": 8, "seq_len": 512, "head_dim": 64}
TIMES = {
    "n": 400, "rounds": 20, "p50_ms": 0.01, "p50_low_ms": 0.009, "p50_high_ms": 0.011, "mean_ms": 0.012, "tflops": 50.0,
}  # fmt: skip


def collected(tmp_path, *options):
    """What `run` writes and prints of one workload."""
    arguments = parser().parse_args(["run", "smoke", *options])
    workload = Workload(operation="attention", sizes=SIZES)
    config = Config(name="one", operation="attention", kernels=["sdpa"], workloads=[workload])
    paths = {name: tmp_path / f"out.{name}" for name in ("json", "csv", "jsonl", "md")}
    collector = Collector(config, paths, Progress(), None, columns(arguments), arguments.format)
    results = [ArmResult(kernel="sdpa", **TIMES)]
    collector.emit(Measured(workload=workload, mode="cold", margin=0.01, baseline="sdpa", results=results))
    collector.finish(DONE, {})
    return collector, paths


def test_the_table_and_the_files_have_the_columns(tmp_path):
    collector, paths = collected(tmp_path, "--columns", "mean_ms,queries_per_s")
    printed = tables.as_text(collector.table, collector.lines).splitlines()
    assert "mean, us" in printed[0] and "p50" not in printed[0]
    (row,) = csv.DictReader(paths["csv"].open())
    (line,) = map(json.loads, paths["jsonl"].read_text().splitlines())
    figures = ["mean_ms", "queries_per_s", "queries_per_s_low", "queries_per_s_high"]
    assert list(row) == list(line) == [*measures.NAMED, *figures]
    assert (row["mean_ms"], line["queries_per_s"]) == ("0.012", pytest.approx(4096 / 0.01 * 1e3))
    assert "mean, us" in paths["md"].read_text()
    whole = json.loads(paths["json"].read_text())["table"]
    assert set(whole[0]) >= set(tables.COLUMNS), "the .json stays whole: --resume reads it"


def test_without_columns_the_files_are_the_usual_ones(tmp_path):
    collector, paths = collected(tmp_path)
    assert next(csv.reader(paths["csv"].open())) == list(tables.COLUMNS)
    (line,) = map(json.loads, paths["jsonl"].read_text().splitlines())
    assert line == json.loads(json.dumps(tables.as_records(collector.table)[0]))


def test_the_lines_have_the_form_that_is_asked_for(tmp_path):
    _, paths = collected(tmp_path, "--format", "nested")
    (line,) = map(json.loads, paths["jsonl"].read_text().splitlines())
    assert line["problem_size"]["seq_len"] == 512 and line["latency_ms"] == 0.01
    assert next(csv.reader(paths["csv"].open())) == list(tables.COLUMNS), "the others are as usual"


def test_a_form_without_a_file_of_lines_is_exit_2(capsys):
    assert main(["run", "smoke", "--device", "cpu", "--format", "flat"]) == 2
    assert capsys.readouterr().err == "kernels: --format flat needs --jsonl FILE\n"


def test_a_form_of_timed_results_is_refused_where_nothing_is_timed(capsys, tmp_path):
    asked = ["check", "smoke", "--device", "cpu", "--jsonl", str(tmp_path / "rows.jsonl"), "--format", "flat"]
    assert main(asked) == 2
    assert capsys.readouterr().err == "kernels: --format flat writes timed results only, and this run only checks\n"


@pytest.mark.parametrize("do", ["run", "check"])
def test_a_column_that_does_not_exist_is_exit_2_before_anything_is_measured(capsys, do):
    assert main([do, "smoke", "--device", "cpu", "--columns", "mean_ms,foo"]) == 2
    said = capsys.readouterr()
    assert said.err.splitlines()[-1].startswith(
        "kernels: There is no column 'foo'. There are: speedup, slowdown, p50_ms,"
    )
    assert said.out == ""

"""Files of other tools as claims: every format, what the row does not say, and files that are damaged."""

import io
import json
import random
import tracemalloc
from itertools import chain, repeat

import pytest

from kernels.contract.arm_result import ArmResult
from kernels.contract.events import Measured
from kernels.contract.export import read_export
from kernels.contract.merged import merge
from kernels.foreign import names, records
from kernels.foreign.claimed import Claimed, NotReadable, Record, Refused
from kernels.foreign.figures import column, number
from kernels.foreign.rows import claims
from kernels.report import formats, tables
from kernels.report.cells import as_csv
from kernels.workload import Workload
from runs.pipeline.importer import folder, samples

NSA = """[
  {
    "kernel": "nsa", "backend": "cutedsl", "arch": "sm_90", "gpu_model": "NVIDIA H100 PCIe",
    "problem_size": {"batch": 2, "heads": 16, "seq_len": 512, "dim": 64, "block_size": 32, "groups": 1,
                     "selected_blocks": 8, "is_causal": true},
    "latency_ms": 0.543, "tflops": 45.23, "compilation_time": 2.15
  }
]"""
LAYER_NORM = """{
  "operation": "LayerNorm", "implementation": "CUDA", "batch_size": 32, "sequence_length": 512, "tensor_dimension": 768,
  "time_ms": 0.442, "memory_mb": 150.5, "inference_speed": 2262.44, "gpu_efficiency": 85.3, "throughput_gbps": 12.5
}"""
SDPA = """### PyTorch SDPA Performance (FP16)

| Config | Latency (ms) | GFLOPS | Bandwidth (GB/s) |
|--------|--------------|--------|------------------|
| B=1, H=1, S=128 | 0.0421 | - | - |
| B=32, H=8, S=256 | 0.0980 | - | - |

| Phase | State |
|-------|-------|
| 0     | done  |
"""
V3 = """| Shape | SDPA p50 (ms) | V3 p50 (ms) | Speedup | SDPA TFLOP/s | V3 TFLOP/s | Slowdown Factor |
|-------|---------------|-------------|---------|--------------|------------|-----------------|
| v3_small (B=1,H=8) | 0.045 | 7.433 | **0.006\u00d7** | 11.92 | 0.07 | **165\u00d7** |
| v3_small_causal | 0.045 | 5.966 | **0.008\u00d7** | 11.92 | 0.09 | **133\u00d7** |

| Shape | V3 CUDA Time/Call | SDPA CUDA Time/Call | Slowdown | Scaling |
|-------|------------------:|--------------------:|---------:|---------|
| B=1, H=8  | 6.8 ms | 15.4 µs | **172\u00d7** | Baseline |
"""
TRITONBENCH = """(Batch, Heads, SeqLen, Dhead);sdpa-latency;sdpa-tflops;flash_v3-latency;flash_v3-speedup;flash_v3-accuracy
(4, 48, 128, 64);0.012 (±3.40%);50.1;0.010;1.2;1.0
(4, 48, 256, 64);0.02;60;CUDA out of memory;;
average;0.016;55.05;0.01;1.2;1.0
"""


def read(text, about=""):
    """(format, claims, refusals as (where, why))"""
    kind, own, found = records.read(io.StringIO(text))
    said = {**names.described(own), **names.described(about)}
    every = [one for record in found for one in (claims(record, said) if isinstance(record, Record) else [record])]
    refused = [(where, str(why)) for where, why in (one for one in every if not isinstance(one, Claimed))]
    return kind, [one for one in every if isinstance(one, Claimed)], refused


def labels(found):
    return [(one.kernel, one.workload.label) for one in found]


# --- each format ------------------------------------------------------------------------------------------------------


def test_json_rows_with_the_sizes_in_an_object():
    kind, (claim,), refused = read(NSA)
    assert (kind, refused) == ("JSON rows", [])
    assert claim.workload.label == "nsa fp16 B=2 H=16 G=1 S=512 D=64 8 blocks of 32 causal"
    assert (claim.kernel, claim.gpu, claim.figures) == ("cutedsl", "NVIDIA H100 PCIe", {"ms": 0.543, "tflops": 45.23})
    assert claim.assumed == ("fp16: the row names no dtype",)


def test_one_json_object_of_a_row():
    _, (claim,), _ = read(LAYER_NORM)
    assert (claim.workload.label, claim.kernel) == ("layer_norm fp16 16384 x 768", "CUDA")
    assert claim.figures == {"ms": 0.442, "gb_per_s": 12.5, "calls_per_s": 2262.44}


def test_a_statistic_of_a_clock_or_of_power_is_no_time():
    row = {"kernel": "mine", "gpu": "NVIDIA H100", "operation": "gemm", "m": 512, "n": 512, "k": 512}
    telemetry = {"sm_mhz": {"median": 1980, "min": 345}, "power_w": {"mean": 230.1}}
    _, found, ((_, why),) = read(json.dumps([row | {"telemetry": telemetry}]))
    assert not found and "no time" in why
    _, (claim,), _ = read(json.dumps([row | {"telemetry": telemetry, "latency": {"mean": 0.5, "p50": 0.4}}]))
    assert claim.figures == {"mean_ms": 0.5, "p50_ms": 0.4}
    event = {"kind": "measured", "mode": "cold", "results": [], "telemetry": telemetry, **row}
    assert "is an event of a run" in read(json.dumps(event) + "\n" + json.dumps(event))[2][0][1]


def test_jsonl():
    row = json.dumps(json.loads(NSA)[0])
    kind, found, _ = read(f"{row}\n\n{row}\n")
    assert (kind, [one.where for one in found]) == ("JSONL", ["line 1", "line 3"])


def test_a_table_in_a_document_and_what_its_rows_do_not_say():
    kind, found, refused = read(SDPA, "attention fp16 D=64 kernel=sdpa on NVIDIA L4")
    assert kind == "a Markdown table" and refused == []
    assert labels(found) == [
        ("sdpa", "attention fp16 B=1 H=1 S=128 D=64"),
        ("sdpa", "attention fp16 B=32 H=8 S=256 D=64"),
    ]
    assert [one.figures for one in found] == [{"ms": 0.0421}, {"ms": 0.098}]
    assert {one.gpu for one in found} == {"L4"} and {one.assumed for one in found} == {()}


def test_a_document_that_begins_with_a_link_is_no_list():
    kind, found, _ = read(
        "[run 7](https://bench.example/runs/7/)\n\n" + SDPA, "attention fp16 D=64 kernel=sdpa on NVIDIA L4"
    )
    assert (kind, len(found)) == ("a Markdown table", 2)


def test_a_table_with_two_kernels_a_row():
    _, found, refused = read(V3, "attention fp16 S=512 D=64 on NVIDIA L4")
    shape = "attention fp16 B=1 H=8 S=512 D=64"
    assert labels(found) == [("SDPA", shape), ("V3", shape), ("V3", shape), ("SDPA", shape)]
    assert found[1].figures == {"p50_ms": 7.433, "tflops": 0.07, "speedup": 0.006, "slowdown": 165.0}
    assert (found[1].baseline, found[0].baseline) == ("SDPA", "")
    assert found[3].figures == {"ms": pytest.approx(0.0154)}
    assert [why for _, why in refused] == ["it does not say batch, heads of attention"] * 2


def test_the_csv_of_tritonbench():
    kind, found, refused = read(TRITONBENCH, "bf16 on NVIDIA H200")
    assert kind == "csv"
    shape = "attention bf16 B=4 H=48 S={} D=64"
    assert labels(found) == [
        ("sdpa", shape.format(128)), ("flash_v3", shape.format(128)), ("sdpa", shape.format(256)),
    ]  # fmt: skip
    assert found[1].figures == {"ms": 0.01, "speedup": 1.2} and found[1].correct is True
    assert found[1].baseline == "sdpa"
    assert refused == [("line 3, flash_v3", "ms is not a number: 'CUDA out of memory'")]


def test_the_csv_of_tritonbench_with_heads_and_lengths_of_keys():
    table = "(Batch, Heads, Heads_KV, SeqLen, SeqLen_KV, Dhead);sdpa-latency\n(4, 48, 8, 512, 512, 64);0.1\n"
    _, found, refused = read(table, "bf16 on NVIDIA H200")
    assert refused == []
    assert labels(found) == [("sdpa", "attention bf16 B=4 H=48 Hkv=8 S=512 D=64")]


def test_the_row_of_averages_is_no_result():
    averages = TRITONBENCH.splitlines()[0] + "\naverage;1;1;1;1;1\n"
    assert read(averages, "bf16")[1:] == ([], [])


@pytest.mark.parametrize("path", sorted(samples().glob("*.json")), ids=lambda path: path.stem)
def test_every_sample_is_read_completely(path):
    _, found, refused = read(path.read_text())
    assert refused == [] and len(found) == len(json.loads(path.read_text())["rows"])
    assert all(one.figures for one in found)


def export_of(number=0):
    return sorted(folder().glob("h200-*.json"))[number].read_text()


def test_a_merged_file_is_read_run_by_run():
    """Its rows were not found: it counted as one row."""
    first = read_export(export_of())
    second = first.model_copy(update={"environment": first.environment | {"uuid": "GPU-2"}, "fingerprint": "other"})
    one = json.loads(merge([first, second])[0].as_json([]))
    kind, found, _ = read(json.dumps(one))
    timed = [arm for run in one["runs"] for m in run["measurements"] for arm in m["results"] if arm["status"] == "ok"]
    assert (kind, len(found)) == ("an exported run", len(timed)) and len(one["runs"]) == 2


def test_our_own_exports_of_both_versions():
    text = export_of()
    export = read_export(text)
    timed = [arm for m in export.measurements for arm in m.results if arm.status == "ok"]
    kind, found, refused = read(text)
    assert (kind, len(found)) == ("an exported run", len(timed))
    assert len(refused) == sum(len(m.results) for m in export.measurements) - len(timed)
    assert [one.figures["p50_ms"] for one in found] == [arm.p50_ms for arm in timed]
    assert {one.figures.get("speedup_low") for one in found} == {arm.speedup_low for arm in timed}, "its own interval"
    first = {"format": "benchsite-run/1", "config": json.loads(text)["config"], "measured_at": "2026-01-01T00:00:00Z",
             "environment": {"device": "NVIDIA L4"}, "measurements": [{
                 "workload": {"operation": "gemm", "dtype": "float16", "sizes": {"m": 8, "n": 8, "k": 8}}, "mode": "warm",
                 "baseline": "eager", "protocol": {}, "results": [
                     {"kernel": "eager", "backend": "pytorch", "status": "ok", "rounds": 10,
                      "stats": {"p50": 0.5, "p50_low": 0.4, "p50_high": 0.6, "n": 10}}]}]}  # fmt: skip
    _, (old,), _ = read(json.dumps(first))
    assert (old.kernel, old.gpu, old.figures) == ("eager", "NVIDIA L4", {"p50_ms": 0.5})


@pytest.mark.parametrize("name", sorted(formats.FORMATS))
def test_rows_that_we_write_in_the_formats_of_others_come_back(name):
    export = read_export(export_of())
    rows = list(formats.records(name, export.measurements, export.environment))
    _, found, refused = read(json.dumps(rows))
    assert refused == [] and len(found) == len(rows)
    assert {one.workload.key for one in found} == {m.key for m in export.measurements}
    assert {one.kernel for one in found} == {row["implementation"] for row in rows}
    assert [one.figures["tflops"] for one in found] == [row["tflops"] for row in rows] if name == "nested" else True


@pytest.mark.parametrize("operation", ["layer_norm", "cross_entropy"])
def test_rows_of_one_sequence_come_back_as_the_same_workload(operation):
    workload = Workload(operation=operation, sizes={"batch": 32, "seq_len": 512, "dim": 768})
    times = {"n": 400, "rounds": 20, "p50_ms": 0.01, "p50_low_ms": 0.009, "p50_high_ms": 0.011, "mean_ms": 0.011}
    arm = ArmResult(kernel="mine", **times)
    measured = Measured(workload=workload, mode="cold", margin=0.01, baseline="eager", results=[arm])
    rows = list(formats.records("flat", [measured], {"device": "NVIDIA H100 PCIe", "capability": "9.0"}))
    _, (one,), refused = read(json.dumps(rows), "NVIDIA H100 PCIe")
    assert refused == [] and one.workload.key == workload.key


def test_our_csv_comes_back():
    export = read_export(export_of())
    rows = tables.rows(export.measurements)
    text = as_csv([{name: getattr(row, name) for name in tables.COLUMNS} for row in rows], tables.COLUMNS)
    _, found, refused = read(text, "on NVIDIA H200")
    assert len(found) == sum(row.status == "ok" for row in rows)
    assert all("status" in why for _, why in refused)
    assert {one.workload.key for one in found} <= {m.key for m in export.measurements}


def test_a_count_of_calls_in_our_csv_is_no_size():
    text = "workload,kernel,status,p50_ms,n\ngemm fp16 M=8 N=16 K=32,a,ok,1,500\nsoftmax fp32 64 x 128,a,ok,1,500\n"
    _, found, _ = read(text)
    assert [one.workload.label for one in found] == ["gemm fp16 M=8 N=16 K=32", "softmax fp32 64 x 128"]


# --- names and numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "heading, meaning",
    [
        ("time_ms", ("ms", "", 1.0)), ("latency_us", ("ms", "", 1e-3)), ("Latency (ms)", ("ms", "", 1.0)),
        ("p50_ms", ("p50_ms", "", 1.0)), ("median_us", ("p50_ms", "", 1e-3)), ("mean_latency_ms", ("mean_ms", "", 1.0)),
        ("GFLOPS", ("tflops", "", 1e-3)), ("Bandwidth (GB/s)", ("gb_per_s", "", 1.0)),
        ("throughput_gbps", ("gb_per_s", "", 1.0)), ("V3 p50 (ms)", ("p50_ms", "V3", 1.0)),
        ("torch-sdpa-tflops", ("tflops", "torch-sdpa", 1.0)), ("Slowdown Factor", ("slowdown", "", 1.0)),
        ("compilation_time", None), ("flash-compile_time", None), ("flash-walltime", None), ("batch", None),
        ("x" * 300 + "_ms", None),
    ],
)  # fmt: skip
def test_headings(heading, meaning):
    assert column(heading) == meaning


@pytest.mark.parametrize(
    "cell, value",
    [(0.045, 0.045), ("1,075", 1075), ("**0.006\u00d7**", 0.006), ("15.4 µs", 0.0154), ("2 s", 2000), ("-", None), ("", None),
     ("0.01 (±3.40%)", 0.01), ("212 (211 to 213)", 212), (None, None), (True, None)],
)  # fmt: skip
def test_cells(cell, value):
    assert number(cell) == (pytest.approx(value) if value else value)


@pytest.mark.parametrize(
    "cell",
    [
        float("nan"),
        float("inf"),
        -1,
        0,
        10**400,
        1e16,
        "nan",
        "0,5",
        "--1",
        "1e999",
        "OOM",
        "9" * 5000,
        [1],
        {"a": 1},
        "٣",
    ],
)
def test_cells_that_are_no_number_above_0(cell):
    with pytest.raises(Refused):
        number(cell)


# --- damaged files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "  \n", "hello", "{", "{]", "\0\1\2", '{"format": "benchsite-run/2"}', "12", "\ufeff"]
)
def test_files_without_rows_say_so(text):
    with pytest.raises(NotReadable):
        read(text)


def row_of(**changed):
    return json.loads(NSA)[0] | changed


@pytest.mark.parametrize(
    "changed, why",
    [
        ({"latency_ms": float("nan")}, "ms is nan"),
        ({"latency_ms": 10**400}, "ms is too large"),
        ({"latency_ms": -3}, "ms is -3"),
        ({"latency_ms": [1], "tflops": None}, "it has no time"),
        ({"latency_ms": "fast"}, "ms is not a number: 'fast'"),
        ({"latency_ms": {"p50": {"x": "y"}}, "tflops": None}, "it has no time"),
        ({"problem_size": 5}, "it does not say batch, heads, seq_len, head_dim, block_size, selected_blocks of nsa"),
        ({"problem_size": {"batch": 1.5, "heads": 1, "seq_len": 1, "dim": 1}}, "batch is not a whole number"),
        (
            {
                "problem_size": {
                    "batch": 10**30,
                    "heads": 1,
                    "seq_len": 1,
                    "dim": 1,
                    "block_size": 1,
                    "selected_blocks": 1,
                }
            },
            "batch",
        ),
        ({"dtype": "int3"}, "dtype"),
        ({"backend": "x" * 101}, "backend is longer than 100 characters"),
        ({"operation": "convolution"}, "the operation 'convolution' is not known here"),
        ({"status": "failed"}, "its status is failed"),
    ],
)
def test_a_damaged_row_is_refused_with_its_reason_and_the_others_are_not(changed, why):
    _, found, ((where, said),) = read(json.dumps([row_of(), row_of(**changed), row_of()]))
    assert (len(found), where) == (2, "row 2")
    assert why in said


def test_a_truncated_list_keeps_what_is_complete():
    text = json.dumps([row_of(), row_of(latency_ms=1.0)])
    _, found, refused = read(text[: len(text) - 40])
    assert len(found) == 1 and refused == [("row 2", "the file ends within it; what follows was not read")]


def test_truncated_and_foreign_lines():
    good = json.dumps(row_of())
    _, found, refused = read(f'{good[:50]}\n{good}\n[1, 2]\n"text"\n{good[:70]}')
    assert len(found) == 1
    assert [where for where, _ in refused] == ["line 1", "line 3", "line 4", "line 5"]


def test_rows_of_a_csv_with_too_few_cells_and_quotes_that_never_end():
    text = 'operation,m,n,k,kernel,time_ms\ngemm,8,8,8,a,1\ngemm,8,8\ngemm,8,8,8,"b,2\n'
    _, found, refused = read(text)
    assert labels(found) == [("a", "gemm fp16 M=8 N=8 K=8")]
    assert [where for where, _ in refused] == ["line 3", "line 4"]


def test_what_is_nested_too_deeply_is_refused():
    _, found, refused = read("[" + "[" * 100_000)
    assert found == [] and len(refused) == 1
    assert read(json.dumps(row_of()) + "\n" + '{"a":' * 100_000)[2]


ROW = json.dumps({"operation": "gemm", "m": 8, "n": 8, "k": 8, "kernel": "a", "time_ms": 1.5})
FILES = {
    "JSONL": lambda count: (f"{ROW}\n" for _ in range(count)),
    "csv": lambda count: (
        f"{line}\n" for line in chain(["operation,m,n,k,kernel,time_ms"], repeat("gemm,8,8,8,a,1.5", count))
    ),
    "JSON rows": lambda count: chain(["[", ROW], repeat(f",\n{ROW}", count - 1), ["]"]),
}
SEVERAL, MANY = 100_000, 400_000


def counted(path):
    """(format, rows, most bytes that reading them takes)"""
    tracemalloc.start()
    try:
        with path.open(newline="") as file:
            found, _, rows = records.read(file)
            count = sum(isinstance(row, Record) for row in rows)
        return found, count, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", FILES)
def test_many_rows_are_read_in_constant_memory(kind, tmp_path):
    path = tmp_path / "many"
    with path.open("w") as file:
        file.writelines(FILES[kind](SEVERAL))
    found, count, most = counted(path)
    assert (found, count) == (kind, SEVERAL)
    assert most < 2**21, "the same as of four times as many"


@pytest.mark.thorough("400,000 rows take ten seconds")
@pytest.mark.parametrize("kind", FILES)
def test_four_times_as_many_rows_are_read_in_the_same_memory(kind, tmp_path):
    path = tmp_path / "many"
    with path.open("w") as file:
        file.writelines(FILES[kind](MANY))
    found, count, most = counted(path)
    assert (found, count) == (kind, MANY)
    assert most < 2**21


def test_one_endless_line_is_refused_in_constant_memory(tmp_path):
    path = tmp_path / "long"
    with path.open("w") as file:
        file.writelines(chain([f"{ROW}\n"], repeat("x" * 10_000, 3_000), [f"\n{ROW}\n"]))
    assert counted(path)[1:][0] == 2 and counted(path)[2] < 2**23
    with path.open(newline="") as file:
        assert [str(row[1]) for row in records.read(file)[2] if not isinstance(row, Record)] == [
            "it is longer than 1 MiB"
        ]


# --- properties -------------------------------------------------------------------------------------------------------

NAMES = ["kernel", "operation", "backend", "dtype", "gpu", "batch", "heads", "seq_len", "dim", "m", "n", "k", "time_ms", "tflops",
         "p50_ms", "problem_size", "shape", "status", "speedup", "is_causal", "", "\0", "(M, N)", "x" * 300]  # fmt: skip
PIECES = [
    *V3,
    NSA[:90],
    ROW,
    "|",
    ";",
    ",",
    '"',
    "\n",
    "{",
    "}",
    "[",
    "]",
    "|---|",
    "\ufeff",
    "\0",
    "NaN",
    "é",
    "1e999",
]


def any_value(draw, deep=3):
    kind = draw.randrange(10 if deep else 8)
    if kind == 8:
        return [any_value(draw, deep - 1) for _ in range(draw.randrange(3))]
    if kind == 9:
        return {draw.choice(NAMES): any_value(draw, deep - 1) for _ in range(draw.randrange(4))}
    return (
        None, draw.random() < 0.5, draw.randrange(-5, 5000), draw.lognormvariate(0, 9), draw.choice([float("nan"), 1e308, -0.0]),
        "".join(draw.choices(PIECES, k=draw.randrange(6))), draw.choice(["gemm", "attention", "nsa", "softmax", "bf16", "H100"]),
        str(draw.randrange(1, 99)),
    )[kind]  # fmt: skip


def test_any_row_is_a_claim_or_refused_with_a_reason():
    draw, taken = random.Random(1), 0
    for _ in range(4000):
        values = {name: any_value(draw) for name in draw.sample(NAMES, draw.randrange(9))}
        if draw.random() < 0.5:
            values = {"operation": "gemm", "m": 8, "n": 8, "k": 8, "kernel": "a", "time_ms": 1} | values
        for one in claims(Record("row 1", values), {}):
            if isinstance(one, Claimed):
                taken += 1
                assert Claimed.model_validate(one.model_dump(mode="json")).digest == one.digest
                assert one.ms is not None or "tflops" in one.figures
            else:
                assert one[0].startswith("row 1") and str(one[1])
    assert taken > 200


def test_any_text_is_rows_or_not_readable():
    draw = random.Random(2)
    for _ in range(2000):
        text = "".join(draw.choices(PIECES, k=draw.randrange(60)))
        for damaged in (text, NSA[: draw.randrange(len(NSA))], V3[draw.randrange(len(V3)) :] + text):
            try:
                read(damaged)
            except NotReadable as error:
                assert str(error).endswith(".")


def test_a_row_means_the_same_in_every_format():
    draw = random.Random(3)
    for _ in range(100):
        row = {"operation": "attention", "dtype": "bf16", "B": draw.randrange(1, 65), "H": draw.randrange(1, 65),
               "S": draw.randrange(1, 4097), "d": draw.choice([32, 64, 128]), "causal": draw.random() < 0.5,
               "kernel": "mine", "time_ms": draw.lognormvariate(0, 4)}  # fmt: skip
        cells = [str(value) for value in row.values()]
        texts = [
            json.dumps([row]), json.dumps(row) + "\n" + json.dumps(row), ";".join(row) + "\n" + ";".join(cells),
            "| " + " | ".join(row) + " |\n|" + "---|" * len(row) + "\n| " + " | ".join(cells) + " |",
        ]  # fmt: skip
        found = [read(text)[1] for text in texts]
        assert len({one.digest for several in found for one in several}) == 1 and all(found)


def test_numbers_without_names_say_what_to_change():
    _, found, refused = read("x_val;flash-latency\n1024;0.5\n(4, 48, 1024, 64);0.7\n")
    assert found == [] and {why for _, why in refused} == {
        "it names no operation; x_val has numbers without names: head it with those of its sizes, as (M, N, K)"
    }
    _, found, refused = read("x_val;flash-latency\n(4, 48, 1024, 64);0.7\n", "attention on an H100")
    assert found == [] and "it does not say batch, heads, seq_len, head_dim of attention; x_val has" in refused[0][1]

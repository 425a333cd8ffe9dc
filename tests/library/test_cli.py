"""python -m kernels: its output for programs, its exit codes, its sentences; and that it needs nothing of the site."""

import csv
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernels.catalog import kernels, operations
from kernels.cli.choice import chosen
from kernels.cli.describe import tools
from kernels.cli.main import main, parser
from kernels.cli.run import NO_ODD_SIZES
from kernels.contract.events import Calibrated
from kernels.report.tables import COLUMNS
from kernels.workload import Ceilings, Config

ROOT = Path(__file__).parents[2]
FORBIDDEN = ("django", "celery", "kombu", "redis", "runs", "benchsite")
HOOK = f"""
import sys

class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {FORBIDDEN}:
            raise ImportError(f"the library may not import {{name}}")

sys.meta_path.insert(0, Forbid())
"""
"""Read by every Python that has its folder on PYTHONPATH: the command and the processes that measure for it."""
TINY = """
title: Tiny
operation: attention
kernels: [eager, even-only]
protocol: {warmup_s: 0.01, min_rounds: 8, max_rounds: 8, verify_seeds: 3, block_ms: 0.2}
workloads: [{batch: 1, heads: 2, seq_len: 32, head_dim: 16, dtype: float32}]
"""
WRONG = """
from kernels.catalog import kernel

@kernel("attention", backend="pytorch")
def not_quite(q, k, v, *, causal, scale):
    return q + v
"""
EVEN_ONLY = """
import torch
from kernels.catalog import kernel

@kernel("attention", backend="pytorch")
def even_only(q, k, v, *, causal, scale):
    out, even = torch.empty_like(q), q.shape[2] // 2 * 2
    out[:, :, :even] = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)[:, :, :even]
    return out
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a small config, a wrong kernel, and the hook that forbids what only the site may use."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "tiny.yaml").write_text(TINY)
    (folder / "kernels" / "attention").mkdir(parents=True)
    (folder / "kernels" / "attention" / "not_quite.py").write_text(WRONG)
    (folder / "kernels" / "attention" / "even_only.py").write_text(EVEN_ONLY)
    (folder / "hook").mkdir()
    (folder / "hook" / "sitecustomize.py").write_text(HOOK)
    (folder / "tmp").mkdir()
    return folder


@pytest.fixture(scope="module")
def command(folder):
    """Runs `python -m kernels ...` where Django, Celery and their like cannot be imported."""

    def run(*arguments):
        environment = {
            k: v for k, v in os.environ.items() if not k.startswith(("DJANGO", "DATABASE", "REDIS", "SECRET"))
        }
        environment |= {
            "PYTHONPATH": f"{folder / 'hook'}:{ROOT}",
            "KERNEL_PATH": str(folder / "kernels"),
            "TMPDIR": str(folder / "tmp"),
            "OMP_NUM_THREADS": "1",
        }
        line = [sys.executable, "-m", "kernels", *map(str, arguments)]
        return subprocess.run(line, env=environment, cwd=folder, capture_output=True, text=True, timeout=100)

    return run


@pytest.fixture(scope="module")
def tiny_run(command):
    """A run that is measured once, for all tests that look at what came of one."""
    return command("run", "tiny.yaml", "--device", "cpu", "--json", "out.json", "--csv", "out.csv")


# --- in a process of its own, without the site's packages -------------------------------------------------------------


def test_the_hook_forbids(command, folder):
    environment = os.environ | {"PYTHONPATH": f"{folder / 'hook'}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", "import django"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "the library may not import django" in done.stderr


def test_list_as_json_has_every_kernel_and_why_it_cannot_run_here(command):
    done = command("list", "--json", "--device", "cpu")
    assert (done.returncode, done.stderr) == (0, "")
    listed = {kernel["full_name"]: kernel for kernel in json.loads(done.stdout)}
    assert set(listed) == {info.full_name for info in kernels()} | {"attention/not-quite", "attention/even-only"}
    assert listed["attention/sdpa"]["why_not"] == ""
    assert listed["attention/triton-flash"]["why_not"] == "needs a CUDA device"
    assert all({"name", "backend", "dtypes", "limits", "doc", "sha256"} <= set(kernel) for kernel in listed.values())


def test_env_is_json_with_the_devices_and_a_fingerprint(command):
    done = command("env", "--device", "cpu")
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    assert said["devices"][-1]["kind"] == "cpu"
    assert said["environment"]["torch"]
    assert len(said["fingerprint"]) == 12
    assert set(said["tools"]) == {"c_compiler", "cuda_cpp", "hardware_counters"}
    assert "NVIDIA GPUs only" in said["tools"]["hardware_counters"]


def test_a_missing_compiler_is_said(monkeypatch, tmp_path):
    device = SimpleNamespace(kind="cpu")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert tools(device)["c_compiler"].startswith("no C compiler on the PATH")
    (tmp_path / "gcc").touch(mode=0o755)
    assert tools(device)["c_compiler"] == "ok"


MEASURED = ["sdpa", "eager", "even-only"]


def test_a_run_is_measured_printed_and_written(tiny_run, folder):
    assert tiny_run.returncode == 0, tiny_run.stderr
    lines = tiny_run.stdout.splitlines()
    assert lines[0].startswith("workload ")
    assert [line.split()[6] for line in lines[1:4]] == MEASURED
    assert re.search(r"\d+ outputs from the rounds were checked: all are correct\.", lines[-1])
    data = json.loads((folder / "out.json").read_text())
    assert (data["format"], data["title"], len(data["measurements"])) == ("benchsite-run/2", "Tiny", 1)
    assert Config(**data["config"]).kernels == MEASURED
    assert all(result["ran"] and result["samples_ns"] for result in data["measurements"][0]["results"])
    table = list(csv.DictReader((folder / "out.csv").open()))
    assert (tuple(table[0]), [row["kernel"] for row in table]) == (COLUMNS, MEASURED)
    assert all(float(row["p50_ms"]) > 0 for row in table)


def test_a_wrong_kernel_from_kernel_path_is_exit_1_and_says_why(command):
    done = command("check", "tiny.yaml", "--device", "cpu", "--kernels", "eager,not-quite")
    assert done.returncode == 1, done.stderr
    assert "attention fp32 B=1 H=2 S=32 D=16  not-quite  incorrect" in done.stdout
    assert "    largest error " in done.stdout
    assert done.stdout.splitlines()[-1].startswith(
        "2 of 3 outputs checked are correct. 1 result is incorrect (not-quite)."
    )


@pytest.mark.thorough("a whole check from the command line")
def test_a_kernel_that_is_wrong_at_odd_sizes_only_is_found_by_a_check(command, folder, tiny_run):
    done = command("check", "tiny.yaml", "--device", "cpu", "--kernels", "eager,even-only", "--output-dir", "checked")
    assert done.returncode == 1, done.stderr
    results = json.loads((folder / "checked" / "run.json").read_text())["measurements"][0]["results"]
    edges = {r["kernel"]: r["correctness"]["edges"] for r in results}
    assert set(edges["eager"].values()) == {"right"}
    assert {label.split()[2] for label in edges["eager"]} == {f"S={size}" for size in (1, 63, 65, 127, 129)}
    assert all(said.startswith("incorrect: ") for said in edges["even-only"].values()), edges
    assert "at B=2 H=2 S=1 D=16" in done.stdout
    assert tiny_run.returncode == 0, "a kernel may be made for the sizes that it is measured at"


def test_a_config_that_only_checks_is_not_timed(command, tmp_path):
    config = tmp_path / "checks.yaml"
    config.write_text(
        "title: Checks\noperation: softmax\nkernels: [functional, eager]\nprotocol: {verify_only: true}\n"
        "workloads: [{rows: 3, cols: 8, dtype: float32}]\n"
    )
    done = command("run", str(config), "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert "2 of 2 outputs checked are correct" in done.stdout
    assert "p50" not in done.stdout and "no odd ones" not in done.stdout
    config.write_text(config.read_text().replace("verify_only: true", "verify_only: true, isolated: true"))
    isolated = command("run", str(config), "--device", "cpu")
    assert isolated.stdout.splitlines()[-1].endswith(NO_ODD_SIZES), isolated.stdout + isolated.stderr


@pytest.mark.thorough("a whole run for its files")
def test_an_output_dir_gets_everything_in_three_forms(command, folder):
    done = command("run", "tiny.yaml", "--device", "cpu", "--kernels", "eager", "--output-dir", "new/results")
    assert done.returncode == 0, done.stderr
    out = folder / "new" / "results"
    assert {path.name for path in out.iterdir()} == {"run.json", "table.csv", "table.md"}
    data = json.loads((out / "run.json").read_text())
    assert [row["kernel"] for row in data["table"]] == ["sdpa", "eager"]
    assert data["ceilings_refused"] or data["ceilings"]["copy_gb_per_s"] > 0
    for result in data["measurements"][0]["results"]:
        assert {"calls", "wall_ns", "event_ns"} <= set(result["crosscheck"])
        assert result["correctness"]["distributions"]["outliers"] == "right"


def test_a_device_is_calibrated(command):
    done = command("calibrate", "--device", "cpu", "--json")
    found = json.loads(done.stdout)
    if done.returncode:  # other programs use this machine's cores
        assert found["ceilings"] is None
        assert "A/A of " in found["refused"] or "of the CPU time" in found["refused"]
        return
    ceilings = found["ceilings"]
    assert ceilings["matmul_tflops"]["float32"] > 0.001
    assert ceilings["copy_gb_per_s"] > 0.1 and ceilings["read_gb_per_s"] > 0.1
    assert 0 < ceilings["empty_us"]["cpu"] < 50


@pytest.mark.parametrize(
    "refused", ("", "the device was busy: A/A of the device copy gives a margin of 38.0%, above 5%")
)
def test_ceilings_are_printed_with_their_intervals_or_refused(capsys, monkeypatch, tmp_path, refused):
    monkeypatch.setattr(
        tempfile, "tempdir", str(tmp_path)
    )  # the lock is this test's: nobody else's measurement is waited for
    found = Ceilings(
        copy_gb_per_s=30, read_gb_per_s=20, matmul_tflops={"float32": 0.1}, empty_us={"cpu": 0.2},
        intervals={"copy_gb_per_s": (29, 31), "read_gb_per_s": (19, 21), "float32": (0.09, 0.11), "cpu": (0.1, 0.3)},
    )  # fmt: skip
    child = SimpleNamespace(wait_ready=dict, close=lambda: None)
    monkeypatch.setattr("kernels.cli.describe.Child", lambda device, stop: child)
    event = Calibrated(refused=refused, ceilings=None if refused else found)
    monkeypatch.setattr("kernels.cli.describe.calibrate", lambda *_: event)
    assert main(["calibrate", "--device", "cpu"]) == bool(refused)
    said = capsys.readouterr().out
    assert refused in said
    if not refused:
        assert re.search(r"copy +30 GB/s +29 to 31 ", said)
        assert re.search(r"matmul +0.1 TFLOP/s +0.09 to 0.11 +float32", said)


def reported(*sizes, ms="12.27", gpu="NVIDIA H100 80GB HBM3"):
    """The command that judges a published time, with more or other sizes."""
    return (
        "judge",
        "attention",
        "batch=16",
        "heads=96",
        "seq_len=4096",
        "head_dim=128",
        *sizes,
        "--ms",
        ms,
        "--gpu",
        gpu,
    )


def test_the_published_h100_time_is_impossible_and_declared_causal_plausible(capsys):
    assert main([*reported()]) == 1
    said = capsys.readouterr().out
    assert said.startswith(
        "attention fp16 B=16 H=96 S=4096 D=128 on H100 SXM: impossible\n12.27 ms would be 1075 TFLOP/s"
    )
    assert "cannot exceed 1071" in said
    assert main([*reported("causal=true")]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0].endswith("causal on H100 SXM: plausible")
    assert said.splitlines()[1] == "50.2% of the speed of light (6.164 ms)"
    assert re.search(r"rate, unmasked work +537.8 TFLOP/s", said)
    assert re.search(r"rate, dense-equivalent +1075 TFLOP/s", said)


def test_what_nobody_has_measured_is_not_plausible(capsys):
    """The other baseline of the same report."""
    arguments = ("judge", "attention", "batch=16", "heads=96", "seq_len=4096", "head_dim=64")
    assert main([*arguments, "--ms", "7.37", "--gpu", "NVIDIA H100 80GB HBM3"]) == 1
    said = capsys.readouterr().out
    assert "895.1 TFLOP/s is above everything measured on an H100 SXM so far: 797.5 TFLOP/s" in said


def test_a_claim_of_sparse_attention_is_not_consistent_with_its_sizes(capsys):
    sizes = "batch=2 heads=16 groups=1 seq_len=512 head_dim=64 block_size=32 selected_blocks=8 causal=true scale=0.1"
    arguments = ("judge", "nsa", *sizes.split(), "--ms", "0.543", "--tflops", "45.23", "--gpu", "NVIDIA H100 PCIe")
    assert main(arguments) == 1
    assert "causal scale=0.1 on H100 PCIe: not consistent with its sizes\n" in capsys.readouterr().out


def test_a_rate_that_does_not_fit_its_time_is_not_consistent_with_its_sizes(capsys):
    arguments = ("judge", "attention", "batch=2", "heads=16", "seq_len=512", "head_dim=64", "causal=true")
    assert main([*arguments, "--ms", "0.543", "--tflops", "45.23", "--gpu", "NVIDIA H100 PCIe"]) == 1
    assert "H100 PCIe: not consistent with its sizes" in capsys.readouterr().out


def test_more_bytes_than_the_memory_gives_are_impossible_on_cold_inputs(capsys):
    judged = ("judge", "layer_norm", "rows=4096", "cols=4096", "dtype=float32", "--gpu", "NVIDIA H200")
    assert main([*judged, "--ms", "0.001"]) == 1
    said = capsys.readouterr().out
    assert "impossible on cold inputs" in said and "more than the memory of H200 SXM gives (4800 GB/s)" in said
    assert main([*judged, "--ms", "0.05"]) == 0


# --- what cannot be done is said in a sentence ------------------------------------------------------------------------


def refused(capsys, *arguments):
    """The sentence with which a command is refused."""
    assert main([*arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("kernels: ")
    assert said.err.count("\n") == 1, said.err
    return said.err.strip()


def test_a_config_that_does_not_exist(capsys):
    assert "there is no config 'nothing'; there are: canonical" in refused(capsys, "run", "nothing")
    assert "there is no config 'gone.yaml'" in refused(capsys, "check", "gone.yaml")


@pytest.mark.parametrize("command", ["run", "check"])
def test_seeds_are_options(command):
    arguments = parser().parse_args([command, "smoke", "--seed", "7", "--verify-seeds", "2"])
    plan = chosen(arguments).protocol
    assert (plan.seed, plan.verify_seeds) == (7, 2)
    assert chosen(parser().parse_args([command, "smoke"])).protocol.seed is None


def test_a_config_that_is_wrong(capsys, tmp_path):
    (tmp_path / "mine.yaml").write_text(TINY.replace("heads: 2", "heads: 0"))
    assert "mine.yaml: line 6: workloads.0.heads: " in refused(capsys, "run", str(tmp_path / "mine.yaml"))


def test_numbers_of_the_protocol_that_make_no_sense(capsys):
    assert "protocol.rest: " in refused(capsys, "run", "smoke", "--device", "cpu", "--rest", "-1")
    assert "protocol.iters: " in refused(capsys, "run", "smoke", "--device", "cpu", "--iters", "0")
    for option in (["--flush-l2"], ["--iters", "5"], ["--warmup", "2"]):  # the last two were ignored
        said = refused(capsys, "run", "smoke", "--device", "cpu", *option)
        assert f"{option[0]} is for --protocol fixed; paired " in said


def test_a_device_that_is_not_here(capsys):
    for arguments in (("run", "smoke"), ("list",), ("env",)):
        said = refused(capsys, *arguments, "--device", "cuda:99")
        assert said.startswith("kernels: there is no device 'cuda:99' on this host; there are: ")
        assert said.endswith("cpu")


def test_a_kernel_that_does_not_exist(capsys):
    said = refused(capsys, "run", "smoke", "--device", "cpu", "--kernels", "eager,faster-than-light")
    assert "there is no kernel 'attention/faster-than-light'; there are: sdpa, " in said


def test_a_backend_that_no_kernel_has(capsys):
    said = refused(capsys, "run", "smoke", "--device", "cpu", "--backends", "pytorch,nope")
    assert (
        "no kernel of attention has the backend 'nope'; there are: cuda, cutedsl, gluon, pytorch, tilelang, "
        "tilelang-cutedsl, triton" in said
    )


def test_a_judge_who_does_not_know_the_gpu_or_the_sizes(capsys):
    assert "no peak is known for a GPU named 'Abacus'; there are: L4, " in refused(capsys, *reported(gpu="Abacus"))
    assert "heads" in refused(capsys, *reported("heads=0"))
    for ms in ("-1", "nan", "inf"):
        assert "--ms needs a number above 0" in refused(capsys, *reported(ms=ms))
    assert "causal has several values" in refused(capsys, *reported("causal=true,false"))


SEVERAL = """
operations:
  layer_norm: {kernels: [compiled, triton-layer-norm], workloads: [{rows: 8, cols: 8}]}
  gemm: {kernels: [compiled, triton-gemm], workloads: [{m: 8, n: 8, k: 8}]}
"""


@pytest.mark.parametrize(
    "options, kernels",
    [
        ("", "layer_norm/eager layer_norm/compiled layer_norm/triton-layer-norm gemm/eager gemm/compiled gemm/triton-gemm"),
        ("--kernels compiled", "layer_norm/eager layer_norm/compiled gemm/eager gemm/compiled"),
        ("--kernels gemm/compiled", "gemm/eager gemm/compiled"),
        ("--kernels triton-layer-norm,gemm/compiled", "layer_norm/eager layer_norm/triton-layer-norm gemm/eager gemm/compiled"),
        ("--backends triton", "layer_norm/eager layer_norm/triton-layer-norm gemm/eager gemm/triton-gemm"),
        ("--kernels compiled --backends triton", "layer_norm/eager gemm/eager"),
    ],
)  # fmt: skip
def test_kernels_of_several_operations(tmp_path, options, kernels):
    """An operation without any of the kernels is left out."""
    (tmp_path / "several.yaml").write_text(SEVERAL)
    config = chosen(parser().parse_args(["run", str(tmp_path / "several.yaml"), *options.split()]))
    assert config.kernels == kernels.split()
    assert (
        [w.operation for w in config.workloads]
        == config.operations
        == list(dict.fromkeys(name.split("/")[0] for name in config.kernels))
    )


def test_a_kernel_that_none_of_several_operations_has(capsys, tmp_path):
    (tmp_path / "several.yaml").write_text(SEVERAL)
    said = refused(capsys, "run", str(tmp_path / "several.yaml"), "--kernels", "sdpa")
    assert "several has no kernel sdpa in any of its operations" in said


def test_no_kernels_at_all(capsys):
    assert "--kernels names no kernel" in refused(capsys, "run", "smoke", "--kernels", " , ")


@pytest.mark.parametrize(
    "sweep, said",
    [
        ("seq_len", "a sweep is SIZE=A,B"),
        ("seq_len=", "a sweep is SIZE=A,B"),
        ("seq_len=x", "seq_len"),
        ("speed=3", "workloads.0.speed: there is no such field"),
        ("heads=0", "workloads.0.heads: "),
    ],
)
def test_a_sweep_over_nothing(capsys, sweep, said):
    assert said in refused(capsys, "run", "smoke", "--sweep", sweep)


def test_a_sweep_of_heads_takes_key_and_value_heads_along(tmp_path):
    path = tmp_path / "grouped.yaml"
    path.write_text(
        "operation: attention\nkernels: [sdpa]\n"
        "workloads: [{batch: 1, heads: 8, kv_heads: [8, 2], seq_len: 64, head_dim: 64}]\n"
    )
    config = chosen(parser().parse_args(["run", str(path), "--sweep", "heads=4,16"]))
    assert config.title.endswith(", heads=4,16"), "the title of the config speaks of other sizes"
    assert [(w.sizes["heads"], w.sizes["kv_heads"]) for w in config.workloads] == [(4, 4), (16, 16), (4, 2), (16, 2)]


def test_two_files_of_runs_are_compared(tiny_run, folder, capsys, tmp_path):
    """The run before is one that was measured; in the one after its kernel is 30% slower than before."""
    measured = folder / "out.json"
    data = json.loads(measured.read_text())
    data["measurements"][0] |= {"margin": 0.01, "telemetry": {}}  # this machine may be busy
    measured = tmp_path / "out.json"
    measured.write_text(json.dumps(data))
    assert data["environment"]["uuid"].startswith("CPU-")
    assert main(["compare", str(measured), str(measured)]) == 0
    assert "No kernel source changed" in capsys.readouterr().out
    for result in data["measurements"][0]["results"]:
        result["sha256"] = "edited" if result["kernel"] == "eager" else result["sha256"]
        if result["kernel"] == "eager":
            result |= {end: 0.05 * result[end] for end in ("speedup", "speedup_low", "speedup_high")}
    slower = tmp_path / "slower.json"
    slower.write_text(json.dumps(data))
    out = tmp_path / "out.md"
    assert main(["compare", str(measured), str(slower), "--md", str(out), "--csv", str(tmp_path / "out.csv")]) == 1
    assert "eager is slower than before." in capsys.readouterr().out
    assert out.read_text().startswith("out.json to slower.json, ")
    table = csv.DictReader((tmp_path / "out.csv").read_text().splitlines())
    assert [float(row["change"]) for row in table if row["kernel"] == "eager"] == [pytest.approx(0.05)]


def test_runs_that_cannot_be_compared_are_exit_2(capsys, tmp_path):
    sample = str(ROOT / "docs" / "measurements" / "h200-2026-11-22.json")
    other = tmp_path / "other.json"
    other.write_text(json.dumps(json.loads(Path(sample).read_text()) | {"environment": {"device": "NVIDIA L4"}}))
    assert "these runs cannot be compared. The two runs differ in: device " in refused(
        capsys, "compare", sample, str(other)
    )
    other.write_text("{")
    assert "not JSON: " in refused(capsys, "compare", sample, str(other))
    other.write_text("[]")
    assert "not an exported run" in refused(capsys, "compare", sample, str(other))
    for broken in ({}, {"environment": {"device": "x"}, "measurements": [{"key": 1}]}):
        other.write_text(json.dumps({"format": "benchsite-run/1"} | broken))
        assert "not an exported run" in (said := refused(capsys, "compare", sample, str(other))) or "not valid" in said
    assert "No such file" in refused(capsys, "compare", sample, str(tmp_path / "nothing.json"))


def test_a_folder_that_does_not_exist_is_said_before_anything_is_measured(capsys):
    for option in ("--json", "--csv"):
        said = refused(capsys, "run", "smoke", "--device", "cpu", option, "/nowhere/at/all/out.x")
        assert said == "kernels: there is no folder /nowhere/at/all to write out.x in"


def test_a_command_that_does_not_exist_is_exit_2(capsys):
    for arguments in ((), ("sing",), ("run",), ("run", "smoke", "--protocol", "hasty")):
        with pytest.raises(SystemExit) as error:
            main([*arguments])
        assert error.value.code == 2
        assert "usage: python -m kernels" in capsys.readouterr().err


def test_help_tells_the_exit_codes(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "exit codes: 0 every result ok" in " ".join(capsys.readouterr().out.split())


def test_list_for_people_marks_the_baselines(capsys):
    assert main(["list", "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("(cpu):")
    baselines = [f"{name}/{operation.baseline}" for name, operation in operations().items()]
    assert [line.split()[0] for line in lines if " (baseline)" in line] == baselines
    assert {"attention/sdpa", "gemm/eager", "softmax/functional"} <= set(baselines)
    assert any("attention/triton-flash" in line and line.endswith("[needs a CUDA device]") for line in lines)


@pytest.mark.parametrize("more, flushes", [([], False), (["--flush-l2"], True)])
def test_the_protocol_fixed_flushes_if_it_is_asked_to(more, flushes):
    arguments = parser().parse_args(["run", "smoke", "--protocol", "fixed", *more])
    assert chosen(arguments).protocol.flush_l2 is flushes


def test_output_that_nobody_reads_any_more_is_no_error():
    """`try FOLDER | head` said "kernels: [Errno 32] Broken pipe"."""
    nobody, end = os.pipe()
    os.close(nobody)
    line = [sys.executable, "-m", "kernels", "list"]
    done = subprocess.run(line, cwd=ROOT, stdout=end, stderr=subprocess.PIPE, text=True, timeout=100)
    os.close(end)
    assert (done.returncode, done.stderr) == (141, "")

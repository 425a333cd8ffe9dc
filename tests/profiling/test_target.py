"""The profiled process, for real, on the CPU: PyTorch's profiler, its table and its trace."""

import base64
import gzip
import json

import pytest

from kernels.cli.main import main
from kernels.contract.export import read_export
from kernels.contract.profile import Profile
from kernels.formats.bringing import pair_in
from kernels.host.device import find_device
from kernels.profiling import ncu
from kernels.profiling.examine import profile
from kernels.profiling.process import Launcher
from kernels.submission import Submission, kernel_of
from kernels.workload import Workload
from runs.agent.submitted import submitted

WORKLOAD = Workload(operation="layer_norm", dtype="float32", sizes={"rows": 64, "cols": 256})
KERNELS = """
import atexit, os, sys, time
from kernels.catalog import kernel

@kernel("layer_norm", backend="pytorch")
def raises(x, weight, bias, *, eps):
    raise ValueError("it raised")

@kernel("layer_norm", backend="pytorch")
def hangs(x, weight, bias, *, eps):
    time.sleep(300)

@kernel("layer_norm", backend="pytorch")
def ends(x, weight, bias, *, eps):
    os._exit(3)

@kernel("layer_norm", backend="pytorch")
def forges(x, weight, bias, *, eps):
    print('{"timeline": {"call_ns": 1, "enqueue_ns": 1}}', flush=True)
    atexit.register(print, '{"failed": "forged"}')
    return x
"""
CONFIG = """
title: Small
operation: gelu
kernels: [functional, eager]
workloads: [{rows: [64, 128], cols: 256, dtype: float32}]
"""


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    (tmp_path / "layer_norm").mkdir()
    for name in ("raises", "hangs", "ends", "forges"):
        (tmp_path / "layer_norm" / f"{name}.py").write_text(alone(name))
    tmp_path.chmod(0o755)
    monkeypatch.setenv("KERNEL_PATH", str(tmp_path))


def alone(name):
    """The file of one of KERNELS."""
    head, *parts = KERNELS.split('@kernel("layer_norm", backend="pytorch")')
    return head + '@kernel("layer_norm", backend="pytorch")' + next(one for one in parts if f"def {name}(" in one)


def profiled(kernel, limit_s=120.0, **more):
    return profile(Launcher(find_device("cpu"), limit_s, **more), WORKLOAD, kernel)


def trace_of(timeline):
    return json.loads(gzip.decompress(base64.b64decode(timeline.trace)))


def test_a_timeline_has_times_a_table_and_a_trace_that_perfetto_opens():
    found = profiled("eager")
    seen = found.timeline
    assert 0 < seen.enqueue_ns <= seen.call_ns
    assert (seen.busy_ns, seen.kernels) == (None, None)  # only a GPU has them
    assert "aten::layer_norm" in seen.table
    assert all(column in seen.table for column in ("CPU Mem", "Input Shapes")), "memory, and what it was called with"
    names = {event.get("name") for event in trace_of(seen)["traceEvents"]}
    assert {"call 1", "call 2", "call 3", "aten::layer_norm"} <= names
    assert len(found.sha256) == 64
    assert found.counters_missing == ncu.NO_GPU


def test_an_isolated_kernel_is_profiled_behind_the_airlock():
    assert "aten::layer_norm" in profiled("eager", isolated=True).timeline.table


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        ("raises", "The kernel failed while it was profiled: ValueError: it raised"),
        ("ends", "There is no timeline: the process ended with status 3."),
        ("missing", "It cannot run here:"),
    ],
)
def test_a_kernel_that_fails_says_how(kernels, kernel, said):
    found = profiled(kernel)
    assert found.timeline is None
    assert found.timeline_missing.startswith(said)
    assert found.counters_missing == found.timeline_missing


@pytest.mark.thorough("10 s of waiting; `make test` has a kernel that ends its process")
def test_a_kernel_that_hangs_ends_at_the_limit(kernels):
    assert profiled("hangs", limit_s=12.0).timeline_missing == "There is no timeline: it did not end within 12 s."


def test_what_a_kernel_prints_is_no_answer(kernels):
    seen = profiled("forges").timeline
    assert seen.call_ns > 1 and seen.table


@pytest.mark.thorough("two whole profiles: `make test` has one at the end of a run")
def test_the_command_prints_what_it_found_and_writes_a_file(tmp_path, capsys):
    config, out = tmp_path / "small.yaml", tmp_path / "out.json"
    config.write_text(CONFIG)
    status = main(
        ["profile", "eager", "--config", str(config), "--workload", "2", "--device", "cpu", "--out", str(out)]
    )
    assert status == 0
    said = capsys.readouterr().out
    assert said.startswith("eager on gelu fp32") and "a call, back to back" in said
    written = json.loads(out.read_text())
    assert [(one["kernel"], bool(one["timeline"]["trace"])) for one in written["profiles"]] == [("eager", True)]


def test_a_run_profiles_what_it_has_measured_when_it_is_done(tmp_path, capsys):
    config, out = tmp_path / "small.yaml", tmp_path / "run.json"
    config.write_text(CONFIG.replace("[64, 128]", "64") + "protocol: {warmup_s: 0.01, min_rounds: 8, max_rounds: 8}\n")
    assert main(["run", str(config), "--device", "cpu", "--profile", "--json", str(out)]) == 0
    export = read_export(out.read_text())
    assert export.state == "done" and len(export.measurements) == 1
    assert [(one.kernel, one.timeline is not None) for one in export.profiles] == [
        ("functional", True),
        ("eager", True),
    ]
    printed = capsys.readouterr().out
    assert printed.index("speedup") < printed.index("a call, back to back")


def test_what_was_profiled_is_in_the_file_when_the_command_is_stopped(tmp_path, monkeypatch):
    config, out = tmp_path / "small.yaml", tmp_path / "out.json"
    config.write_text(CONFIG)

    def stopped_after_one(launcher, choice, wanted, say):
        yield Profile(key=choice.workloads[0].key, kernel="functional")
        raise InterruptedError

    monkeypatch.setattr("kernels.cli.profile.profiles", stopped_after_one)
    assert main(["profile", "functional", "--config", str(config), "--device", "cpu", "--out", str(out)]) != 0
    assert [one["kernel"] for one in json.loads(out.read_text())["profiles"]] == ["functional"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["eager", "--workload", "3"], "small has 2 workloads"),
        (["nothing"], "small has no kernel nothing there; there are: eager, functional"),
    ],
)
def test_a_choice_that_does_not_exist(tmp_path, capsys, more, said):
    config = tmp_path / "small.yaml"
    config.write_text(CONFIG)
    assert main(["profile", *more, "--config", str(config), "--device", "cpu"]) == 2
    assert said in capsys.readouterr().err


GPU_MODE = {
    "reference.py": "import torch\n\n\ndef generate_input(n, seed):\n    torch.manual_seed(seed)\n"
    "    return torch.randn(n, n), 3\n\n\ndef ref_kernel(data):\n    return (data[0] @ data[0]) * data[1]\n",
    "task.yml": "benchmarks: [{n: 8, seed: 1}, {n: 48, seed: 1}]",
    "mine.py": "def custom_kernel(data):\n    x, by = data\n    return (x * by) @ x\n",
}


@pytest.mark.parametrize("which", ["its reference", "a kernel for it"])
def test_a_problem_that_came_with_its_kernels_is_profiled_behind_the_airlock(which):
    pair = pair_in(GPU_MODE)
    both = [Submission(operation="problem", files=files) for files in (pair.problem, pair.kernel)]
    named = [f"{kernel_of(one.files).name}@{one.version}" for one in both]
    workload = Workload(operation="problem", dtype="float32", sizes={"problem": named[0], "case": "n=48"})
    kernel = named[which == "a kernel for it"]
    with submitted(both):
        found = profile(Launcher(find_device("cpu"), 120.0, isolated=True), workload, kernel)
    assert found.timeline, found.timeline_missing
    assert found.kernel == kernel and len(found.sha256) == 64 and "aten::mm" in found.timeline.table
    shapes = [
        one["args"].get("Input Dims")
        for one in trace_of(found.timeline)["traceEvents"]
        if one.get("name") == "aten::mm"
    ]
    assert len(shapes) == 3 and [[48, 48], [48, 48]] in shapes

"""Kernels in the formats that people have: what a folder is recognised as without running it, and what becomes of each.

tests/formats has at least five right kernels in each format, as its users write them, and some that are not.
"""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from kernels.cli.main import main
from kernels.cli.trying import NOT_STARTED, _line, attempt, tally
from kernels.formats import bare
from kernels.formats.found import (
    BARE,
    CUDA_FILE,
    DECORATED,
    FLASHINFER,
    FORMATS,
    GPU_MODE,
    KERNELBENCH,
    PERF_REPORT,
    Found,
)
from kernels.formats.recognise import Folder
from kernels.host.device import find_device
from kernels.host.processes import descendants, identify
from kernels.inprocess.attempt import _sentence
from kernels.submission import kernel_of

KERNELS = Path(__file__).parents[1] / "formats"
FOUND = list(Folder(KERNELS).kernels())
WRONG = {
    "wrong.py", "wrong_gelu.py", "6_wrong_bias.py", "wrong_sum.py", "scale_wrong.json",
}  # fmt: skip
NOT_LOADED = {
    "unread.py": "must be a literal",
    "ambiguous.py": "gelu, softmax, swish: name the function or its file after",
    "gelu_without_option.py": "has no argument approximate",
    "with_host_code.cu": "it has host code",
    "no_launch.cu": "no comment says how swish is launched",
    "alone_custom_kernel.py": "there is no reference.py",
    "lost.json": "the definition softmax_nowhere is not among these files",
    "scale_cuda.json": "it is in cuda",
}
AT_RUN = {"without_library.py": "none of its providers (v1, v2) is a library"}
"""Only its benchmark says so."""


def name(found):
    return Path(found.path).name


def never():
    return False


# --- recognised -------------------------------------------------------------------------------------------------------


def test_every_format_is_recognised_with_at_least_five_kernels_that_are_right():
    good = Counter(f.format for f in FOUND if name(f) not in {*WRONG, *NOT_LOADED, *AT_RUN})
    assert set(good) == set(FORMATS)
    assert min(good.values()) >= 5, good


@pytest.mark.parametrize("found", [f for f in FOUND if f.why_not], ids=name)
def test_what_cannot_be_loaded_says_what_is_missing(found):
    assert NOT_LOADED[name(found)] in found.why_not and "\n" not in found.why_not


def test_nothing_else_is_refused():
    assert {name(f) for f in FOUND if f.why_not} == set(NOT_LOADED)


def test_nothing_is_run_to_recognise_it(tmp_path):
    (tmp_path / "bomb.py").write_text("raise SystemExit('it ran')\n\ndef softmax(x):\n    return x\n")
    (tmp_path / "pair.py").write_text("1 / 0\nclass Model: pass\nclass ModelNew: pass\ndef get_inputs(): pass\n")
    assert {f.format for f in Folder(tmp_path).kernels()} == {BARE, KERNELBENCH}


def test_files_that_are_no_kernels_are_left_alone(tmp_path):
    for file, text in {
        "setup.py": "from setuptools import setup\nsetup()\n",
        "utils.py": "def helper(a, b):\n    return a\n\n\ndef gemm_shape(n):\n    return n\n",
        "broken.py": "def (",
        "signs.py": "x = " + "-" * 20_000 + "1",
        "data.json": '{"name": 3}',
        "list.json": "[1]",
        "deep.json": "[" * 100_000,
    }.items():
        (tmp_path / file).write_text(text)
    (tmp_path / "utils.py").write_text("def helper(first, second):\n    return first\n")
    assert list(Folder(tmp_path).kernels()) == []


def test_a_problem_without_a_kernel_is_no_kernel():
    folder = Folder(KERNELS / "kernelbench")
    list(folder.kernels())
    assert [path.name for path in folder.problems()] == ["7_without_kernel.py"]


def test_a_new_model_finds_its_problem_by_name():
    pairs = {name(f): Path(f.problem).name for f in FOUND if f.format == KERNELBENCH}
    assert pairs["1_scale_add_new.py"] == "1_scale_add.py"
    assert pairs["2_linear_relu_fused.py"] == "2_linear_relu.py"
    assert pairs["5_mean_dim.py"] == "5_mean_dim.py"


@pytest.mark.parametrize("found", [f for f in FOUND if f.format in (BARE, CUDA_FILE) and not f.why_not], ids=name)
def test_the_declaration_that_is_added_makes_a_submission(found):
    info = kernel_of({name(found): found.more["text"]})
    assert (info.operation, info.name) == (found.operation, found.name)
    kept = [line for line in Path(found.path).read_text().splitlines() if line.strip()]
    assert [line for line in found.more["text"].splitlines() if line in kept and line.strip()] == kept


def test_grid_and_block_of_a_launch_become_expressions():
    one = bare.adapted_cuda((KERNELS / "cuda" / "gemm_naive.cu").read_text(), "gemm")
    assert "// @launch(grid=((n + 15) // 16, (m + 15) // 16), block=(16, 16))" in one.text
    assert '// @call("gemm", a, b, out, m, n, k)' in one.text and 'dtypes=("float32",)' in one.text


# --- tried ------------------------------------------------------------------------------------------------------------


def tried(found, limit_s=150):
    return attempt(found, find_device("cpu"), limit_s, never)


def test_one_kernel_is_tried_in_a_process_of_its_own():
    good, bad = (next(f for f in FOUND if name(f) == file) for file in ("softmax.py", "6_wrong_bias.py"))
    assert tried(good) == {"loaded": True, "ran": True, "right": True, "why": ""}
    result = tried(bad)
    assert (result["ran"], result["right"]) == (True, False) and result["why"].startswith("largest error")


PAIR = """import torch

class Model(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(size, size))

    def forward(self, x):
        for _ in range({slow}):
            x.clone().exp_()
        return x @ self.weight

class ModelNew(Model):
    def forward(self, x):
        for _ in range({slower}):
            x.clone().exp_()
        return torch.mm(x, self.weight){wrong}

def get_inputs():
    return [torch.randn(256, 256)]

def get_init_inputs():
    return [256]
"""


WAITS = "a kernel that hangs while it is timed: 20 s"
OTHERS = pytest.mark.thorough("other kernels, timed in the same way")


@pytest.mark.journey
@pytest.mark.parametrize(
    "slow, slower, wrong, words",
    [
        (30, 0, "", {"FASTER", "UNDECIDED"}),
        pytest.param(0, 30, "", {"SLOWER", "UNDECIDED"}, marks=OTHERS),
        pytest.param(0, 0, "", {"SAME", "needs more rounds", "UNDECIDED"}, marks=OTHERS),
        pytest.param(30, 0, " + 1", set(), marks=OTHERS),
    ],
)
def test_a_pair_is_timed_beside_what_it_replaces(tmp_path, slow, slower, wrong, words):
    """On a busy machine nothing is decided; the ratio is never on the wrong side of 1 there by this much."""
    (tmp_path / "pair.py").write_text(PAIR.format(slow=slow, slower=slower, wrong=wrong))
    (found,) = Folder(tmp_path).kernels()
    answer = attempt(found, find_device("cpu"), 100, never, time_it=True)
    assert answer["right"] == (not wrong)
    if wrong:
        assert "timed" not in answer, "what is wrong is not timed"
        return
    timed = answer["timed"]
    assert timed["word"] in words and timed["low"] <= timed["speedup"] <= timed["high"]
    assert (timed["speedup"] > 2, timed["speedup"] < 0.5) == (slow > 0, slower > 0)
    assert timed["replaced_us"] > 0 and timed["p50_us"] > 0


@OTHERS
@pytest.mark.parametrize(
    "file, said",
    [("softmax.py", "do not say what it replaces"), ("submission.py", "Triton's interpreter ran it, not a GPU")],
)
def test_what_is_not_timed_says_why(file, said):
    found = next(f for f in FOUND if name(f) == file and f.format == (GPU_MODE if file == "submission.py" else BARE)
                 and (file != "submission.py" or "vectoradd" in f.path))  # fmt: skip
    timed = attempt(found, find_device("cpu"), 100, never, time_it=True)["timed"]
    assert timed["word"] == "not timed" and said in timed["why"]


@pytest.mark.parametrize(
    "slower, said",
    [
        pytest.param("__import__('time').sleep(600)", "did not end within 20 s", marks=pytest.mark.thorough(WAITS)),
        ("__import__('os').kill(__import__('os').getpid(), 9)", "ended by SIGKILL"),
    ],
)
def test_what_was_right_stays_right_when_it_cannot_be_timed(tmp_path, slower, said):
    """It hangs or dies after its eighth call, when it has been checked."""
    later = f"        self.n = getattr(self, 'n', 0) + 1\n        self.n > 8 and {slower}\n"
    body = PAIR.format(slow=0, slower=0, wrong="").replace("        return torch.mm", f"{later}        return torch.mm")
    (tmp_path / "pair.py").write_text(body)
    (found,) = Folder(tmp_path).kernels()
    answer = attempt(found, find_device("cpu"), 20, never, time_it=True)
    assert (answer["ran"], answer["right"], answer["why"]) == (True, True, "")
    assert answer["timed"] == {"word": "not timed", "why": said}


@pytest.mark.thorough("kernels that hang: seconds of waiting")
def test_a_kernel_that_hangs_crashes_or_forges_its_answer_ends_alone(tmp_path):
    def found(file, body):
        path = tmp_path / file
        path.write_text(f"import os, time\n{body}\n\ndef softmax(x):\n    return x.softmax(-1)\n")
        return next(iter(Folder(path).kernels()))

    begin = time.monotonic()
    assert tried(found("hangs.py", "time.sleep(600)"), 3)["why"] == "did not end within 3 s"
    assert time.monotonic() - begin < 30
    assert "ended by SIGKILL" in tried(found("dies.py", "os.kill(os.getpid(), 9)"))["why"]
    assert "SystemExit" in tried(found("exits.py", "raise SystemExit(3)"))["why"]
    assert tried(found("needs.py", "import nosuchpackage.a"))["why"].endswith("nosuchpackage is not installed here")
    assert "not installed here: pip install opencv-python" in tried(found("wants.py", "import cv2"))["why"]


def test_kernels_that_kernelbench_wrote_find_their_problems(tmp_path):
    both = PAIR.format(slow=0, slower=0, wrong="")
    problem, kernel = both.split("class ModelNew(Model)")
    kernel = "import torch\n\nclass ModelNew(torch.nn.Module)" + kernel.split("def get_inputs")[0]
    problem += "def get_inputs" + both.split("def get_inputs")[1]
    for name in (
        "level1/3_first.py",
        "level1/36_second.py",
        "level2/36_third.py",
        "prompts/model_ex.py",
        "prompts/model_ex_b.py",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(problem)
    for name in (
        "runs/level_1_problem_36_sample_0_kernel.py",
        "prompts/model_new_ex.py",
        "prompts/model_new_ex_b_triton.py",
        "runs/level_3_problem_1_sample_0_kernel.py",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(kernel)
    found = {Path(one.path).name: one for one in Folder(tmp_path).kernels()}
    assert found["level_1_problem_36_sample_0_kernel.py"].problem.endswith("level1/36_second.py")
    assert found["model_new_ex.py"].problem.endswith("prompts/model_ex.py")
    assert found["model_new_ex_b_triton.py"].problem.endswith("prompts/model_ex_b.py")
    assert "no file with Model and get_inputs" in found["level_3_problem_1_sample_0_kernel.py"].why_not


LSTM = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = [torch.randn(1, 3, 8)]
        self.c0 = torch.randn(1, 3, 8)
        self.lstm = torch.nn.LSTM(5, 8, batch_first=True)

    def forward(self, x):
        return self.lstm(x, (self.first[0], self.c0))[0][:, -1]


class ModelNew(Model):
    pass


def get_inputs():
    return [torch.randn(3, 6, 5)]


def get_init_inputs():
    return []
"""


def test_a_model_with_tensors_that_are_no_buffers_is_judged(tmp_path):
    """Only weights were converted to float64: no LSTM with a first state of its own could be judged."""
    (tmp_path / "lstm.py").write_text(LSTM)
    (found,) = Folder(tmp_path).kernels()
    answer = tried(found, 100)
    assert (answer["ran"], answer["right"], answer["why"]) == (True, True, "")


def test_a_problem_that_cannot_judge_is_no_fault_of_the_kernel(tmp_path, capsys):
    of_bits = LSTM.replace("def forward(self, x):\n", "def forward(self, x):\n        x.view(torch.int32)\n", 1)
    (tmp_path / "lstm.py").write_text(of_bits)
    assert main(["try", str(tmp_path), "--device", "cpu"]) == 1
    assert capsys.readouterr().out.startswith(
        "not judged  lstm.py  (KernelBench: ModelNew)  its problem cannot be used here:"
    )


STATEFUL = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.i2h = torch.nn.Linear(24, 16)
        self.hidden = torch.randn(3, 16)

    def forward(self, x, first):
        self.hidden.copy_(first)
        self.hidden = torch.tanh(self.i2h(torch.cat((x, self.hidden), dim=1)))
        return self.hidden.clone()


class ModelNew(Model):
    def forward(self, x, first):
        return super().forward(x, first) * {factor}


def get_inputs():
    return [torch.randn(3, 8), torch.randn(3, 16)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("factor", [1, 1.001])
def test_a_model_with_a_state_of_its_own_is_judged(tmp_path, factor):
    """What it keeps in float64 when it is called for the exact answer is not there when it is called again."""
    (tmp_path / "rnn.py").write_text(STATEFUL.replace("{factor}", str(factor)))
    (found,) = Folder(tmp_path).kernels()
    answer = tried(found, 100)
    assert (answer["ran"], answer["right"]) == (True, factor == 1), answer


# --- definitions with workloads ---------------------------------------------------------------------------------------

GATHER = {
    "name": "gather_h64",
    "axes": {"n": {"type": "var"}, "rows": {"type": "var"}, "h": {"type": "const", "value": 64}},
    "inputs": {
        "table": {"shape": ["rows", "h"], "dtype": "bfloat16"},
        "index": {"shape": ["n"], "dtype": "int64"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"out": {"shape": ["n", "h"], "dtype": "bfloat16"}, "sums": {"shape": ["n"], "dtype": "float32"}},
    "reference": """import torch


def run(table, index, scale):
    assert table.dtype == torch.bfloat16 and index.max() == len(index) - 1 and scale == 0.3
    found = table[index].to(torch.float32) * scale
    return found.softmax(-1).to(torch.bfloat16), found.exp().sum(-1)
""",
}
RIGHT = "found = table.float()[index] * scale; out = found.softmax(-1).bfloat16(); sums = found.exp().sum(-1)"
RUNS = {
    "returns": f"def run(table, index, scale):\n    {RIGHT}\n    return out, sums\n",
    "into": f"def run(table, index, scale, a, b):\n    {RIGHT}\n    a.copy_(out); b.copy_(sums)\n",
    "named": f"def run(table, index, scale):\n    {RIGHT}\n    return {{'sums': sums, 'out': out}}\n",
    "by name": f"def run(*, index, table, scale):\n    {RIGHT}\n    return out, sums\n",
    "into by name": "def run(*, out, sums, **given):\n    a, b = _run(**given)\n    out.copy_(a); sums.copy_(b)\n\n\n"
    f"def _run(table, index, scale):\n    {RIGHT}\n    return out, sums\n",
    "of anything": f"def run(**given):\n    table, index, scale = given['table'], given['index'], given['scale']\n    {RIGHT}\n"
    "    given['out'].copy_(out); given['sums'].copy_(sums)\n",
    "wrong": f"def run(table, index, scale):\n    {RIGHT}\n    return out, sums * 1.001\n",
}


def traced(root, content):
    """A clone as flashinfer-trace has its files."""
    solution = {"name": "mine", "definition": "gather_h64", "sources": [{"path": "main.py", "content": content}]}
    solution["spec"] = {"languages": ["pytorch"], "entry_point": "main.py::run"}
    values = b"".join(n.to_bytes(8, "little") for n in range(40))
    head = json.dumps({"index": {"dtype": "I64", "shape": [40], "data_offsets": [0, 320]}}).encode()
    inputs = {"table": {"type": "random"}, "scale": {"type": "scalar", "value": 0.3}}
    inputs["index"] = {"type": "safetensors", "path": "./blob/a.safetensors", "tensor_key": "index"}
    lines = [{"axes": {"n": 40, "rows": rows}, "inputs": inputs, "uuid": str(rows)} for rows in (64, 50, 4096, 48)]
    lines = [{"definition": "gather_h64", "workload": line, "solution": None} for line in lines]
    for path, text in {
        "definitions/gather/gather_h64.json": json.dumps(GATHER),
        "solutions/mine.json": json.dumps(solution),
        "workloads/gather/gather_h64.jsonl": "\n".join(map(json.dumps, lines)),
        "workloads/gather/other.jsonl": "no JSON",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "blob").mkdir()
    (root / "blob/a.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + values)


@pytest.mark.parametrize("how", RUNS)
def test_a_solution_is_tried_on_the_workloads_of_its_definition(tmp_path, how):
    """Neither workloads nor arguments by name were read."""
    traced(tmp_path, RUNS[how])
    (found,) = Folder(tmp_path).kernels()
    assert [Path(one).name for one in found.more["workloads"]] == ["gather_h64.jsonl"]
    answer = tried(found, 100)
    assert (answer["ran"], answer["right"]) == (True, how != "wrong"), answer


def test_workloads_that_cannot_be_read_are_no_fault_of_the_kernel(tmp_path):
    traced(tmp_path, RUNS["returns"])
    (tmp_path / "blob/a.safetensors").unlink()
    (found,) = Folder(tmp_path).kernels()
    answer = tried(found, 100)
    assert answer["unfit"] and "a.safetensors, which is not among the files" in answer["why"]


def test_a_kernel_that_was_not_tried_is_not_said_to_be_not_loaded(tmp_path):
    found = Found(KERNELBENCH, "a.py", "ModelNew")
    assert _line(tmp_path, found, NOT_STARTED).startswith("not tried")


BFLOAT16 = """
import torch
import triton
import triton.language as tl


@triton.jit
def _product(x, w, out, N: tl.constexpr):
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    tl.store(out + i * N + j, tl.dot(tl.load(x + i * N + j), tl.load(w + i * N + j)))


class Model(torch.nn.Module):
    def forward(self, x, w):
        return torch.mm(x, w)


class ModelNew(torch.nn.Module):
    def forward(self, x, w):
        out = torch.empty_like(x)
        _product[(1,)](x, w, out, N=64)
        return out


def get_inputs():
    return [torch.rand(64, 64, dtype=torch.bfloat16), torch.rand(64, 64, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
"""


def test_the_interpreter_has_the_bfloat16_of_a_gpu(tmp_path):
    """Triton's own cuts float32 off, so that every output was too small: right kernels were called wrong."""
    (tmp_path / "product.py").write_text(BFLOAT16)
    (found,) = Folder(tmp_path).kernels()
    answer = tried(found, 100)
    assert (answer["ran"], answer["right"], answer["why"]) == (True, True, "")


def test_the_command_prints_a_line_for_each_and_the_tally(capsys, tmp_path):
    assert main(["try", str(KERNELS / "flashinfer"), "--device", "cpu", "--json", str(tmp_path / "out.json")]) == 1
    said = capsys.readouterr().out
    assert "6 of 8 load, 6 run, 5 right" in said
    assert "right       solutions/gemm_triton.json  (flashinfer: gemm_triton)" in said
    assert len(json.loads((tmp_path / "out.json").read_text())) == 8
    assert "Triton kernels ran in Triton's interpreter" in said


@pytest.mark.thorough("each kernel of each foreign format, in a process of its own")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("of", [f for f in FORMATS if f != CUDA_FILE])
def test_each_kernel_becomes_what_it_must(of):
    wrong_word = []
    for found in [f for f in FOUND if f.format == of]:
        result = tried(found)
        file = name(found)
        expected = (False, False) if file in {*NOT_LOADED, *AT_RUN} else (True, file not in WRONG)
        if (result["ran"], result["right"]) != expected:
            wrong_word.append((file, result))
    assert wrong_word == []


def test_a_tally_counts_what_loads_runs_and_is_right():
    kernel = Found(GPU_MODE, "a.py", "custom_kernel").as_json()
    results = [
        {"kernel": kernel, "loaded": True, "ran": True, "right": True},
        {"kernel": kernel | {"format": PERF_REPORT}, "loaded": True, "ran": False, "right": False},
        {"kernel": kernel | {"format": DECORATED}, "loaded": False, "ran": False, "right": False},
    ]
    lines = tally(results, find_device("cpu"))
    assert "2 of 3 load, 1 run, 1 right" in lines[0] and "  GPU MODE: 1 of 1 load, 1 run, 1 right" in lines
    assert FLASHINFER not in "".join(lines) and os.linesep not in lines[0]
    assert not any("interpreter" in line for line in lines), "no file is in Triton"


def test_a_clone_in_a_folder_called_build_and_files_of_any_kind_are_read(tmp_path):
    clone = tmp_path / "build" / "clone"
    clone.mkdir(parents=True)
    (clone / "swish.py").write_bytes(
        "# -*- coding: latin-1 -*-\n# Größe\ndef swish(x):\n    return x\n".encode("latin-1")
    )
    (clone / "nameless.json").write_text('{"axes": {}, "inputs": {}, "reference": ""}')
    (clone / "odd.json").write_text('{"sources": [], "spec": 1, "definition": ["a", "b"]}')
    assert [(found.format, bool(found.why_not)) for found in Folder(clone).kernels()] == [
        (FLASHINFER, True),
        (BARE, False),
    ]


def test_a_kernel_that_is_tried_finds_the_packages_of_this_process(monkeypatch, tmp_path):
    packages, kernels = tmp_path / "packages", tmp_path / "kernels"
    packages.mkdir()
    kernels.mkdir()
    (packages / "half_again.py").write_text("def twice(x):\n    return x * 2 / 2\n")
    (kernels / "with_package.py").write_text(
        "import torch\nfrom half_again import twice\n\n\ndef swish(x):\n    return twice(x) * torch.sigmoid(x)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(packages))
    (found,) = Folder(kernels).kernels()
    answer = attempt(found, find_device("cpu"), 60, never)
    assert answer["right"], answer


def test_a_folder_without_a_kernel_is_no_success(tmp_path, capsys):
    assert main(["try", str(tmp_path), "--device", "cpu"]) == 2
    assert f"there is no kernel in {tmp_path}; the formats are @kernel, " in capsys.readouterr().err


def test_a_command_that_is_killed_leaves_no_kernel_running(tmp_path):
    (tmp_path / "softmax.py").write_text("import time\ntime.sleep(600)\n\ndef softmax(x):\n    return x.softmax(-1)\n")
    command = [sys.executable, "-m", "kernels", "try", str(tmp_path), "--device", "cpu"]
    trying = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not (mine := descendants(trying.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert mine
    time.sleep(0.5)  # it has begun, and asked to end with its parent
    trying.kill()
    trying.wait()
    deadline = time.monotonic() + 10
    while any(identify(pid) for pid in mine) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(identify(pid) for pid in mine)


def test_inputs_that_need_a_gpu_are_said_to():
    said = _sentence(RuntimeError("Cannot get CUDA generator without ATen_cuda library. PyTorch splits its"), "run")
    assert said == "needs a CUDA device" or find_device(None).kind == "cuda"

"""A kernel with its problem in `try`: outputs of every kind, and a problem at fault, which is not the kernel's."""

import json

import pytest
import torch

from kernels.cli.trying import _line, attempt
from kernels.formats.recognise import Folder
from kernels.host.device import find_device
from kernels.inprocess.pairs import Pair
from kernels.inprocess.trials import Wrong, _problem, judged

PAIR = """import collections

import torch

Pair = collections.namedtuple("Pair", "y, mean")


class Model(torch.nn.Module):
    def forward(self, x):
        return {right}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return {mine}


def get_inputs():
    return [{given}]


def get_init_inputs():
    return []
"""


def tried(folder):
    """(word at the begin of its line, why)"""
    (found,) = Folder(folder).kernels()
    answer = attempt(found, find_device("cpu"), 100, lambda: False)
    return _line(folder, found, answer).partition("  ")[0], answer["why"]


def of_models(folder, right, mine="", given="torch.randn(16, 128)"):
    (folder / "pair.py").write_text(PAIR.format(right=right, mine=mine or right, given=given))
    return tried(folder)


@pytest.mark.parametrize(
    "right, wrong",
    [
        ("torch.topk(x, 8)", "torch.topk(x, 8, largest=False)"),
        ("Pair(x.relu(), x.mean(-1))", "Pair(x.relu(), x.sum(-1))"),
        ("(x.relu(),)", "(x,)"),
        ("[x.relu()]", "x"),
        ("(x.relu(), x.mean(-1))", "[x.relu(), x.sum(-1)]"),
    ],
)
def test_outputs_in_a_tuple_or_list_of_any_class_are_judged(tmp_path, right, wrong):
    """The reference "returned a topk, not a torch.Tensor or several"."""
    assert of_models(tmp_path, right) == ("right", "")
    assert of_models(tmp_path, right, wrong)[0] == "wrong"


@pytest.mark.parametrize(
    "right, why",
    [
        ("{'y': x}", "the reference returned a dict, not a torch.Tensor or several"),
        ("float(x.sum())", "the reference returned a float, not a torch.Tensor or several"),
        ("(x, (x, x))", "output 2 of 2: the reference returned a tuple, not a torch.Tensor or several"),
        ("x.to(torch.float8_e4m3fn)", "the reference returned 2048 elements of torch.float8_e4m3fn: "),
        ("torch.fft.rfft(x)", "the reference returned 1040 elements of torch.complex64: "),
        ("(x, x[:0])", "output 2 of 2: the reference returned 0 elements of torch.float32: "),
        ("x.double().cumsum(-1)", "the reference returns torch.float64: outputs of float16, bfloat16, float32 are"),
        ("x @ x", "the reference raises RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
    ],
)
def test_a_reference_that_cannot_be_judged_is_no_fault_of_the_kernel(tmp_path, right, why):
    """It was "not loaded ... does not load: TypeError"."""
    word, said = of_models(tmp_path, right)
    assert (word, said.removeprefix("its problem cannot be used here: ")[: len(why)]) == ("not judged", why)


@pytest.mark.parametrize(
    "given, why", [("[torch.randn(4), torch.randn(4)]", "input 1 is a list"), ("", "there are none")]
)
def test_inputs_without_a_tensor_are_named(tmp_path, given, why):
    word, said = of_models(tmp_path, "torch.cat(x)", given=given)
    assert (word, said) == ("not judged", f"its problem cannot be used here: its inputs hold no tensor: {why}")


@pytest.mark.parametrize(
    "mine, why",
    [
        ("OUT.copy_(x.softmax(-1))", "calls share one output: a later call overwrote or returned an earlier one"),
        (
            "KEPT.setdefault(0, x.softmax(-1))",
            "calls share one output: a later call overwrote or returned an earlier one",
        ),
        ("torch.empty_like(x)", "16384 elements of the output were never written"),
        ("torch.cat([x[:-1].softmax(-1), torch.empty_like(x[:1])])", "256 elements of the output were never written"),
        ("x.softmax(-1)", ""),
        ("x.copy_(x.softmax(-1))", "the kernel changed its inputs"),
    ],
)
def test_a_second_call_leaves_the_first_output_alone_and_new_memory_holds_no_answer(tmp_path, mine, why):
    """It was called once, and the right answer for the same inputs had just been freed."""
    text = PAIR.format(right="x.softmax(-1)", mine=mine, given="torch.randn(64, 256)")
    (tmp_path / "pair.py").write_text(
        text.replace("class ModelNew", "OUT, KEPT = torch.empty(64, 256), {}\n\n\nclass ModelNew")
    )
    assert tried(tmp_path) == ("wrong" if why else "right", why)


@pytest.mark.parametrize(
    "right, mine, given, why",
    [
        ("(torch.manual_seed(3), x + torch.randn_like(x))[1]", "", "torch.randn(8, 64)",
         "not judged: TypeError: it draws random numbers like its inputs, which are others in float64"),
        ("x.view(torch.int32) + x", "", "torch.randn(8, 64)", "not judged: TypeError: it reads the bits of its numbers"),
        ("x.relu()", "x", "torch.randn(8, 64)", "wrong: (from the reference's own error)"),
        ("x.relu()", "", "torch.frombuffer(bytearray(__import__('os').urandom(64)), dtype=torch.uint8)",
         "not judged: get_inputs is not deterministic: inputs[0] differs for the same seed: draw with torch, or from a gen"),
    ],
)  # fmt: skip
def test_what_is_said_is_about_the_files_of_the_problem(tmp_path, right, mine, given, why):
    word, said = of_models(tmp_path, right, mine, given)
    expected, _, what = why.partition(": ")
    assert word == expected and what in said, said


WEIGHTS = """

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(64, 32), torch.nn.Linear(32, 16)

    def forward(self, x):
        return self.b(self.a(x).relu())


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.{second}, self.{first} = torch.nn.Linear(32, 16), torch.nn.Linear(64, 32)

    def forward(self, x):
        return self.{second}(self.{first}(x).relu())


def get_inputs():
    return [torch.randn(8, 64)]
"""


@pytest.mark.parametrize("first, second", [("a", "b"), ("first", "second")])
def test_weights_whose_names_do_not_fit_are_named(tmp_path, first, second):
    """It said only how large the error is."""
    (tmp_path / "pair.py").write_text("import torch\n" + WEIGHTS.format(first=first, second=second))
    word, why = tried(tmp_path)
    assert word == ("right" if first == "a" else "wrong")
    named = "its weights are others: Model has no second.weight, second.bias, first.weight, first.bias of this shape"
    assert why == "" if first == "a" else named in why


def test_a_file_that_ends_the_process_is_said_to(tmp_path):
    text = PAIR.format(right="x", mine="x", given="torch.randn(4)")
    (tmp_path / "pair.py").write_text(text.replace("\n\n\n", "\nraise SystemExit(0)\n", 1))
    assert tried(tmp_path) == ("not loaded", "does not load: it ends its process: SystemExit: 0")


# --- GPU MODE ---------------------------------------------------------------------------------------------------------

REFERENCE = """import torch


def generate_input(m, n, seed):
    return torch.randn(m, n, generator=torch.Generator().manual_seed(seed))


def ref_kernel(data):
    return data.relu()


def check_implementation(data, output):
    return torch.equal(output, ref_kernel(data)), "it differs"
"""


@pytest.mark.parametrize(
    "task, word, why",
    [
        ("tests: [\n  - {m: 1", "not judged", "task.yml cannot be read: it needs benchmarks"),
        ("", "not judged", "task.yml cannot be read: it needs benchmarks"),
        ("tests: abc", "not judged", "each test in task.yml must give its sizes by name, not 'a'"),
        ("lang: py", "not judged", "its task.yml lists no tests"),
        ("tests:\n  - {m: 64, n: 100}", "right", ""),
    ],
)
def test_a_task_that_cannot_be_read_is_no_fault_of_the_kernel(tmp_path, task, word, why):
    """It was "not loaded ... AttributeError: 'NoneType' object has no attribute 'get'". A seed may be left out."""
    texts = {"task.yml": task, "reference.py": REFERENCE}
    for name, text in (texts | {"submission.py": "def custom_kernel(data):\n    return data.relu()\n"}).items():
        (tmp_path / name).write_text(text)
    found, said = tried(tmp_path)
    assert found == word and said.removeprefix("its problem cannot be used here: ").startswith(why), said


# --- flashinfer -------------------------------------------------------------------------------------------------------

TWICE = {
    "name": "twice",
    "axes": {"b": {"type": "var"}, "d": {"type": "const", "value": 64}},
    "inputs": {"x": {"shape": ["b", "d"], "dtype": "bfloat16"}},
    "outputs": {"y": {"shape": ["b", "d"], "dtype": "bfloat16"}},
    "reference": "import torch\n\n\ndef run(x):\n    return x * 2\n",
}
SOURCES = [{"path": "main.py", "content": "def run(x):\n    return x * 2\n"}]
Y = {"y": {"shape": ["b", "d"], "dtype": "float32"}}


@pytest.mark.parametrize(
    "definition, sources, word, why",
    [
        ({}, SOURCES, "right", ""),
        ({"outputs": Y}, SOURCES, "not judged", "the definition says float32, its reference returns bfloat16"),
        ({"reference": "def run(x:\n  return"}, SOURCES, "not judged",
         "the reference of twice.json is not Python: '(' was never closed, in its line 1"),
        ({"axes": TWICE["axes"] | {"b": 16}}, SOURCES, "not judged",
         'twice.json cannot be read as a definition: ValueError: the axis b must be a mapping, such as {"type": "var"}'),
        ({"inputs": {"x": {"shape": ["b", "d"], "dtype": "bf16"}}}, SOURCES, "not judged",
         "twice.json cannot be read as a definition: ValueError: the dtype bf16 of x is unknown"),
        ({}, [{"content": "x"}], "not loaded",
         "mine.json cannot be read as a solution: its sources must be a list, each with its path"),
        ({}, "main.py", "not loaded", "mine.json cannot be read as a solution: its sources must be a list"),
        ({}, [SOURCES[0] | {"content": "def run(x:\n"}], "not loaded", "does not load: SyntaxError: "),
    ],
)  # fmt: skip
def test_a_definition_or_a_solution_that_cannot_be_used_says_why(tmp_path, definition, sources, word, why):
    solution = {"name": "mine", "definition": "twice", "sources": sources}
    solution["spec"] = {"languages": ["pytorch"], "entry_point": "main.py::run", "destination_passing_style": False}
    (tmp_path / "twice.json").write_text(json.dumps(TWICE | definition))
    (tmp_path / "mine.json").write_text(json.dumps(solution))
    found, said = tried(tmp_path)
    assert found == word and said.removeprefix("its problem cannot be used here: ").startswith(why), said


def test_one_wrong_element_of_each_seed_is_found_over_all_seeds():
    """Of 256 choices between near ties rounding may decide one; the last one was wrong each time."""
    seen = []

    def last_is_zero(x, w):
        out = (x @ w).argmax(-1)
        out[-1] = 0
        return out

    def give(seed):
        torch.manual_seed(seed)
        return [torch.randn(256, 64).bfloat16(), torch.randn(64, 300).bfloat16()]

    pair = Pair("mine", last_is_zero, lambda x, w: (x @ w).argmax(-1), lambda x, w: (x @ w).argmax(-1), give)
    with torch.no_grad():
        problem = _problem(pair, "cpu")
        with pytest.raises(Wrong):
            for seed in (11, 12, 13):
                judged(problem, last_is_zero, "cpu", seed, seen)
        known = []
        for seed in (11, 12, 13):
            judged(problem, lambda x, w: (x.float() @ w.float()).bfloat16().argmax(-1), "cpu", seed, known)

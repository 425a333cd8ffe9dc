"""Problems of GPU MODE with their kernels: every benchmark is measured, tests and the problem's own check judge."""

import json
import re
from itertools import pairwise

import pytest
from bringing import (
    config_of,
    every_event,
    gpu_mode,
    judged,
    measured,
    name_of,
    session_of,
    submissions_of,
)

from kernels.analysis.correctness import judge
from kernels.contract.arm_result import Status
from kernels.formats.bringing import cases_of, pair_in
from kernels.formats.cases import cases
from kernels.submission import Unreadable, kernel_of
from kernels.workload import Workload

SLOW = pytest.mark.thorough(
    "kernels of other formats, each in processes of its own: `make test` has a measured KernelBench pair"
)


@SLOW
@pytest.mark.parametrize(
    ("problem", "solution", "right"),
    [("matmul", "submission.py", True), ("prefixsum", "submission.py", True), ("grayscale", "submission.py", True),
     ("histogram", "solutions/scatter.py", True), ("histogram", "solutions/wrong.py", False)],
)  # fmt: skip
def test_kernels_of_gpu_mode_are_right_or_wrong(problem, solution, right):
    assert judged(*submissions_of(gpu_mode(problem, solution)))["correct"] is right


@SLOW
def test_a_kernel_of_gpu_mode_is_measured_on_the_last_benchmark():
    problem, kernel = submissions_of(gpu_mode("matmul", "submission.py"))
    assert [*problem.files] == ["reference.py", "task.py", "utils.py"]
    assert [*kernel.files] == ["submission.py", "task.py", "utils.py"]
    assert "{'m': 64, 'n': 32, 'k': 48, 'seed': 5}" in problem.files["reference.py"]
    reference, mine = measured(problem, kernel).results
    assert (reference.kernel, mine.kernel) == (name_of(problem), name_of(kernel))
    assert (reference.status, mine.status) == (Status.OK, Status.OK), (reference.why, mine.why)


ROWS = """import torch


def generate_input(rows, cols, seed):
    gen = torch.Generator().manual_seed(seed)
    return torch.randn(rows, cols, generator=gen), 0.5


def ref_kernel(data):
    x, by = data
    return x.sum(-1) * by


def check_implementation(data, output):
    right = ref_kernel(data)
    bad = int((~torch.isclose(output, right, rtol=1e-3, atol=1e-3)).sum())
    return not bad, f"{bad} rows differ" if bad else ""
"""
ROWS_TASK = """benchmarks:
  - {rows: 64, cols: 32, seed: 1}
  - {rows: 64, cols: 32, seed: 2}
  - {rows: 96, cols: 48, seed: 1}
tests:
  - {rows: 96, cols: 48, seed: 9}
  - {rows: 5, cols: 7, seed: 9}
  - {rows: 33, cols: 1, seed: 9}
"""
ROW_SUM = "def custom_kernel(data):\n    x, by = data\n    return (x * by).sum(-1)\n"


def rows(kernel=ROW_SUM, reference=ROWS, task=ROWS_TASK):
    return submissions_of({"reference.py": reference, "task.yml": task, "mine.py": kernel})


def test_every_benchmark_is_a_case_and_every_other_test_is_checked():
    problem, kernel = rows()
    assert cases_of(problem.files) == ["rows=64 cols=32", "rows=96 cols=48"]
    info = kernel_of(problem.files)
    assert info.limits == {"case": ("rows=64 cols=32", "rows=96 cols=48", "tests")}
    assert info.doc == "ref_kernel of GPU MODE, on 2 benchmarks of its task.yml."
    config = config_of(problem, kernel)
    assert [one.label for one in config.workloads] == [
        f"problem fp32 {name_of(problem)} rows={rows} cols={cols}" for rows, cols in ((64, 32), (96, 48))
    ]
    assert config.baseline == name_of(problem)


def test_a_problem_of_one_benchmark_keeps_its_version_and_the_key_of_its_workload():
    """Both were stored before a problem had cases."""
    problem, kernel = submissions_of(gpu_mode("matmul", "submission.py"))
    assert name_of(problem) == "matmul@69453b3361" and cases_of(problem.files) == [""]
    assert config_of(problem, kernel).workloads[0].key == "4f23a0cd621888cc"


def test_of_many_benchmarks_the_last_twelve_are_cases_and_the_others_are_named():
    sizes = [{"n": n, "seed": 1} for n in range(1, 21)] + [{"n": [1, 2]}, {"n": 99}]
    problem, _ = rows(task=json.dumps({"benchmarks": sizes}))
    assert cases_of(problem.files) == [f"n={n}" for n in (*range(10, 21), 99)]
    said = "on 12 benchmarks of its task.yml. Left out: benchmark 21, n=1, n=2, n=3, n=4, n=5 and 4 more."
    assert kernel_of(problem.files).doc.endswith(said)


def test_names_of_cases_have_plain_characters_and_are_different():
    found = cases([({"of": "a/b'\n"}, 1), ({"of": "a.b"}, 2), ({"of": "a/b'\n"}, 3), ({"seed": 4}, 4)])
    assert found.chosen == {"of=a_b__": 1, "of=a.b": 2, "of=a_b__ (2)": 3, "seed=4": 4}
    for name in found.chosen:
        assert Workload(operation="problem", sizes={"problem": "a@0123456789", "case": name}).sizes["case"] == name


@SLOW
def test_a_kernel_of_gpu_mode_is_measured_on_every_benchmark():
    problem, kernel = rows()
    events = every_event(problem, kernel)
    assert [one.workload.sizes["case"] for one in events] == ["rows=64 cols=32", "rows=96 cols=48"]
    for event in events:
        assert [one.status for one in event.results] == [Status.OK, Status.OK], [one.why for one in event.results]
        for one in event.results:
            assert one.correctness.own_check == "right"
            assert one.correctness.edges == {"rows=5 cols=7": "right", "rows=33 cols=1": "right"}


@SLOW
@pytest.mark.parametrize(
    ("kernel", "why", "edges"),
    [
        (ROW_SUM.replace("(x", "(x * (1 + (x.shape[1] == 7))"),
         "the problem's own check says of its test rows=5 cols=7: 5 rows differ",
         {"rows=5 cols=7": "wrong: ", "rows=33 cols=1": "right"}),
        (ROW_SUM.replace("x, by", "assert len(data[0]) > 8, 'few'\n    x, by"),
         "on the tests of its problem: AssertionError: few", None),
    ],
)  # fmt: skip
def test_a_kernel_that_is_wrong_on_a_test_is_wrong_on_every_workload(kernel, why, edges):
    events = every_event(*rows(kernel), max_rounds=2, min_rounds=2)
    assert len(events) == 2
    for event in events:
        mine = event.results[-1]
        assert mine.why.startswith(why) and mine.status in (Status.INCORRECT, Status.FAILED), (mine.status, mine.why)
        for name, word in (edges or {}).items():
            assert mine.correctness.edges[name].startswith(word)


ONLY_SIGN = "    return bool((output >= 0).all()), 'a row is negative'\n"


@SLOW
@pytest.mark.parametrize(
    ("check", "correct", "said", "why"),
    [
        ("    return output.shape == (len(data[0]),)\n", True, "right", ""),
        ("    return ''\n", True, "right", ""),
        ("    return False if output.requires_grad else (True, 'unused')\n", True, "right", ""),
        ("    return 3 / 0\n", True, "not called: of the reference's own output it says: ZeroDivisionError", ""),
        (ONLY_SIGN, True, "not called: of the reference's own output it says: a row is negative", ""),
        ("    same = torch.equal(output, ref_kernel(data))\n    return same, f'{output.dtype} is not bit by bit'\n", False,
         "wrong: torch.float32 is not bit by bit", "the problem's own check says: torch.float32 is not bit by bit"),
        ("    return {'passed': torch.equal(output, ref_kernel(data))}\n", True, "not called: its check answers with a dict", ""),
        ("    return [] if torch.equal(output, ref_kernel(data)) else ['not bit by bit']\n", False, "wrong: not bit by bit",
         "the problem's own check says: not bit by bit"),
        ("    assert torch.equal(output, ref_kernel(data))\n", False, "wrong: AssertionError", "the problem's own check says"),
    ],
)  # fmt: skip
def test_the_check_of_a_problem_judges_beside_ours(check, correct, said, why):
    """The kernel rounds otherwise than the reference: right by our comparison, and not bit by bit."""
    before = ROWS.partition("    right = ref_kernel")[0]
    event = measured(*rows("def custom_kernel(data):\n    x, by = data\n    return (x.double().sum(-1) * by).float()\n",
                           before + check, ROWS_TASK.partition("  - {rows: 96")[0]), max_rounds=2, min_rounds=2)  # fmt: skip
    mine = event.results[-1]
    assert mine.correctness.correct is correct and mine.correctness.own_check.startswith(said), mine.correctness
    assert mine.why.startswith(why)


@SLOW
def test_what_a_check_allows_and_ours_does_not_is_wrong():
    problem, kernel = rows(ROW_SUM.replace("sum(-1)", "sum(-1) + 0.0004"))
    with session_of(problem, kernel) as session:
        slot = session.start(name_of(kernel))
        reading = session.verify(name_of(kernel), 60.0, 7)[0]
        assert slot.refused == "" and judge([reading], "float32", slot.flags)["correct"] is False


@SLOW
def test_a_kernel_that_is_wrong_on_one_benchmark_is_right_on_the_others():
    right, wrong = every_event(
        *rows(ROW_SUM.replace("(x", "(x * (1 + (x.shape[1] == 48))")), max_rounds=2, min_rounds=2
    )
    assert right.results[-1].status == Status.OK and right.results[-1].correctness.own_check == "right"
    assert wrong.results[-1].status == Status.INCORRECT
    assert wrong.results[-1].why.startswith("the problem's own check says: 96 rows differ (")


@SLOW
def test_tests_that_cannot_be_made_are_no_fault_of_a_kernel():
    broken = ROWS.replace("    gen =", "    assert cols != 7, 'no sevens'\n    gen =")
    for event in every_event(*rows(reference=broken), max_rounds=2, min_rounds=2):
        assert [one.status for one in event.results] == [Status.OK, Status.OK]
        why = "the tests of its problem were not checked: the problem's own process: AssertionError: no sevens"
        assert any(note.startswith(why) for note in event.notes), event.notes


@SLOW
def test_data_may_be_a_tuple_with_numbers_and_must_be_known():
    generate = "import torch\ndef generate_input(size, seed):\n    return {}\n"
    generate += "def ref_kernel(data):\n    return data[0] * data[1]\n"
    new = "def custom_kernel(data):\n    x, by = data\n    return x * by\n"

    def files(data):
        return {
            "reference.py": generate.format(data),
            "task.yml": "benchmarks:\n  - {size: 64, seed: 1}\n",
            "mine.py": new,
        }

    assert judged(*submissions_of(files("(torch.randn(size, size), 3.0)")))["correct"] is True
    for data, why in (
        ("{'x': torch.randn(size)}", "its data is a dict"),
        ("(torch.randn(size), [1, 2])", "input 2 is a list"),
    ):
        with session_of(*submissions_of(files(data))) as session:
            assert why in session.why_no_problem


@pytest.mark.parametrize(
    ("task", "why"),
    [
        ("lang: py", "the last benchmark in task.yml must give a number or a text for each size"),
        ("[1, 2]", "task.yml cannot be read"),
        ("a: [", "task.yml cannot be read"),
        ("benchmarks:\n  - {size: [1, 2]}", "must give a number or a text for each size"),
        ("benchmarks:\n  - {'size) + (0': 1}", "must give a number or a text for each size"),
        ("#" * 100_001, "the limit is 100,000"),
        ("[" * 50_000, "task.yml cannot be read"),
        ("a: &a [x, x, x]\n" + "".join(f"{n}: &{n} [*{p}, *{p}, *{p}]\n" for p, n in pairwise("abcdefghijklmno"))
         + "benchmarks: [{size: *o}]", "must give a number or a text for each size"),
    ],
)  # fmt: skip
def test_a_task_that_cannot_be_read_says_why(task, why):
    with pytest.raises(Unreadable, match=re.escape(why)):
        pair_in(gpu_mode("matmul", "submission.py", **{"task.yml": task}))


def test_a_file_that_is_listed_and_imported_must_be_there():
    """It was stored, and failed when it was measured: No module named 'utils'."""
    files = {
        "reference.py": "import torch\nfrom utils import twice\ndef generate_input(size, seed):\n"
        "    return torch.randn(size)\ndef ref_kernel(data):\n    return twice(data)\n",
        "mine.py": "def custom_kernel(data):\n    return data * 2\n",
        "task.yml": "files:\n  - {name: utils.py, source: ../utils.py}\n  - {name: eval.py, source: ../eval.py}\n"
        "benchmarks:\n  - {size: 64, seed: 1}\n",
    }
    with pytest.raises(Unreadable, match=re.escape("task.yml lists utils.py, which is imported: add it")):
        pair_in(files)
    assert pair_in(files | {"utils.py": "def twice(x):\n    return x * 2\n"}).kernel
    files["task.yml"] = files["task.yml"].replace("files:\n", "files:\n  - {name: deep.py, source: deep.py}\n")
    inside = {f"twice/{name}": text for name, text in (files | {"utils.py": "from deep import twice\n"}).items()}
    with pytest.raises(Unreadable, match=re.escape("task.yml lists deep.py, which is imported: add it")):
        pair_in(inside)

"""Problems that came with their kernels: measured like any workload, and their code runs in no process that is trusted."""

import json
import re
from itertools import pairwise
from pathlib import PurePosixPath

import pytest
import torch
from bringing import (
    FOLDER,
    MODEL,
    NEW,
    config_of,
    every_event,
    files_of,
    judged,
    measured,
    name_of,
    session_of,
    submissions_of,
)

from kernels.analysis.correctness import judge
from kernels.analysis.verdicts import verdict
from kernels.catalog import operations
from kernels.contract.arm_result import Status, Verdict
from kernels.formats.adding import read
from kernels.formats.bringing import cases_of, dtype_of, pair_in
from kernels.formats.cases import cases
from kernels.formats.safetensors import text_of
from kernels.parent.child_process import CommandFailed
from kernels.parent.problem_session import ProblemFailed
from kernels.problems import flashinfer
from kernels.submission import Unreadable, kernel_of
from kernels.workload import Config, Workload

pytestmark = pytest.mark.timeout(180)
MORE = "more kernels of other formats, each in processes of its own: `make test` has a measured KernelBench pair"
SLOW = pytest.mark.thorough(MORE)


def pair(model=MODEL, new=NEW):
    return submissions_of({"1_linear.py": model, "1_linear_new.py": new})


def only(answer, inputs="torch.randn(8, 32)", new="", more=""):
    """A problem without weights in one file, whose Model and ModelNew return these."""
    body = f"import torch\n{more}\n"
    for name, value in (("Model", answer), ("ModelNew", new or answer)):
        body += f"class {name}(torch.nn.Module):\n    def forward(self, x, *more):\n        return {value}\n"
    return submissions_of({"2_only.py": body + f"def get_inputs():\n    return [{inputs}]\n"})


# --- measured ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def event():
    """A right kernel, a wrong one and a slow one for one problem."""
    problem, right = pair()
    wrong = pair(new=NEW.replace("relu(self.linear(x))", "relu(self.linear(x) + 0.01)"))[1]
    slow = pair(new=NEW.replace("return torch", "[self.linear(x) for _ in range(20)]\n        return torch"))[1]
    found = measured(problem, right, wrong, slow)
    return found, {name_of(one): result for one in (problem, right, wrong, slow) for result in found.results
                   if result.kernel == name_of(one)}  # fmt: skip


def test_kernels_for_one_problem_are_measured_beside_its_reference(event):
    measured, by_name = event
    reference, right, wrong, slow = by_name.values()
    assert measured.baseline == reference.kernel == measured.workload.problem.problem
    assert measured.workload.label == f"problem fp32 {reference.kernel}"
    assert (reference.status, right.status, slow.status) == (Status.OK,) * 3, [one.why for one in by_name.values()]
    assert right.correctness.correct and right.correctness.seeds == 2
    short = [one for one in (right, slow) if one.why.startswith(Verdict.TOO_SHORT)]  # where others are busy here
    assert all(one.speedup or one in short for one in (right, slow)), [one.why for one in (right, slow)]
    assert wrong.status == Status.INCORRECT and "largest error" in wrong.why and wrong.speedup is None
    assert short or (slow.speedup_low < 0.5 and slow.speedup < right.speedup)
    word = verdict(slow, measured)
    assert word in (Verdict.SLOWER, Verdict.UNDECIDED, Verdict.NEEDS_MORE, Verdict.TOO_SHORT)
    assert measured.isolated and measured.isolation.batches[right.kernel].checked


def test_nothing_is_said_of_work_that_nobody_knows(event):
    for one in event[1].values():
        assert (one.tflops, one.gb_per_s, one.limit_ms, one.limit_share) == (None,) * 4


@SLOW
def test_the_weights_are_those_of_the_problem_also_under_other_names_and_orders():
    moved = NEW.replace("self.linear = torch", "torch.rand(5)\n        self.linear = torch")
    for new, right in ((moved, True), (NEW.replace("linear =", "fc =").replace("self.linear(", "self.fc("), True),
                       (moved.replace("linear =", "fc =").replace("self.linear(", "self.fc("), False)):  # fmt: skip
        assert judged(*pair(new=new))["correct"] is right


@SLOW
def test_one_file_may_hold_both():
    assert judged(*submissions_of(files_of("6_wrong_bias.py")))["correct"] is False
    assert judged(*only("x.sin()"))["correct"] is True


@SLOW
def test_inputs_may_be_numbers_beside_tensors():
    right = only("x * more[0] + more[1]", "torch.randn(8, 32), 3, 0.5")
    assert judged(*right)["correct"] is True
    assert judged(*only("x * more[0]", "torch.randn(8, 32), 3, 0.5", new="x * 2"))["correct"] is False


@SLOW
def test_an_output_of_one_element_is_judged_by_several_seeds():
    found = judged(*only("x.square().mean()", new="(x * x).sum() / x.numel()"))
    assert found["correct"] is True and found["pooled"] == 8
    assert judged(*only("x.square().mean()", new="x.square().mean() * 1.01"))["correct"] is False


@SLOW
def test_what_does_not_lie_in_memory_as_it_is_says_so():
    assert "of the layout sparse_coo, not a dense one" in judged(*only("x.sin()", new="x.sin().to_sparse()"))["why"]
    with pytest.raises(CommandFailed, match=r"return its resolve_neg\(\)"):
        judged(*only("x.sin()", new="torch._neg_view(-x.sin())"))


@SLOW
def test_whole_numbers_must_be_the_same():
    assert judged(*only("x.argmax(-1)"))["correct"] is True
    assert "elements differ" in judged(*only("x.argmax(-1)", new="x.argmin(-1)"))["why"]


@SLOW
def test_sixteen_bits_are_judged_as_such():
    found = judged(*only("x @ x.T", "torch.randn(64, 64, dtype=torch.float16)", new="(x.float() @ x.float().T).half()"))
    assert found["correct"] is True and found["frobenius"] > 1e-5


@SLOW
def test_a_reference_that_has_no_higher_precision_gives_no_word_on_correctness():
    found = judged(*only("x.float() * 2", "torch.randn(8, 32)"))
    assert found["correct"] is None and not found["why"]


# --- a problem that is wrong, or hostile ------------------------------------------------------------------------------

LOOK = """
import os
def others():
    found = [p for p in os.listdir("/proc") if p.isdigit() and int(p) not in (os.getpid(), os.getppid())]
    reached = []
    for pid in (*found, str(os.getppid())):
        try:
            open(f"/proc/{pid}/mem", "r+b").close()
            reached.append(open(f"/proc/{pid}/cmdline").read())
        except OSError:
            pass
    return [one for one in reached if "trusted" in one or "pytest" in one]
"""


FORGE = """
import os
for fd in range(3, 1000):
    try:
        os.write(fd, b"{}\\n")
    except OSError:
        pass
"""


@SLOW
@pytest.mark.parametrize(
    ("made", "why"),
    [
        ({"answer": "x", "more": "raise RuntimeError('not today')"}, "not today"),
        ({"answer": "[x, 'text']"}, "returned a builtins.str, not a torch.Tensor"),
        ({"answer": "x", "inputs": "[torch.randn(3)]"}, "input 1 is a list"),
        ({"answer": "torch.ones(3)", "inputs": "5"}, "no tensor with elements"),
        ({"answer": "x / 0"}, "not finite on its own inputs"),
        ({"answer": "x.to(torch.complex64)"}, "returns torch.complex64"),
        ({"answer": "x[0, :1]", "inputs": "torch.ones(1).expand(1, 10**14)"}, "tried to allocate"),
        ({"answer": "x", "inputs": "torch.randn(torch.randint(1, 9, ()).item(), 50)"}, "same shapes and dtypes"),
        ({"answer": "x", "more": "import os; os._exit(3)"}, "exited with status 3"),
        ({"answer": "x", "more": FORGE},
         "other code than the instrument"),
        ({"answer": "x", "more": LOOK + "raise RuntimeError(f'reached {others()}')"}, r"reached []"),
    ],
)  # fmt: skip
def test_a_problem_that_cannot_be_measured_says_why(made, why):
    with session_of(*only(**made)) as session:
        if not session.why_no_problem:  # it shows when values are drawn again
            with pytest.raises(Exception) as failed:
                session.source.draw(5, 2)
                session.source.expect([0])
            session.why_no_problem = str(failed.value)
        assert why in session.why_no_problem
        assert session.trusted.alive


def test_what_a_problem_claims_is_refused_before_memory_is_taken_for_it():
    with session_of(*only("x")) as session:
        large = {"shape": [2**40], "dtype": "float32"}
        for claim, why in (
            (large, "of inputs and outputs; "),
            ({"shape": [1], "dtype": "load"}, "there is no dtype load"),
        ):
            described = {"arguments": [{"array": claim}], "outputs": [claim]}
            with pytest.raises(ProblemFailed, match=why):
                session.source.opened({"described": described})
        assert session.trusted.alive


@SLOW
def test_values_that_a_problem_claims_are_refused_if_they_are_not_there():
    with session_of(*only("x")) as session:
        session.source.draw(3, 1)
        good = session.source.cell.call("expect", index=0).plain[0].model_dump()
        lies = ({"address": 8}, {"shape": [4, 64], "strides": [64, 1]}, {"dtype": "int32"}, {"dtype": "manual_seed"},
                {"shape": [2**40, 32]})  # fmt: skip
        for claims in ([], [good, good], *([good | lie] for lie in lies)):
            assert session.trusted.call("expect", index=0, plain=claims, exact=[]).refused, claims
        assert not session.trusted.call("expect", index=0, plain=[good], exact=[]).refused


@SLOW
def test_a_failing_problem_fails_every_kernel_of_the_run_and_ends_it():
    found = measured(*only("x", more="print('said so')\nraise RuntimeError('not today')"))
    assert {one.status for one in found.results} == {Status.FAILED}
    assert all("the problem's own process: RuntimeError: not today" in one.why for one in found.results)
    assert all("said so" in one.log for one in found.results)


def test_no_code_of_a_problem_or_a_kernel_is_in_the_trusted_process():
    """Its memory does not hold a text of theirs; that of the problem's own process does."""
    mark = "zq7-" + "marker-of-foreign-code" * 3
    problem, kernel = pair(MODEL + f"\nMARK = '{mark}' + str(len('x'))\n", NEW + f"\nMARK = '{mark}' + str(len('y'))\n")
    with session_of(problem, kernel) as session:
        session.start(name_of(kernel))
        assert session.verify(name_of(kernel), 60.0, 7)[0]["frobenius"] < 1e-5
        trusted, own, cell = (
            holds(pid, mark.encode())
            for pid in (session.trusted.process.pid, session.source.cell.pid, session.slots[name_of(kernel)].cell.pid)
        )
    assert (trusted, own, cell) == (False, True, True)


def holds(pid, text):
    """Whether the memory of a process holds a text. Reads what it may write."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            found = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
            if found:
                begin, end = (int(one, 16) for one in found.groups())
                memory.seek(begin)
                while begin < end:
                    try:
                        chunk = memory.read(min(end - begin, 2**24))
                    except OSError:
                        break
                    if text in chunk:
                        return True
                    begin += len(chunk)
    return False


# --- GPU MODE ---------------------------------------------------------------------------------------------------------


def gpu_mode(problem, solution, **more):
    """The files of a problem of tests/formats/gpu_mode with one of its solutions, as somebody drops them: without folders."""
    root = FOLDER / "gpu_mode"
    names = ("reference.py", "task.py", "task.yml", solution)
    found = {PurePosixPath(name).name: (root / problem / name).read_text() for name in names}
    return found | {"utils.py": (root / "utils.py").read_text()} | more


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


def test_a_declared_kernel_beside_another_pair_is_refused():
    """Which of both is meant is not known. The stored files of a kernel, which have a declaration, are read as they are."""
    declared = '@kernel("gelu", backend="pytorch")\ndef mine(x, approximate):\n    return x\n'
    with pytest.raises(Unreadable, match="one file declares a kernel, and others are a kernel with its problem"):
        read({"1_linear.py": MODEL, "1_linear_new.py": NEW, "mine.py": declared})
    for stored in [*pair(), *submissions_of(files_of("6_wrong_bias.py"))]:
        assert read(stored.files).kernel == stored.files
    problem, kernel = (one.files for one in submissions_of(gpu_mode("matmul", "submission.py")))
    assert read(kernel).kernel == kernel and read(problem).kernel == problem


# --- flashinfer -------------------------------------------------------------------------------------------------------


def flashinfer_files(definition, solution):
    root = FOLDER / "flashinfer"
    names = (f"definitions/{definition}.json", f"solutions/{solution}.json")
    return {PurePosixPath(name).name: (root / name).read_text() for name in names}


@SLOW
@pytest.mark.parametrize(
    ("definition", "solution", "right"),
    [("scale_h128", "scale_python", True), ("scale_h128", "scale_wrong", False), ("rmsnorm_h256", "rmsnorm_into", True),
     ("gemm_n64_k128", "gemm_linear", True)],
)  # fmt: skip
def test_solutions_of_flashinfer_are_right_or_wrong(definition, solution, right):
    problem, kernel = submissions_of(flashinfer_files(definition, solution))
    assert (name_of(problem).partition("@")[0], name_of(kernel).partition("@")[0]) == (definition, solution)
    assert dtype_of(problem.files) == {"rms": "bfloat16", "gem": "float16", "sca": "float32"}[definition[:3]]
    assert judged(problem, kernel)["correct"] is right


@SLOW
def test_a_solution_of_flashinfer_is_measured():
    problem, kernel = submissions_of(flashinfer_files("rmsnorm_h256", "rmsnorm_into"))
    assert [*kernel.files] == ["helper.py", "main.py"]
    event = measured(problem, kernel)
    assert event.workload.label == f"problem bf16 {name_of(problem)}"
    assert [one.status for one in event.results] == [Status.OK, Status.OK], [one.why for one in event.results]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            ("scale_h128.json", '"x": {', '"index": {"shape": ["n"], "dtype": "int32"}, "x": {'),
            "scale_h128.json cannot be measured: its input index of int32 needs values: add the workloads of scale_h128",
        ),
        (("scale_h128.json", '"axes"', '"axis"'), "the definition scale_h128 is not below this folder"),
        (
            ("scale_h128.json", '"n",', '"nowhere",'),
            "scale_h128.json cannot be read as a definition: KeyError: 'nowhere'",
        ),
        (("scale_python.json", "main.py::run", "main.py::run) + (1"), "the entry_point in scale_python.json must be"),
        (("scale_python.json", "main.py::run", "other.py::run"), "the entry_point in scale_python.json must be"),
    ],
)
def test_a_definition_or_solution_that_cannot_be_read_says_why(change, why):
    name, old, new = change
    files = flashinfer_files("scale_h128", "scale_python")
    assert old in files[name]
    with pytest.raises(Unreadable, match=re.escape(why)):
        pair_in(files | {name: files[name].replace(old, new)})


GATHER = {
    "name": "gather_h16",
    "axes": {"n": {"type": "var"}, "rows": {"type": "var"}, "h": {"type": "const", "value": 16}},
    "inputs": {
        "table": {"shape": ["rows", "h"], "dtype": "float16"},
        "index": {"shape": ["n"], "dtype": "int64"},
        "shift": {"shape": ["n"], "dtype": "int32"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"out": {"shape": ["n", "h"], "dtype": "float16"}},
    "reference": "def run(table, index, shift, scale):\n    return table[index] * scale + shift[:, None]\n",
}
INTO = "def run(table, index, shift, scale, out):\n    out.copy_(shift[:, None] + scale * table[index])\n"
WRONG = "def run(table, index, shift, scale):\n    return table[index] + shift[:, None]\n"


def safetensors(**tensors):
    """The bytes of a file: (dtype as the format calls it, tensor) by key."""
    header, values = {"__metadata__": {"made": "here"}}, b""
    for key, (dtype, tensor) in tensors.items():
        raw = tensor.contiguous().view(torch.uint8).numpy().tobytes()
        header[key] = {
            "dtype": dtype,
            "shape": list(tensor.shape),
            "data_offsets": [len(values), len(values) + len(raw)],
        }
        values += raw
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + values


def workload(n, rows, path="blob/gather/a.safetensors", scale=0.5, **more):
    """A line of a .jsonl file."""
    inputs = {"table": {"type": "random"}, "scale": {"type": "scalar", "value": scale}}
    inputs["index"] = {"type": "safetensors", "path": path, "tensor_key": f"index_{n}"}
    said = {"axes": {"n": n, "rows": rows}, "inputs": inputs | more, "uuid": f"{n}-{rows}"}
    return json.dumps({"definition": "gather_h16", "workload": said, "solution": None, "evaluation": None})


def gather(*lines, content=INTO, **more):
    solution = {"name": "mine", "definition": "gather_h16", "sources": [{"path": "main.py", "content": content}]}
    solution["spec"] = {"language": "python", "entry_point": "main.py::run"}
    indices = safetensors(index_40=("I64", torch.arange(40) % 30), index_9=("I64", torch.zeros(9, dtype=torch.int64)))
    files = {
        "gather_h16.json": json.dumps(GATHER),
        "mine.json": json.dumps(solution),
        "a.safetensors": text_of(indices),
    }
    return files | {"gather.jsonl": "\n".join(lines)} | more


@SLOW
def test_workloads_give_lengths_of_axes_numbers_and_tensors():
    problem, kernel = submissions_of(gather(workload(9, 5), "", workload(40, 30)))
    assert cases_of(problem.files) == ["n=9 rows=5", "n=40 rows=30"]
    assert [*problem.files] == ["definition.py", "values_1.b64", "values_2.b64"] and [*kernel.files] == ["main.py"]
    small, large = every_event(problem, kernel)
    assert small.workload.label == f"problem fp16 {name_of(problem)} n=9 rows=5"
    for event in (small, large):
        assert [one.status for one in event.results] == [Status.OK, Status.OK], [one.why for one in event.results]
    assert measured(*submissions_of(gather(workload(9, 5), content=WRONG))).results[-1].status == Status.INCORRECT


@SLOW
def test_given_tensors_and_random_whole_numbers_are_what_a_kernel_gets():
    problem, _ = submissions_of(gather(workload(40, 30)))
    with session_of(problem, problem) as session:
        assert not session.why_no_problem
        described = session.source.described
    assert [one.array.dtype if one.array else one.value for one in described.arguments] == [
        "float16",
        "int64",
        "int32",
        0.5,
    ]
    drawn = flashinfer.Reference(print, [{"shape": [200], "dtype": name} for name in ("int8", "bool", "uint8")], "cpu")
    whole, truth, small = drawn.inputs(3)
    assert whole.unique().numel() > 50 and set(truth.tolist()) == {True, False} and small.dtype == torch.uint8


def test_a_definition_without_workloads_keeps_its_version():
    """It was stored before workloads were read."""
    problem, kernel = submissions_of(flashinfer_files("rmsnorm_h256", "rmsnorm_into"))
    assert (name_of(problem), name_of(kernel)) == ("rmsnorm_h256@3aeae1c2d4", "rmsnorm_into@81b185b5c1")


def test_workloads_whose_files_are_missing_are_left_out_and_named():
    problem, _ = submissions_of(gather(workload(9, 5), workload(8, 5, "b/other.safetensors")))
    said = kernel_of(problem.files).doc
    assert said.startswith(
        "The reference of a flashinfer definition, on 1 workload. Left out: one: its input index comes from"
    )
    assert "b/other.safetensors, which is not among the files" in said


@pytest.mark.parametrize(
    ("files", "why"),
    [
        (gather(workload(9, 5, "x/y.safetensors")), "no workload of gather_h16 can be measured: its input index comes from "
         "x/y.safetensors, which is not among the files"),
        (gather("{"), "gather.jsonl cannot be read: line 1 is no JSON"),
        (gather(workload(9, 5).replace("gather_h16", "other")), "gather.jsonl has no workload of the definition gather_h16"),
        (gather(workload(9, 0)), "a workload of gather_h16 gives no length of the axis rows"),
        (gather(workload(9, 5, scale="x")), "the value of the input scale of gather_h16 must be a finite number"),
        (gather(workload(9, 5, scale=1e999)), "must be a finite number"),
        (gather(workload(9, 5, table={"type": "file"})), "is file: known are random, scalar and safetensors"),
        (gather(workload(7, 5)), "a.safetensors holds no tensor index_7"),
        (gather(workload(40, 5).replace('"n": 40', '"n": 41')), "is int64 [41], and in a.safetensors int64 [40]"),
        (gather(workload(9, 5), **{"a.safetensors": text_of(b"\xff" * 20)}), "a.safetensors cannot be read as safetensors"),
        (gather(workload(9, 5), **{"a.safetensors": "no base64"}), "a.safetensors cannot be read as safetensors"),
        (gather(workload(9, 5), **{"a.safetensors": text_of(safetensors(index_9=("I64", torch.zeros(9)))[:-4])}),
         "its values are not those of int64 [9]"),
        (gather(workload(9, 5, **{key: {"type": "safetensors", "path": "a.safetensors"} for key in ("table", "shift")})),
         "all of its tensors have given values, so a kernel could remember its outputs"),
    ],
)  # fmt: skip
def test_a_workload_that_cannot_be_read_says_why(files, why):
    with pytest.raises(Unreadable, match=re.escape(why)):
        pair_in(files)


# --- recognised -------------------------------------------------------------------------------------------------------


def test_a_pair_is_two_submissions_and_the_kernel_says_which_problem_it_is_for():
    problem, kernel = pair()
    other = pair(new=NEW + "# another\n")
    assert other[0] == problem and other[1] != kernel
    info = kernel_of(kernel.files)
    assert (info.operation, info.name, info.limits) == ("problem", "1_linear_new", {"problem": (name_of(problem),)})
    assert [*problem.files] == ["1_linear.py"] and [*kernel.files] == ["1_linear_new.py"]
    assert kernel.files["1_linear_new.py"].startswith(NEW)


def test_a_kernel_that_imports_its_problem_has_it_with_its_files():
    new = NEW.replace("import torch\n", "import torch\nfrom reference import Model as Right\n")
    pair = pair_in({"reference.py": MODEL, "mine.py": new, "helper.py": "X = 1\n"})
    assert [*pair.kernel] == ["helper.py", "mine.py", "reference.py"] and [*pair.problem] == ["reference.py"]
    assert pair.kernel["reference.py"] == MODEL


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"mine.py": NEW}, "there is no file with Model and get_inputs that it replaces; submit its problem with it"),
        ({"only.py": MODEL}, "only.py is a problem without a kernel: add the file with ModelNew"),
        ({"a.py": MODEL, "b.py": NEW, "c.py": NEW}, "b.py and c.py are kernels for problems"),
        (
            {"a.py": "def custom_kernel(data):\n    return data\n"},
            "a.py is a kernel of GPU MODE: there is no reference.py",
        ),
    ],
)
def test_what_is_missing_is_said_in_a_sentence(files, why):
    with pytest.raises(Unreadable, match=re.escape(why)):
        pair_in(files)


def test_a_problem_is_in_no_list_of_operations_and_is_the_baseline_of_its_config():
    assert "problem" not in operations()
    one = {"operation": "problem", "dtype": "float32", "sizes": {"problem": "a@0123456789"}}
    how = {"name": "x", "operation": "problem", "kernels": ["b@0123456789"], "protocol": {"isolated": True}}
    config = Config(**how, workloads=[one])
    assert (config.baseline, config.kernels) == ("a@0123456789", ["a@0123456789", "b@0123456789"])
    with pytest.raises(ValueError, match="has a config of its own"):
        Config(**how, workloads=[one, one | {"sizes": {"problem": "b@0123456789"}}])
    with pytest.raises(ValueError, match="has a config of its own"):
        Config(name="x", operations={"problem": {"kernels": [], "workloads": [{"problem": "a@0123456789"}]}})

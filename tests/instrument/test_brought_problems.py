"""Problems that came with their kernels: measured like any workload, and their code runs in no process that is trusted."""

import re

import pytest
from bringing import (
    MODEL,
    NEW,
    SLOW,
    files_of,
    gpu_mode,
    judged,
    measured,
    name_of,
    only,
    session_of,
    submissions_of,
)

from kernels.analysis.verdicts import verdict
from kernels.catalog import operations
from kernels.contract.arm_result import Status, Verdict
from kernels.formats.adding import read
from kernels.formats.bringing import pair_in
from kernels.parent.child_process import CommandFailed
from kernels.parent.problem_session import ProblemFailed
from kernels.submission import Unreadable, kernel_of
from kernels.workload import Config


def pair(model=MODEL, new=NEW):
    return submissions_of({"1_linear.py": model, "1_linear_new.py": new})


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
def test_outputs_of_a_call_may_be_views_of_one_buffer():
    found = judged(*only("tuple(p.contiguous() for p in (x * 0.5).chunk(2, -1))", new="(x * 0.5).chunk(2, -1)"))
    assert found["correct"] is True, found["why"]
    assert judged(*only("(x * 2, x[:, -1] * 2)", new="(lambda y: (y, y[:, -1]))(x * 2)"))["correct"] is True


@SLOW
def test_sixteen_bits_are_judged_as_such():
    found = judged(*only("x @ x.T", "torch.randn(64, 64, dtype=torch.float16)", new="(x.float() @ x.float().T).half()"))
    assert found["correct"] is True and found["frobenius"] > 1e-5


@SLOW
def test_a_reference_that_has_no_higher_precision_gives_no_word_on_correctness():
    problem, kernel = only("x.view(torch.int32).float() * 2", "torch.randn(8, 32)")
    found = judged(problem, kernel)
    assert found["correct"] is None and not found["why"]
    with session_of(problem, kernel) as session:
        assert session.source.described.why_inexact == "TypeError: it reads the bits of its numbers"


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
        ({"answer": "x / 0"}, "nowhere finite on its own inputs"),
        ({"answer": "x.to(torch.complex64)"}, "returns torch.complex64"),
        ({"answer": "x[0, :1]", "inputs": "torch.ones(1).expand(1, 10**14)"}, "tried to allocate"),
        ({"answer": "x", "inputs": "torch.randn(torch.randint(1, 9, ()).item(), 50)"}, "same shapes and dtypes"),
        ({"answer": "x", "more": "import os; os._exit(3)"}, "exited with status 3"),
        ({"answer": "x", "more": FORGE},
         "code other than the instrument"),
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


def test_a_declared_kernel_beside_another_pair_is_refused():
    """Which of both is meant is not known. The stored files of a kernel, which have a declaration, are read as they are."""
    declared = '@kernel("gelu", backend="pytorch")\ndef mine(x, approximate):\n    return x\n'
    with pytest.raises(Unreadable, match="one file declares a kernel, others are a kernel with its problem"):
        read({"1_linear.py": MODEL, "1_linear_new.py": NEW, "mine.py": declared})
    for stored in [*pair(), *submissions_of(files_of("6_wrong_bias.py"))]:
        assert read(stored.files).kernel == stored.files
    problem, kernel = (one.files for one in submissions_of(gpu_mode("matmul", "submission.py")))
    assert read(kernel).kernel == kernel and read(problem).kernel == problem

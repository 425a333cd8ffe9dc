"""GPU MODE in `try`: what the answers of a problem's own check mean, and what is no fault of a kernel."""

from types import SimpleNamespace

import pytest
import torch

from kernels.cli.trying import _line, attempt
from kernels.formats.recognise import Folder
from kernels.host.device import find_device
from kernels.isolated.problem import Problem
from kernels.problems.gpu_mode import Unclear, said

REFERENCE = """import numpy as np
import torch


def generate_input(n, seed):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


def ref_kernel(data):
    return data.cumsum(0)


def check_implementation(data, output):
    same = torch.equal(output, ref_kernel(data))
    {check}
"""
TASK = "tests:\n  - {n: 64, seed: 1}\n  - {n: 33, seed: 2}\n"
RIGHT = "def custom_kernel(data):\n    return data.cumsum(0)\n"
WRONG = "def custom_kernel(data):\n    return data.cumsum(0) + 1\n"


def tried(tmp_path, kernel, check="return same", task=TASK):
    """(the answer, the word at the begin of its line)"""
    for file, text in {
        "reference.py": REFERENCE.format(check=check),
        "task.yml": task,
        "submission.py": kernel,
    }.items():
        (tmp_path / file).write_text(text)
    (found,) = Folder(tmp_path).kernels()
    answer = attempt(found, find_device("cpu"), 100, lambda: False)
    return answer, _line(tmp_path, found, answer).partition("  ")[0]


@pytest.mark.parametrize(
    "check, why",
    [
        ("return same", "wrong"),
        ("return int(same)", "wrong"),
        ("return np.bool_(same)", "wrong"),
        ("return torch.tensor(same)", "wrong"),
        ("return (same, 'it differs')", "it differs"),
        ("return [] if same else ['first', 'second']", "first; second"),
        ("return '' if same else 'it differs'", "it differs"),
        ("assert same, 'it differs\\n   by 1'", "AssertionError: it differs by 1"),
        ("torch.testing.assert_close(output, ref_kernel(data))", "AssertionError: Tensor-likes are not close!"),
        ("return same or 3 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_wrong_kernel_is_wrong_however_the_check_says_it(tmp_path, check, why):
    """An exception of the check was called one of the kernel, and other answers than False and a pair were "right"."""
    answer, word = tried(tmp_path, WRONG, check)
    assert (word, answer["ran"]) == ("wrong", True) and answer["why"].startswith(f"its own check says: {why}"), answer


@pytest.mark.parametrize(
    "answer",
    [True, 1, (True, ""), (1, None), [], "", " ", None, torch.tensor(True), torch.tensor(1), (torch.tensor(True), "")],
    ids=repr,
)
def test_answers_that_say_right(answer):
    assert said(answer) == ""


def test_all_that_follows_a_no_is_the_reason():
    assert said((False, 3, "row 3 differs")) == "3, row 3 differs"
    assert said((False, None)) == said((0,)) == "wrong"


def test_an_answer_about_a_kernel_that_cannot_be_read_refuses_it():
    """The check says True of right outputs, and a dict of wrong ones: these counted as right."""
    one = Problem.__new__(Problem)
    one.problem = SimpleNamespace(described=SimpleNamespace(parts=[], outputs=[0]), filling=lambda: list)
    one.sets, one.answer, one.packed = [SimpleNamespace(tensors=[torch.ones(2)])], [torch.zeros(2)], False
    one.reference = SimpleNamespace(why_wrong=lambda data, outs: said({"wrong": 1}))
    one.synchronize = lambda: None
    assert one.check(0).why.startswith("its check answers with a dict")


@pytest.mark.parametrize(
    "answer, kind",
    [
        ({"passed": False}, "a dict"),
        ((), "a tuple of 0"),
        (torch.ones(2), "a Tensor of shape (2,)"),
        (0.5, "a float"),
        ([True, ""], "a list of 2"),
        (({}, ""), "a tuple of 2"),
    ],
    ids=repr,
)
def test_an_answer_that_cannot_be_read_says_what_it_is(answer, kind):
    with pytest.raises(Unclear, match=r"^its check answers with ") as raised:
        said(answer)
    assert str(raised.value).startswith(f"its check answers with {kind}: ")


@pytest.mark.parametrize(
    "check, why",
    [
        ("return {'passed': same}", "its check answers with a dict"),
        ("return False, 'never'", "of the reference's own output its check says: never"),
        ("return unknown(output)", "of the reference's own output its check says: NameError"),
    ],
)
@pytest.mark.parametrize("kernel", [RIGHT, WRONG], ids=["right", "wrong"])
def test_a_check_that_cannot_judge_is_no_fault_of_the_kernel(tmp_path, check, why, kernel):
    answer, word = tried(tmp_path, kernel, check)
    assert (word, answer["right"]) == ("not judged", False) and why in answer["why"], answer

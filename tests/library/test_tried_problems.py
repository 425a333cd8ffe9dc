"""The problems on which `try` calls a kernel of an operation: what each must show, and what it says of mistakes there."""

from typing import get_args

import pytest

from kernels import catalog
from kernels.cli.trying import attempt
from kernels.formats.recognise import Folder
from kernels.host.device import find_device
from kernels.inprocess.chosen import MOST, Chosen, is_uneven, options_of

ATTENTION = """import torch
from kernels.catalog import Unsupported


def attention(q, k, v, causal, scale):
    {first}
    scores = (q.float() @ k.float().mT) * scale
    if {masks}:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:]).tril({diagonal}).bool(), float("-inf"))
    return (scores.softmax(-1) @ v.float()).to(q.dtype)
"""
GROUPED = "k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))"
ONLY_PLAIN = "if k.shape[1] != q.shape[1]: raise Unsupported('grouped queries')"
GEMM = """import torch


def gemm(a, b):
    {first}
    return torch.{call}(a[..., :k], b[..., :k, :])
"""


def tried(tmp_path, file, text):
    (tmp_path / file).write_text(text)
    (found,) = Folder(tmp_path).kernels()
    return attempt(found, find_device("cpu"), 100, lambda: False)


@pytest.mark.parametrize(
    "first, masks, diagonal, right",
    [
        (GROUPED, "causal", "0", True),
        (ONLY_PLAIN, "causal", "0", True),
        (GROUPED, "False", "0", False),
        (GROUPED, "True", "0", False),
        (GROUPED, "causal", "0 if q.shape[2] % 16 == 0 else 1", False),
        (ONLY_PLAIN, "causal", "0 if q.shape[2] % 16 == 0 else 1", False),
    ],
)
def test_attention_is_tried_with_and_without_its_mask_and_at_uneven_lengths(tmp_path, first, masks, diagonal, right):
    answer = tried(tmp_path, "attention.py", ATTENTION.format(first=first, masks=masks, diagonal=diagonal))
    assert (answer["ran"], answer["right"]) == (True, right), answer
    assert (answer["why"] == "") == right and (right or " S=63 " in answer["why"])


def test_a_product_that_drops_the_end_of_its_sum_is_wrong(tmp_path):
    answer = tried(tmp_path, "gemm.py", GEMM.format(first="k = a.shape[-1] // 16 * 16 or a.shape[-1]", call="matmul"))
    assert (answer["ran"], answer["right"]) == (True, False) and "K=127" in answer["why"]


def test_a_kernel_without_batches_is_right_and_the_line_says_so(tmp_path):
    answer = tried(tmp_path, "gemm.py", GEMM.format(first="k = a.shape[-1]", call="mm"))
    assert answer["right"] and answer["why"].startswith("does not run at fp16 B=2")


@pytest.mark.parametrize("operation", sorted(catalog.operations()))
def test_the_problems_have_each_value_of_each_option_and_every_size_uneven(operation):
    info = catalog.get_kernel(operation, catalog.get_operation(operation).baseline)
    problems = list(Chosen(info))
    assert 3 <= len(problems) <= MOST
    uneven = [problem for problem in problems if any(map(is_uneven, problem.model_dump().values()))]
    for name in options_of(problems[0]):
        values = get_args(type(problems[0]).model_fields[name].annotation) or (False, True)
        assert {getattr(problem, name) for problem in uneven} == set(values)
    changing = {name for name, size in problems[0].model_dump().items() if {type(size)} == {int}} & {
        *{"m", "n", "k", "rows", "cols", "vocab", "seq_len"}
    }
    assert any(all(is_uneven(getattr(problem, name)) for name in changing) for problem in problems)


def test_attention_with_keys_of_their_own_is_tried_on_more_keys_than_queries():
    problems = list(Chosen(catalog.get_kernel("attention", "sdpa")))
    assert {problem.causal for problem in problems if problem.kv_len and problem.seq_len > 1} == {False, True}
    assert any(problem.window for problem in problems)

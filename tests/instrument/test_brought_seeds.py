"""Inputs and references of problems that came with their kernels must change with the seed, and with nothing else."""

import pytest
import torch
from bringing import judged, session_of, submissions_of

from kernels.child.widening import why_not_repeatable
from kernels.inprocess.adhoc import Unfit
from kernels.inprocess.pairs import Pair
from kernels.inprocess.trials import _problem
from kernels.problems.kernelbench import Reference
from kernels.problems.seeding import seeded

REMEMBERS = """import torch
{imports}

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)


class ModelNew(torch.nn.Module):
    kept = None

    def forward(self, x):
        if self.kept is None:
            self.kept = torch.softmax(x, -1)
        return self.kept.clone()


def get_inputs():
    {seeds}
    return [torch.randn(16, 16)]
"""
TWICE = """import torch
import torch.nn.functional as F


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(16))

    def forward(self, x):
        {body}


class ModelNew(Model):
    pass


def get_inputs():
    return [torch.randn(64, 16{dtype})]
"""
AVERAGE = "self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)\n        return x - self.mean"
CACHE = "self.calls = getattr(self, 'calls', 0) + 1\n        self.mean.add_(x.mean(0))\n        return x + self.mean / self.calls"
"""With the same inputs it gives the same values again, with others in between it does not."""
STEPS = "self.mean.add_(1)\n        return x.sin()"
PROMOTED = "return F.rms_norm(x, (16,)) * torch.ones(16)"


def brought(text, **parts):
    return submissions_of({"3_pair.py": text.format(**parts)})


def test_a_kernel_that_keeps_its_answer_is_caught_where_get_inputs_sets_a_seed():
    """It had 62 times the speed of the reference: `torch.manual_seed(42)` gave the same inputs to every call."""
    assert judged(*brought(REMEMBERS, imports="", seeds="torch.manual_seed(42)"))["correct"] is False


@pytest.mark.parametrize("seeds", ["manual_seed(42)", "torch.default_generator.manual_seed(42)"])
def test_a_problem_whose_inputs_never_change_is_refused(seeds):
    with session_of(*brought(REMEMBERS, imports="from torch import manual_seed", seeds=seeds)) as session:
        assert "its inputs are the same for every seed" in session.why_no_problem


def test_try_does_not_judge_where_inputs_never_change():
    pair = Pair("mine", torch.sin, torch.sin, torch.sin, lambda seed: [torch.ones(8)])
    with pytest.raises(Unfit, match="its inputs are the same for every seed"):
        _problem(pair, "cpu")


def test_a_seed_decides_what_every_generator_draws():
    import random

    import numpy

    def drawn(seed):
        with seeded(seed):
            torch.manual_seed(1)
            random.seed(1)
            numpy.random.seed(1)
            return torch.rand(3).tolist(), random.random(), numpy.random.rand(3).tolist()

    assert drawn(5) == drawn(5) and all(a != b for a, b in zip(drawn(5), drawn(6), strict=True))
    assert torch.manual_seed(3).initial_seed() == 3
    with seeded(5):
        assert torch.seed() == torch.initial_seed()


@pytest.mark.parametrize("body", ["return F.dropout(x, 0.1)", AVERAGE, CACHE], ids=["random numbers", "state", "cache"])
def test_a_reference_that_changes_by_itself_judges_nobody(body):
    """The same code as the reference's was called wrong."""
    problem, kernel = brought(TWICE, body=body, dtype="")
    with session_of(problem, kernel) as session:
        assert session.source.described.why_inexact.startswith(
            "called again with the same inputs, it gives other values"
        )
    assert judged(problem, kernel)["correct"] is None


def test_state_that_no_output_depends_on_is_no_reason():
    assert judged(*brought(TWICE, body=STEPS, dtype=""))["correct"] is True


@pytest.mark.parametrize("body", [AVERAGE, STEPS])
def test_a_comparison_leaves_the_models_state_as_it_was(body):
    names = {}
    exec(TWICE.format(body=body, dtype=""), names)
    with torch.no_grad():
        right = Reference(names, 3, "cpu")
        x = torch.randn(64, 16)
        first, again = right.truth(x), right.truth(x)
    assert torch.equal(first, again) and not right.model.mean.any()


def test_a_reference_that_rounds_without_naming_a_dtype_does_not_accuse_its_own_copy():
    """Weights in float32 promote what was rounded to bfloat16: in float64 that is another function."""
    problem, kernel = brought(TWICE, body=PROMOTED, dtype=", dtype=torch.bfloat16")
    with session_of(problem, kernel) as session:
        assert "is 0.00" in session.source.described.why_inexact
    assert judged(problem, kernel)["correct"] is None


def test_sums_in_another_order_are_the_same_values():
    right = torch.randn(1000)
    assert why_not_repeatable([right], [right * (1 + 1e-7)]) == ""
    assert why_not_repeatable([right], [right * (1 + 1e-3)])
    assert why_not_repeatable([right > 0], [right > 0]) == "" != why_not_repeatable([right > 0], [right > 0.5])
    empty = torch.full((8,), -torch.inf)
    assert why_not_repeatable([empty], [empty]) == ""


def test_a_buffer_that_nothing_writes_into_may_be_expanded():
    names = {}
    model = TWICE.replace("torch.zeros(16)", "torch.ones(1).expand(16)").format(body="return x * self.mean", dtype="")
    exec(model, names)
    x = torch.randn(4, 16)
    with torch.no_grad():
        assert torch.equal(Reference(names, 3, "cpu").truth(x), x)

"""Input sets: every timed call gets new values, and what a kernel does to its inputs is seen."""

import pytest
import torch

from kernels.child.sets import Sets
from kernels.operations.base import Inputs


def draw(seed):
    generator = torch.Generator().manual_seed(seed)
    return Inputs((torch.randn(4, 6, generator=generator), torch.randn(6, 4, generator=generator).mT), {})


@pytest.fixture
def sets():
    made = Sets(draw)
    made.make([11, 12, 13])
    return made


def holds(inputs, seed):
    return all(torch.equal(a, b) for a, b in zip(inputs.tensors, draw(seed).tensors, strict=True))


def test_new_values_wait_until_they_are_written(sets):
    assert [holds(sets[i], 11 + i) for i in range(3)] == [True] * 3
    addresses = [t.data_ptr() for one in sets.inputs for t in one.tensors]
    sets.renew([21, 22])
    assert [holds(sets[i], 11 + i) for i in range(3)] == [True] * 3
    sets.write(range(3))
    assert [holds(sets[i], seed) for i, seed in enumerate((21, 22, 13))] == [True] * 3
    assert [sets.seed(i) for i in range(3)] == [21, 22, 13]
    assert [t.data_ptr() for one in sets.inputs for t in one.tensors] == addresses, "graphs hold them"
    assert sets[0].tensors[1].stride() == draw(1).tensors[1].stride(), "the layout is the operation's"
    assert sets.changes() == [], "the instrument's own writes"


CHANGES = {
    "strides": (lambda t: setattr(t, "data", t.mT.contiguous().mT), "input 1: strides (1, 4) instead of (6, 1)"),
    "address": (lambda t: setattr(t, "data", t.clone()), "input 1: address "),
    "shape": (lambda t: t.resize_(2, 12), "input 1: shape (2, 12) instead of (4, 6)"),
    "transposed in place": (lambda t: t.t_(), "input 1: shape (6, 4) instead of (4, 6)"),
    "dtype": (lambda t: setattr(t, "data", t.double()), "input 1: "),
    "written and put back": (lambda t: t.neg_().neg_(), "input 1: written"),
    "another class": (lambda t: setattr(t, "__class__", torch.nn.Parameter), "input 1: became a Parameter"),
}


@pytest.mark.parametrize("change, why", CHANGES.values(), ids=CHANGES.keys())
def test_what_a_kernel_does_to_its_inputs_is_seen_and_put_right(sets, change, why):
    change(sets[1].tensors[0])
    (found,) = sets.changes()
    assert found.startswith(why)
    assert sets.changes() == []
    assert holds(sets[1], 12)
    sets.renew([31, 32, 33])
    sets.write(range(3))
    assert holds(sets[1], 32)


def test_an_operator_that_only_says_that_it_may_write_has_written_nothing(sets):
    @torch.library.custom_op("benchsite_tests::may_write", mutates_args="unknown")
    def may_write(x: torch.Tensor, factor: float) -> torch.Tensor:
        if factor != 1.0:
            x.mul_(factor)
        return x.sum()

    may_write(sets[1].tensors[0], 1.0)
    sets.refill(2, 99)
    may_write(sets[2].tensors[1], 1.0)
    assert sets.changes() == []
    may_write(sets[1].tensors[0], 2.0)
    assert sets.changes() == ["input 1: written"]
    may_write(sets[2].tensors[1], -1.0)
    assert sets.changes() == ["input 2: written"]


def test_reading_views_and_copies_change_nothing(sets):
    q, k = sets[0].tensors
    (q + k.contiguous()).sum()
    q.view(24).clone().neg_()
    q.detach().requires_grad_()
    with torch.inference_mode():
        k.mT.exp()
    assert sets.changes() == []


def test_inputs_that_hold_nan_are_unchanged_until_somebody_writes_them():
    """A workload of somebody's own may have such values: its kernels were said to change their inputs."""

    def with_nan(seed):
        return Inputs((draw(seed).tensors[0].masked_fill(torch.eye(4, 6, dtype=torch.bool), torch.nan),), {})

    sets = Sets(with_nan)
    sets.make([11])
    sets.write([0])
    assert sets.is_unchanged(0)
    sets[0].tensors[0].view(-1)[1] = 9.0
    assert not sets.is_unchanged(0)

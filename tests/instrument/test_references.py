"""The references of a workload's checks: what they hold of a GPU's memory, and that nothing else changes by it."""

from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernels.catalog import Unsupported
from kernels.child import references
from kernels.child.poison import same
from kernels.child.reference import Reference, measure
from kernels.child.references import References
from kernels.operations.attention import compiled
from kernels.workload import Workload

SIZES = {"batch": 1, "heads": 2, "seq_len": 64, "head_dim": 32}
PROBLEM = Workload(operation="attention", dtype="float32", sizes=SIZES).problem
GIB = 2**30


def sdpa(inputs):
    q, k, v = inputs.tensors
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=inputs.options["scale"])


@pytest.mark.parametrize("distribution", ["normal", "outliers"])
def test_inputs_that_were_let_go_are_drawn_again(distribution):
    inputs = PROBLEM.inputs("cpu", 7, distribution)
    one = Reference(PROBLEM, inputs, 7, True, distribution)
    out = sdpa(inputs)
    before, held = measure(out, one), one.held_bytes
    one.let_go()
    assert (held, one.held_bytes) == (inputs.nbytes, 0)
    assert all(same(a, b) for a, b in zip(one.inputs.tensors, inputs.tensors, strict=True))
    assert measure(out, one) == before and one.held_bytes == held


def test_all_kernels_are_checked_against_one_reference_a_seed():
    found = References("cpu")
    assert found.get(PROBLEM, 1, True, "normal") is found.get(PROBLEM, 1, True, "normal")
    assert found.get(PROBLEM, 2, True, "normal") is not (first := found.get(PROBLEM, 1, True, "normal"))
    found.clear()
    assert found.get(PROBLEM, 1, True, "normal") is not first


@pytest.fixture
def gpu(monkeypatch):
    """What PyTorch says of a GPU's memory, and how often unused memory went back."""
    says = SimpleNamespace(reserved=0, allocated=0, emptied=0)
    monkeypatch.setattr(references, "memory_of", lambda device: 80 * GIB)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: says.reserved)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: says.allocated)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: setattr(says, "emptied", says.emptied + 1))
    return says


def holding(monkeypatch, each):
    """Three references of which each holds so many bytes, and those that were let go."""
    gone = []
    monkeypatch.setattr(Reference, "held_bytes", property(lambda self: each))
    monkeypatch.setattr(Reference, "let_go", lambda self: gone.append(self.seed))
    found = References("cpu")
    for seed in (1, 2, 3):
        found.get(PROBLEM, seed, True, "normal")
    found.device = "cuda:0"
    return found, gone


def test_large_references_give_their_inputs_back_except_the_wanted_one(gpu, monkeypatch):
    found, gone = holding(monkeypatch, 5.1 * GIB)
    found.make_room(found._by_seed[2])
    assert gone == [1, 3]
    found.make_room()
    assert gone[2:] == [1, 2, 3]


def test_small_ones_keep_theirs(gpu, monkeypatch):
    found, gone = holding(monkeypatch, 3 * GIB)
    found.make_room(found._by_seed[2])
    found.make_room()
    assert gone == [] and gpu.emptied == 0


def test_memory_that_lies_unused_goes_back_if_it_is_much(gpu, monkeypatch):
    found, _ = holding(monkeypatch, 0)
    gpu.reserved, gpu.allocated = 48 * GIB, 30 * GIB
    found.make_room()
    assert gpu.emptied == 0
    gpu.allocated = 4 * GIB
    found.make_room()
    assert gpu.emptied == 1


# --- the kernel that needs most of the memory ----------------------------------------------------------------------------


@pytest.fixture
def full(gpu, monkeypatch):
    """A GPU without room, and a kernel that has not met a shape yet."""

    def empty(*args, **more):
        raise torch.OutOfMemoryError

    compiled._make_room.cache_clear()
    monkeypatch.setattr(torch, "empty", empty)
    yield gpu
    compiled._make_room.cache_clear()


def test_scores_that_would_be_copied_through_the_host_are_refused(full):
    with pytest.raises(Unsupported, match=r"copies the 48\.0 GiB of scores, which do not fit twice"):
        compiled._make_room(48 * GIB, "cuda:0")


def test_few_of_them_are_copied_through_the_host(full):
    compiled._make_room(compiled.MOST_COPIED, "cuda:0")


def test_room_that_was_made_goes_back_whole(gpu):
    compiled._make_room.cache_clear()
    compiled._make_room(1024, "cpu")
    assert gpu.emptied == 1, "a small tensor in a block of that size would keep the scores out"
    compiled._make_room.cache_clear()


# --- what a comparison costs ---------------------------------------------------------------------------------------------


class Moved(TorchDispatchMode):
    """Bytes of the tensors that operations read and return."""

    def __init__(self):
        super().__init__()
        self.nbytes = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        out = op(*args, **(kwargs or {}))
        found = [*args, *(out if isinstance(out, tuple) else [out])]
        self.nbytes += sum(one.nbytes for one in found if isinstance(one, torch.Tensor))
        return out


def test_a_comparison_reads_no_value_oftener_than_it_must():
    """In bytes of a float64 output. It was 92 with a pass for each figure."""
    problem = Workload(operation="layer_norm", dtype="bfloat16", sizes={"rows": 64, "cols": 4096}).problem
    inputs = problem.inputs("cpu", 3)
    x, weight, bias = (one.float() for one in inputs.tensors)
    out = torch.nn.functional.layer_norm(x, weight.shape, weight, bias).bfloat16()
    measure(out, one := Reference(problem, inputs, 3, True))
    with Moved() as moved:
        measure(out, one)
    assert moved.nbytes / (8 * out.numel()) < 62

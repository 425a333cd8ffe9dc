"""Outputs that are not one tensor: a single number, and two tensors. Read, poisoned, kept and judged like any other."""

from collections import namedtuple

import pytest
import torch
from simulated_gpu import SimulatedGpu
from small_operations import COLS, ROWS, TERMS, Centred, MeanSquare, centred, in_turn, mean_square

from kernels import catalog
from kernels.analysis.correctness import judge
from kernels.child import checks, outputs, poison
from kernels.child.bench import Bench
from kernels.child.clock import CudaClock
from kernels.child.reference import Reference, measure, with_facts
from kernels.dtypes import DTYPES
from kernels.operations.base import Piece

SEEDS = (1, 2, 3)


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """They are known within a test of this file, and to nobody else."""
    for one in (MeanSquare, Centred):
        monkeypatch.setitem(catalog.operations(), one.name, one)


def second(change):
    """Right, but for what is done to the means."""

    def kernel(x):
        out, means = centred(x)
        return out, change(means)

    return kernel


Two = namedtuple("Two", "out means")


class Liar(tuple):
    """Computes when it is read."""

    def __iter__(self):
        return iter(centred(self[0]))


RIGHT = {
    "one number": (MeanSquare, mean_square),
    "one number, in float64": (MeanSquare, lambda x, y: (x.double() - y.double()).square().mean().to(x.dtype)),
    "one number, in parts": (
        MeanSquare,
        lambda x, y: (sum(p.square().sum() for p in (x.float() - y.float()).split(100)) / len(x)).to(x.dtype),
    ),
    "two tensors": (Centred, centred),
    "two in a list": (Centred, lambda x: list(centred(x))),
    "two that have names": (Centred, lambda x: Two(*centred(x))),
    "two, in another order of summing": (
        Centred,
        lambda x: ((x.float() - in_turn(x)[:, None]).to(x.dtype), in_turn(x)),
    ),
}
NO_TUPLE = "not a tuple of 2 tensors"
WRONG = {
    "a sum": (MeanSquare, lambda x, y: (x.float() - y.float()).square().sum().to(x.dtype), ""),
    "the first half": (MeanSquare, lambda x, y: mean_square(x[: TERMS // 2], y[: TERMS // 2]), "largest error"),
    "always the same number": (MeanSquare, lambda x, y: torch.full((), 2.0, dtype=x.dtype), "largest error"),
    "zero": (MeanSquare, lambda x, y: x.new_zeros(()), "largest error"),
    "NaN": (MeanSquare, lambda x, y: x.new_full((), torch.nan), "1 elements are NaN or Inf"),
    "a number in a row": (MeanSquare, lambda x, y: mean_square(x, y)[None], "returned shape (1,), not ()"),
    "a number of Python": (MeanSquare, lambda x, y: float(mean_square(x, y)), "returned a builtins.float, not a"),
    "a number in a tuple": (MeanSquare, lambda x, y: (mean_square(x, y),), "returned a builtins.tuple, not a"),
    "two numbers in a list": (MeanSquare, lambda x, y: [mean_square(x, y)] * 2, "returned a builtins.list, not a"),
    "one of two": (Centred, lambda x: centred(x)[0], f"returned one torch.Tensor, {NO_TUPLE}"),
    "one of two, in a tuple": (Centred, lambda x: centred(x)[:1], f"returned one torch.Tensor, {NO_TUPLE}"),
    "nothing": (Centred, lambda x: None, f"returned one builtins.NoneType, {NO_TUPLE}"),
    "none": (Centred, lambda x: (), f"returned 0 outputs, {NO_TUPLE}"),
    "three of two": (Centred, lambda x: (*centred(x), x), f"returned 3 outputs, {NO_TUPLE}"),
    "the other way round": (Centred, lambda x: centred(x)[::-1], "output 1 of 2: returned shape (65,), not (65, 63)"),
    "computes when it is read": (Centred, lambda x: Liar((x, x)), "output 2 of 2: returned shape"),
    "second of another shape": (Centred, second(lambda m: m[:, None]), "output 2 of 2: returned shape (65, 1), not"),
    "second of another dtype": (Centred, second(torch.Tensor.double), "output 2 of 2: returned torch.float64, not"),
    "second is no tensor": (Centred, second(torch.Tensor.tolist), "output 2 of 2: returned a builtins.list, not"),
    "second is one constant": (Centred, second(lambda m: torch.full_like(m, m.mean())), "output 2 of 2: "),
    "second is zero": (Centred, second(torch.zeros_like), "output 2 of 2: largest error"),
    "second rounded to 16 bits": (Centred, second(lambda m: m.half().float()), "output 2 of 2: "),
    "second ends in NaN": (
        Centred,
        second(lambda m: torch.cat([m[:-1], m[-1:] * torch.nan])),
        "output 2 of 2: 1 elements are NaN",
    ),
    "first is zero": (Centred, lambda x: (torch.zeros_like(x), centred(x)[1]), "output 1 of 2: largest error"),
    "last row of the first is zero": (
        Centred,
        lambda x: (torch.cat([centred(x)[0][:-1], x[-1:] * 0]), centred(x)[1]),
        "output 1 of 2: ",
    ),
}


def verdict(problem, kernel):
    readings = []
    for seed in SEEDS:
        inputs = problem.inputs("cpu", seed)
        readings.append(measure(kernel(*inputs.tensors), Reference(problem, inputs, seed, thorough=True)))
    return judge(readings, problem.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation, kernel", RIGHT.values(), ids=RIGHT.keys())
def test_right_kernels_are_accepted(operation, kernel, dtype):
    found = verdict(operation(dtype=dtype), kernel)
    assert (found["correct"], found["why"], found["seeds"]) == (True, "", len(SEEDS))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation, kernel, reason", WRONG.values(), ids=WRONG.keys())
def test_wrong_kernels_are_rejected(operation, kernel, reason, dtype):
    found = verdict(operation(dtype=dtype), kernel)
    assert not found["correct"]
    assert found["why"].startswith(reason)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_number_is_right_though_the_yardstick_has_no_error_by_chance(dtype, seed):
    """It may be rounded once, and not be ten units off."""
    problem = MeanSquare(dtype=dtype)
    inputs = problem.inputs("cpu", seed)
    reference = Reference(problem, inputs, seed, thorough=True)
    exact = next(iter(reference.pieces())).reference
    reference._kept = [Piece(..., exact, exact)]
    right = mean_square(*inputs.tensors)

    def off_by(units):
        out = right * (1 + units * torch.finfo(right.dtype).eps)
        return judge([measure(out, reference)], dtype)["correct"]

    assert off_by(0)
    assert not off_by(10) and not off_by(-10)


def test_each_output_is_judged_by_its_own_dtype():
    """Means in float32 may not be as wrong as a float16 output."""
    found = verdict(Centred(dtype="float16"), second(lambda m: m * (1 + 1e-4)))
    assert found["why"].startswith("output 2 of 2: ")
    assert (found["output"], found["of"], found["dtype"]) == (2, 2, "float32")
    both = verdict(Centred(dtype="float16"), lambda x: (centred(x)[0] * (1 + 1e-3), centred(x)[1]))
    assert both["correct"] or both["output"] == 1


def test_on_unusual_inputs_the_output_is_named_too():
    problem = Centred(dtype="float32")
    inputs = problem.inputs("cpu", 1, "x30")
    reference = Reference(problem, inputs, 1, True, "x30")
    right = measure(centred(*inputs.tensors), reference)
    wrong = measure(second(torch.zeros_like)(*inputs.tensors), reference)
    assert judge([right], "float32")["correct"]
    assert judge([wrong], "float32")["why"].startswith("on inputs 30 times as large: output 2 of 2: largest error")


def test_facts_stand_beside_the_output_that_they_are_of():
    problem = Centred(dtype="float32")
    inputs = problem.inputs("cpu", 1)
    reading = measure(centred(*inputs.tensors), Reference(problem, inputs, 1, True))
    unwritten = with_facts(reading, unwritten=[0, 3], late=[False, False])
    assert judge([unwritten], "float32")["why"] == "output 2 of 2: 3 elements of the output were never written"
    assert judge([with_facts(unwritten, late=[True, False])], "float32")["why"].startswith(
        "output 1 of 2: the output changed"
    )


# --- through the bench ------------------------------------------------------------------------------------------------

HEAD = """
import threading, time
import torch
from kernels.catalog import kernel

def mean_square(x, y):
    return (x.float() - y.float()).square().mean().to(x.dtype)

def centred(x):
    means = x.float().mean(-1)
    return (x.float() - means[:, None]).to(x.dtype), means

"""
BENCHED = {
    "right number": (MeanSquare, "return mean_square(x, y)", ""),
    "right two": (Centred, "return centred(x)", ""),
    "right list": (Centred, "return list(centred(x))", ""),
    "number never written": (MeanSquare, "return torch.empty((), dtype=x.dtype)", "any"),
    "number shared": (
        MeanSquare,
        "global out; out = globals().get('out', torch.empty((), dtype=x.dtype)); return out.copy_(mean_square(x, y))",
        "calls share one output",
    ),
    "second never written": (Centred, "return centred(x)[0], torch.empty(len(x))", "output 2 of 2: "),
    "second half written": (
        Centred,
        "out, m = centred(x); means = torch.empty(len(x)); means[:32] = m[:32]; return out, means",
        "output 2 of 2: ",
    ),
    "second shared": (
        Centred,
        "global m; m = globals().get('m', torch.empty(len(x))); return centred(x)[0], m.copy_(centred(x)[1])",
        "calls share one output",
    ),
    "second late": (
        Centred,
        "out, m = centred(x); means = torch.zeros_like(m); later(lambda: means.copy_(m)); return out, means",
        "output 2 of 2: ",
    ),
    "second changes the inputs": (Centred, "out = centred(x); x.mul_(2); return out", "the kernel changed its inputs"),
}
LATER = "def later(do):\n    threading.Thread(target=lambda: (time.sleep(0.02), do())).start()\n\n"


def planted(folder, operation, body):
    arguments = "x" if operation is Centred else "x, y"
    (folder / operation.name).mkdir(exist_ok=True)
    code = f'{HEAD}{LATER}@kernel("{operation.name}", backend="pytorch")\ndef planted({arguments}):\n'
    (folder / operation.name / "planted.py").write_text(code + f"    {body}\n")


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """A function: the bench with a workload open and a kernel with this body loaded."""
    monkeypatch.setenv("KERNEL_PATH", str(tmp_path))
    monkeypatch.setattr(checks, "LATE_S", 0.2)  # late writes come after 20 ms, or later on a busy machine

    def opened(operation, body, dtype="float32", bench=None):
        planted(tmp_path, operation, body)
        bench = bench or Bench("cpu")
        bench.open({"operation": operation.name, "dtype": dtype, "sizes": {}})
        bench.load("planted")
        bench.compile("planted", seed=5)
        return bench

    return opened


def judged(got, dtype="float32"):
    return judge([got.reading], dtype, {name: getattr(got, name) for name in ("inputs_changed", "shared")})


@pytest.mark.parametrize("operation, body, reason", BENCHED.values(), ids=BENCHED.keys())
def test_a_checked_call(bench, operation, body, reason):
    got = bench(operation, body).verify("planted", seed=6, thorough=True)
    found = judged(got)
    assert found["correct"] == (not reason), found["why"]
    if reason not in ("", "any"):
        assert found["why"].startswith(reason)


@pytest.mark.parametrize("operation", (MeanSquare, Centred))
def test_a_right_kernel_is_deterministic_and_what_it_returned_is_poisoned_after(bench, operation, monkeypatch):
    body = BENCHED["right number" if operation is MeanSquare else "right two"][1]
    filled = []
    fill = poison.fill
    monkeypatch.setattr(poison, "fill", lambda tensor: filled.append(tuple(tensor.shape)) or fill(tensor))
    monkeypatch.setattr(poison, "CACHED_BYTES", 0)  # that which is left before a call is filled, too
    got = bench(operation, body).verify("planted", seed=6, thorough=True)
    assert (got.deterministic, got.shared, got.inputs_changed) == (True, False, False)
    assert filled == (4 + checks.LATER_CALLS) * ([()] if operation is MeanSquare else [(ROWS, COLS), (ROWS,)])


# That calls share one output shows in checked calls only: of a timed one a copy was kept.
TIMED = {name: case for name, case in BENCHED.items() if "shared" not in name}


@pytest.mark.parametrize("operation, body, reason", TIMED.values(), ids=TIMED.keys())
def test_a_timed_call(bench, operation, body, reason):
    timing = bench(operation, body)
    timing.prepare([1, 2, 3, 4], sets=3)
    timing.block("planted", calls=3)
    timing.keep("planted", position=1, seed=5)
    got = timing.recheck()
    flags = {"inputs_changed": "planted" in got.changed_inputs}
    found = judge([reading for _, reading in got.readings], "float32", flags)
    assert len(got.readings) == 2
    assert found["correct"] == (not reason), found["why"]


class Graph:
    """What a captured graph does: each replay writes into the same tensors again, where `writes` says so."""

    def __init__(self, call, indices, writes):
        self.call, self.indices, self.writes = call, list(indices), writes
        self.outputs = [call(index) for index in self.indices]

    def replay(self):
        for index, old in zip(self.indices, self.outputs, strict=True):
            for number, (into, new) in enumerate(
                zip(outputs.as_tuple(old), outputs.as_tuple(self.call(index)), strict=True)
            ):
                if number in self.writes:
                    into.copy_(new)


@pytest.mark.parametrize("writes, why", [((0, 1), ""), ((0,), "output 2 of 2: 65 elements"), ((1,), "output 1 of 2: ")])
def test_outputs_of_a_graph_are_poisoned_before_a_replay(bench, monkeypatch, writes, why):
    gpu = SimulatedGpu()
    gpu.capture = lambda call, indices: (graph := Graph(call, indices, writes), graph.outputs)
    timing = bench(Centred, "return list(centred(x))")
    timing.clock = CudaClock(gpu)
    timing.prepare([1, 2, 3], sets=2)
    timing.capture("planted")
    timing.replay("planted", replays=2)
    timing.keep("planted", position=1, seed=5)
    readings = [reading for _, reading in timing.recheck().readings]
    assert len(readings) == 2
    assert [judge([reading], "float32")["why"][: len(why) or None] for reading in readings] == [why] * 2


# --- the helpers ------------------------------------------------------------------------------------------------------


def test_what_an_operation_returns_is_told_from_its_shape_and_dtype():
    for operation, count in ((MeanSquare, 1), (Centred, 2)):
        problem = operation()
        assert len(outputs.likes(problem, problem.inputs("cpu", 1))) == count


def test_a_copy_is_of_tensors_alone():
    x = torch.arange(3.0)
    copy = outputs.clone((x, None, "text"))
    x.zero_()
    assert copy[0].tolist() == [0, 1, 2]
    assert copy[1:] == (None, "text")
    assert outputs.clone("text") == "text"
    assert outputs.changed(copy, (x, None, "text")) == [True, False, False]
    assert outputs.nbytes((x, None)) == 12 and outputs.nbytes(x) == 12 and outputs.nbytes(None) == 0


def test_outputs_that_are_not_as_many_are_an_error():
    x = torch.arange(3.0)
    assert outputs.equal((x, x), [x, x]) and not outputs.equal((x, x), (x, x + 1))
    with pytest.raises(ValueError):
        outputs.equal((x, x), (x,))

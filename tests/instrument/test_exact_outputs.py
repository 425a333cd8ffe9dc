"""Outputs of whole numbers and truth values, outputs written into an argument, and operations without correct values."""

from typing import ClassVar

import pytest

torch = pytest.importorskip("torch")

from kernels import catalog  # noqa: E402
from kernels.analysis.correctness import judge, why_wrong  # noqa: E402
from kernels.analysis.verdicts import verdict_of  # noqa: E402
from kernels.child import poison  # noqa: E402
from kernels.child.bench import Bench  # noqa: E402
from kernels.child.reference import Reference, measure  # noqa: E402
from kernels.contract.arm_result import ArmResult, Correctness, Verdict  # noqa: E402
from kernels.operations.base import Inputs, Operation, Piece, draw  # noqa: E402

ROWS, COLS = 256, 64


class Largest(Operation):
    """x: (rows, cols); out: the largest of each row (rows,), where it is (rows,) int64, and what is positive, bool."""

    name: ClassVar[str] = "largest"
    baseline: ClassVar[str] = "planted"
    title: ClassVar[str] = "Largest"
    rows: int = ROWS

    def inputs(self, device, seed, distribution="normal"):
        generator = torch.Generator(device).manual_seed(seed)
        return Inputs((draw((self.rows, COLS), self.dtype, device, generator, distribution),), {})

    def output_like(self, inputs):
        dtype = inputs.tensors[0].dtype
        return ((self.rows,), dtype), ((self.rows,), torch.int64), ((self.rows, COLS), torch.bool)

    def check(self, inputs, seed, thorough):
        x = inputs.tensors[0]
        right, plain = largest(x.double()), largest(x)
        for number, (exact, yard) in enumerate(zip(right, plain, strict=True)):
            yield Piece(..., exact, yard, output=number)


class Unknown(Largest):
    """The same, and nobody knows what is right."""

    name: ClassVar[str] = "unknown"
    check = Operation.check


def largest(x):
    found = x.max(-1)
    return found.values, found.indices, x > 0


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """They are known within a test of this file, and to nobody else."""
    for one in (Largest, Unknown):
        monkeypatch.setitem(catalog.operations(), one.name, one)


def judged(kernel, dtype="float32"):
    problem, readings = Largest(dtype=dtype), []
    for seed in (1, 2):
        inputs = problem.inputs("cpu", seed)
        readings.append(measure(kernel(*inputs.tensors), Reference(problem, inputs, seed, thorough=True)))
    return judge(readings, dtype)


def changed(number, change):
    """Right, but for what is done to one output."""

    def kernel(x):
        outs = list(largest(x))
        outs[number] = change(outs[number])
        return tuple(outs)

    return kernel


def one_off(indices):
    indices[-1] += 1
    return indices


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_right_ones_are_accepted(dtype):
    assert judged(largest, dtype)["correct"] is True
    assert judged(lambda x: (x.amax(-1), x.argmax(-1), x.sign() > 0), dtype)["correct"] is True


@pytest.mark.parametrize(
    "kernel, why",
    [
        (changed(1, one_off), "output 2 of 3: 1 of 256 elements differ"),
        (changed(1, torch.zeros_like), "output 2 of 3: "),
        (changed(1, lambda i: i.int()), "output 2 of 3: returned torch.int32, not torch.int64"),
        (changed(2, torch.logical_not), "output 3 of 3: 16384 of 16384 elements differ"),
        (changed(2, torch.ones_like), "output 3 of 3: "),
        (changed(2, lambda m: m.byte()), "output 3 of 3: returned torch.uint8, not torch.bool"),
    ],
    ids=["one off", "zeros", "int32", "not", "ones", "bytes"],
)
def test_wrong_ones_are_rejected(kernel, why):
    found = judged(kernel)
    assert (found["correct"], found["why"][: len(why)]) == (False, why)
    stored = Correctness.model_validate(found)
    assert "differ" not in why or stored.mismatches > 0


def reading(**more):
    return {"elements": 1000, "mismatches": 0, "yard_mismatches": 0, "levels": False, "max_abs": 0.0, "yard_abs": 0.0} | {
        "constant": False, "nonfinite": 0, "frobenius": 0.0
    } | more  # fmt: skip


def test_as_many_may_differ_as_eager_pytorch_has_wrong_and_twice_that():
    assert why_wrong(reading(mismatches=6, yard_mismatches=3, max_abs=90.0, yard_abs=2.0), "float32") == ""
    assert why_wrong(reading(mismatches=7, yard_mismatches=3), "float32") == (
        "7 of 1000 elements differ, allowed 6 (from eager PyTorch's own)"
    )
    assert "largest difference 90" in why_wrong(
        reading(mismatches=6, yard_mismatches=3, max_abs=90.0, yard_abs=2.0, levels=True), "float32"
    )
    assert why_wrong(reading(constant=True), "float32") == "every element of the output is the same"
    assert why_wrong(reading(mismatches=7, distribution="x30"), "float32") == "7 of 1000 elements differ"


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64], ids=str)
def test_memory_of_whole_numbers_is_poisoned_and_counted_where_it_can_be(dtype):
    tensor = torch.zeros(10, dtype=dtype)
    poison.fill(tensor)
    assert set(tensor.view(torch.uint8).tolist()) == {poison.FILL_BYTE}
    assert poison.count(tensor) == (0 if dtype in (torch.int8, torch.uint8, torch.int16) else 10)


# --- on the bench -----------------------------------------------------------------------------------------------------


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """A function: the bench with a workload open and a kernel with these arguments and this body loaded."""
    monkeypatch.setenv("KERNEL_PATH", str(tmp_path))

    def opened(arguments, body, operation=Largest):
        (tmp_path / operation.name).mkdir()
        code = "import torch\nfrom kernels.catalog import kernel\nKEPT = torch.zeros(256, dtype=torch.int64)\n"
        code += f'@kernel("{operation.name}", backend="pytorch")\ndef planted({arguments}):\n    {body}\n'
        (tmp_path / operation.name / "planted.py").write_text(code)
        found = Bench("cpu")
        found.open({"operation": operation.name, "dtype": "float32", "sizes": {}})
        found.load("planted")
        found.compile("planted", seed=5)
        return found

    return opened


RIGHT = "torch.max(x, -1, out=out[:2]); torch.gt(x, 0, out=out[2])"


@pytest.mark.parametrize(
    "arguments, body, why",
    [
        ("x, out", RIGHT, ""),
        ("x, *, out", RIGHT, ""),
        ("x, *, out", f"{RIGHT}; return 'nothing of interest'", ""),
        ("x, out", "torch.max(x, -1, out=out[:2])", "output 3 of 3: "),
        (
            "x, out",
            "out[0].copy_(x.amax(-1)); torch.gt(x, 0, out=out[2])",
            "output 2 of 3: 256 elements of the output were",
        ),
        ("x, out", f"{RIGHT}; out[1][-1] += 1", "output 2 of 3: 1 of 256 elements differ"),
        ("x", "return x.amax(-1), torch.argmax(x, -1, out=KEPT), x > 0", "calls share one output"),
        ("x, out=None", "return x.amax(-1), x.argmax(-1), x > 0", ""),
    ],
)
def test_a_kernel_that_writes_into_its_argument_is_checked_like_any_other(bench, arguments, body, why):
    found = bench(arguments, body)
    got = found.verify("planted", seed=6, thorough=True)
    said = judge([got.reading], "float32", {"inputs_changed": got.inputs_changed, "shared": got.shared})
    assert (said["correct"], said["why"][: len(why)]) == (not why, why), said["why"]
    found.prepare([1, 2, 3], sets=0)
    found.block("planted", calls=3)
    found.keep("planted", position=1, seed=5)
    readings = [reading for _, reading in found.recheck().readings]
    assert len(readings) == 2
    assert judge(readings, "float32")["correct"] is (not why)


def test_an_operation_without_correct_values_gives_no_word(bench):
    got = bench("x", "return x.amax(-1), x.argmax(-1), x > 0", Unknown).verify("planted", seed=6, thorough=True)
    found = judge([got.reading], "float32")
    assert (found["correct"], found["why"]) == (None, "")
    figures = {"n": 9, "rounds": 9, "p50_ms": 1.0, "p50_low_ms": 1.0, "p50_high_ms": 1.0}
    ratio = {"speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1}
    arm = ArmResult(kernel="planted", correctness=Correctness.model_validate(found), **figures, **ratio)
    assert verdict_of(arm, "sdpa", 0.01) == Verdict.UNKNOWN
    assert verdict_of(arm.model_copy(update={"correctness": None}), "sdpa", 0.01) == Verdict.UNKNOWN
    right = arm.correctness.model_copy(update={"correct": True})
    assert verdict_of(arm.model_copy(update={"correctness": right}), "sdpa", 0.01) == Verdict.FASTER


def test_what_is_wrong_by_itself_is_wrong_without_correct_values(bench):
    got = bench("x, out", "out[0].copy_(x.amax(-1))", Unknown).verify("planted", seed=6, thorough=True)
    found = judge([got.reading], "float32")
    assert (found["correct"], "never written" in found["why"]) == (False, True), found

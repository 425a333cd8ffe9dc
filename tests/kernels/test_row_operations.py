"""The operations on rows: their sizes as those of sequences, work and bytes by hand, inputs that hurt, large problems."""

import math

import pytest

from kernels.analysis.peaks import peak_of
from kernels.analysis.roofline import rates, speed_of_light_ms
from kernels.catalog import get_operation, operations
from kernels.operations.rows import Rows
from kernels.workload import Config, Workload

torch = pytest.importorskip("torch")

from kernels.analysis.correctness import judge, why_wrong  # noqa: E402
from kernels.child import settings  # noqa: E402
from kernels.child.reference import Reference, measure  # noqa: E402
from kernels.operations import rows  # noqa: E402

BY_NAME = {name: operation for name, operation in operations().items() if issubclass(operation, Rows)}
every = pytest.mark.parametrize("name", BY_NAME)
SEQUENCES = {"batch": 4, "seq_len": 16, "dim": 32}


def plain(name, **sizes):
    operation = BY_NAME[name]
    return operation(**{"rows": 64, operation.across: 32} | sizes)


# --- sizes ------------------------------------------------------------------------------------------------------------


def test_what_memory_limits_is_there():
    assert BY_NAME.keys() == {"cross_entropy", "gelu", "layer_norm", "mse_loss", "rms_norm", "softmax", "swish"}


@every
def test_sizes_of_sequences_are_the_same_workload_as_rows(name):
    as_rows = Workload(operation=name, sizes={"rows": 64, BY_NAME[name].across: 32})
    as_sequences = Workload(operation=name, sizes=SEQUENCES)
    assert (as_sequences.key, as_sequences.label) == (as_rows.key, as_rows.label)
    assert as_sequences.label.startswith(f"{name} fp16 64 x 32")
    assert as_sequences == Workload(operation=name, sizes={"batch": 2, "seq_len": 32, "dim": 32})


@every
@pytest.mark.parametrize(
    "sizes, said",
    [
        (SEQUENCES | {"rows": 64}, "give rows and"),
        ({"batch": 4, "dim": 32}, "seq_len is missing"),
        (SEQUENCES | {"batch": 0}, "must be whole numbers above 0, not 0"),
        (SEQUENCES | {"seq_len": "16"}, "must be whole numbers above 0, not '16'"),
        (SEQUENCES | {"seq_len": True}, "must be whole numbers above 0, not True"),
        (SEQUENCES | {"batch": 10**9}, "less than or equal to 16777216"),
    ],
    ids=str,
)
def test_sizes_of_sequences_are_checked(name, sizes, said):
    with pytest.raises(ValueError, match=said):
        BY_NAME[name](**sizes)


def test_lists_of_sequence_sizes_multiply_and_each_matrix_is_measured_once():
    grid = {"batch": [16, 32], "seq_len": [256, 512], "dim": [8, 16], "dtype": "float16"}
    config = Config(name="grid", operation="layer_norm", kernels=["eager"], workloads=[grid])
    assert [w.problem.label() for w in config.workloads] == [
        "4096 x 8", "4096 x 16", "8192 x 8", "8192 x 16", "16384 x 8", "16384 x 16",
    ]  # fmt: skip


# --- work and bytes ---------------------------------------------------------------------------------------------------

MATRIX = 16384 * 4096
BY_HAND = [
    ("softmax", {}, 5 * MATRIX, (134_217_728, 134_217_728)),
    ("rms_norm", {}, 4 * MATRIX, (134_225_920, 134_217_728)),  # x, and a weight of 8192 bytes
    ("gelu", {}, 8 * MATRIX, (134_217_728, 134_217_728)),
    ("swish", {}, 4 * MATRIX, (134_217_728, 134_217_728)),
    ("mse_loss", {}, 3 * MATRIX, (268_435_456, 4)),
    ("cross_entropy", {}, 4 * MATRIX, (134_348_800, 4)),  # logits, and 16384 targets of 8 bytes
]


@pytest.mark.parametrize("name, sizes, flops, moved", BY_HAND, ids=[name for name, *_ in BY_HAND])
def test_work_and_bytes_by_hand(name, sizes, flops, moved):
    problem = plain(name, rows=16384, dtype="bfloat16", **{BY_NAME[name].across: 4096}, **sizes)
    assert (problem.flops(), problem.bytes_moved()) == (flops, moved)
    assert (problem.unit, problem.label()) == ("GB/s", "16384 x 4096")
    assert speed_of_light_ms(problem, peak_of("NVIDIA H200")) == pytest.approx(sum(moved) / 4800e9 * 1e3)
    assert rates(problem, 0.1, None)["gb_per_s"] == pytest.approx(sum(moved) / 1e5)


def test_an_approximation_has_a_label_of_its_own():
    exact, tanh = (plain("gelu", approximate=how) for how in ("none", "tanh"))
    assert (exact.label(), tanh.label()) == ("64 x 32", "64 x 32 tanh")
    with pytest.raises(ValueError, match="approximate"):
        plain("gelu", approximate="erf")


# --- inputs and references --------------------------------------------------------------------------------------------


def test_targets_reach_from_the_first_class_to_the_last():
    problem = plain("cross_entropy")
    targets = problem.inputs("cpu", 1).tensors[1]
    assert (targets.dtype, int(targets[0]), int(targets[-1])) == (torch.int64, 0, 31)
    assert int(targets.min()) >= 0 and int(targets.max()) <= 31


def test_a_known_cross_entropy():
    """Four equal logits: the logarithm of 4, whatever the targets are."""
    problem = plain("cross_entropy", rows=3, vocab=4, dtype="float32")
    inputs = problem.inputs("cpu", 1)
    inputs.tensors[0].fill_(7.0)
    (piece,) = problem.check(inputs, 1, True)
    assert piece.reference.item() == pytest.approx(math.log(4), abs=1e-15)


@every
def test_a_large_problem_is_checked_to_its_last_row(name, monkeypatch):
    monkeypatch.setattr(rows, "CHUNK", 7 * 32)
    problem = plain(name, dtype="float32")
    inputs = problem.inputs("cpu", 1)
    assert len(list(problem.chunks())) == 10
    right = get_operation(name).baseline
    from kernels.catalog import get_kernel, load

    call = load(get_kernel(name, right)).call
    whole = measure(call(*inputs.tensors, **inputs.options), Reference(problem, inputs, 1, True))
    monkeypatch.setattr(rows, "CHUNK", 2**24)
    at_once = measure(call(*inputs.tensors, **inputs.options), Reference(problem, inputs, 1, True))
    assert whole["max_abs"] == pytest.approx(at_once["max_abs"], rel=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_one_constant_is_right_where_the_dtype_tells_no_difference(dtype):
    """Softmax of a row of tiny numbers: all of its results round to the same number."""
    problem = plain("softmax", rows=1, cols=1000, dtype=dtype)
    inputs = problem.inputs("cpu", 1, "tiny")
    inputs.tensors[0].mul_(2.0**-8)
    right = torch.softmax(inputs.tensors[0], -1)
    assert len(right.unique()) == 1
    reference = Reference(problem, inputs, 1, True, "tiny")
    assert judge([measure(right, reference)], dtype)["correct"]
    assert not judge([measure(right * 1.02, reference)], dtype)["correct"]


def test_a_long_sum_in_turn_keeps_its_terms():
    """2**24 ones and more are a float32 that one no longer changes."""
    count = 2**24 + 2**20
    assert rows.total_in_turn([1.0] * count) == count
    assert float(rows.sum_in_turn(torch.ones(1, 2**20))) == 2**20


@pytest.mark.parametrize(
    "kept", [0.98, pytest.param(0.9, marks=pytest.mark.thorough("a larger part, which shows more"))]
)
def test_a_loss_of_a_part_of_very_many_rows_is_wrong(kept):
    problem = get_operation("mse_loss")(rows=2**22, cols=4, dtype="float32")
    inputs = problem.inputs("cpu", 5)
    reference = Reference(problem, inputs, 5, thorough=False)
    values, targets = (tensor[: int(kept * len(tensor))] for tensor in inputs.tensors)
    whole, part = (torch.nn.functional.mse_loss(*pair) for pair in (inputs.tensors, (values, targets)))
    assert not why_wrong(measure(whole, reference), "float32")
    assert "largest error" in why_wrong(measure(part, reference), "float32")


def test_sums_in_turn_round_after_each_term():
    tiny = 2.0**-25
    assert rows.total_in_turn([1.0] + [tiny] * 1000) == 1.0
    assert float(rows.sum_in_turn(torch.tensor([[1.0] + [tiny] * 1000]))) == 1.0
    assert rows.total_in_turn([tiny] * 1000 + [1.0]) == pytest.approx(1.0 + 1000 * tiny)


# --- what a kernel must not change ------------------------------------------------------------------------------------


@every
def test_operators_of_its_plain_kernels_are_watched(name):
    watched = {key.removeprefix("aten::").partition(".")[0] for key in settings.registrations()}
    assert set(BY_NAME[name].operators) <= watched

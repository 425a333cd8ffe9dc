"""What holds of every operation: each is tested here from the day it is there. What is its own is tested beside it."""

import math
import re
import threading
from functools import cache

import pytest
from pydantic import ValidationError

from kernels.catalog import LoadedKernel, get_operation, kernels, load, operations
from kernels.config_files import check_kernels, configs
from kernels.contract.arm_result import ArmResult
from kernels.contract.events import Measured
from kernels.dtypes import DTYPES
from kernels.operations.base import DISTRIBUTIONS, EDGE_SIZES
from kernels.report.tables import as_markdown, as_text, rows
from kernels.workload import Workload

torch = pytest.importorskip("torch")

from kernels.analysis.correctness import judge  # noqa: E402
from kernels.child import checks, outputs  # noqa: E402
from kernels.child.bench import Bench  # noqa: E402
from kernels.child.reference import Reference, measure  # noqa: E402

UNITS = {"TFLOP/s": "tflops", "GB/s": "gb_per_s"}
PLANTED = "planted"
for_every_operation = pytest.mark.parametrize("name", operations())
in_every_dtype = pytest.mark.parametrize("dtype", DTYPES)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """The problems are small: threads would wait for each other longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def small(name, dtype="float32"):
    """The smallest workload of the operation's smoke configs."""
    smoke = [config for config in configs() if config.operation == name and config.name.startswith("smoke")]
    problems = [w.problem for config in smoke for w in config.workloads]
    return min(problems, key=lambda problem: sum(problem.bytes_moved())).model_copy(update={"dtype": dtype})


CHECKED = [
    pytest.param(problem, distribution, id=f"{name}-{dtype}-{distribution}")
    for name in operations()
    for dtype in DTYPES
    for problem in [small(name, dtype)]
    for distribution in DISTRIBUTIONS
    if distribution in problem.distributions
]
"""Every operation in every dtype, with each distribution that it is checked with."""


@cache
def plain(name):
    """Eager PyTorch as a kernel: it may be called on any device."""
    found = {info.name: info for info in kernels(name)}
    return load(found.get("eager") or found[operations()[name].baseline]).call


@cache
def reference(problem, seed=1, distribution="normal"):
    return Reference(problem, problem.inputs("cpu", seed, distribution), seed, True, distribution)


def right(problem, inputs):
    return plain(problem.name)(*inputs.tensors, **inputs.options)


def verdict(problem, out, seed=1, distribution="normal"):
    return judge([measure(out, reference(problem, seed, distribution))], problem.dtype)


# --- what it says of itself -------------------------------------------------------------------------------------------


@for_every_operation
def test_it_says_what_goes_in_and_what_comes_out(name):
    """As "a: (M, K); out: (M, N)". An output of several has a name of its own."""
    operation = operations()[name]
    named = re.findall(r"([\w, ]+): \([^()]*\)", operation.__doc__ or "")
    assert any("out" in words for words in named), "the docstring gives no shape of `out`"
    assert len(named) > 1, "nor of what goes in"
    assert operation.title and operation.unit in UNITS
    assert re.fullmatch(r"[a-z][a-z0-9_]*", name)


@for_every_operation
def test_its_sizes_have_titles_and_bounds(name):
    operation = operations()[name]
    good = small(name).model_dump()
    for size, info in operation.model_fields.items():
        if size == "dtype":
            continue
        assert info.title, f"{size} has no title for the form"
        if info.annotation is int:
            for wrong in (*([] if info.default == 0 else [0]), -1, 10**12, "many"):
                with pytest.raises(ValidationError):
                    operation(**good | {size: wrong})
        if info.is_required() and not (info.json_schema_extra or {}).get("may_be_empty"):
            with pytest.raises(ValidationError):
                operation(**{other: value for other, value in good.items() if other != size})
    for stray in ({"no_such_size": 3}, {"dtype": "float64"}):
        with pytest.raises(ValidationError):
            operation(**good | stray)


@for_every_operation
@in_every_dtype
def test_its_work_and_bytes_are_those_of_its_tensors(name, dtype):
    for problem in (small(name, dtype), *small(name, dtype).edges()):
        inputs = problem.inputs("cpu", 1)
        written = sum(math.prod(shape) * kind.itemsize for shape, kind in outputs.likes(problem, inputs))
        assert problem.bytes_moved() == (inputs.nbytes, written)
        assert isinstance(problem.flops(), int) and problem.flops() > 0


@for_every_operation
def test_its_edges_are_small_relatives_with_labels_of_their_own(name):
    problem = small(name, "bfloat16")
    edges = problem.edges()
    labels = [edge.label() for edge in edges]
    assert len(set(labels)) == len(labels) >= len(EDGE_SIZES)
    assert all(label and "\n" not in label for label in [*labels, problem.label()])
    seen = {value for edge in edges for value in edge.model_dump().values() if type(value) is int}
    assert set(EDGE_SIZES) <= seen
    for edge in edges:
        assert type(edge) is type(problem) and edge.dtype == "bfloat16"
        assert sum(edge.bytes_moved()) < 2**24
        sizes = edge.model_dump(exclude={"dtype"})
        assert Workload(operation=name, dtype=edge.dtype, sizes=sizes).problem == edge


@for_every_operation
def test_it_has_kernels_and_configs(name):
    found = {info.name: info for info in kernels(name)}
    assert next(iter(found)) == get_operation(name).baseline
    assert not [info.error for info in found.values() if info.error]
    assert any(info.why_not_on("cpu", None) == "" for info in found.values()), "none runs without a GPU"
    of_it = [config for config in configs() if config.operation == name]
    assert any(config.name.startswith("smoke") for config in of_it), "a config of seconds for any device"
    assert any(not config.name.startswith("smoke") for config in of_it)
    for config in of_it:
        check_kernels(config)


@for_every_operation
def test_tables_show_its_own_unit(name):
    problem = small(name)
    workload = Workload(operation=name, dtype=problem.dtype, sizes=problem.model_dump(exclude={"dtype"}))
    rates = {"tflops": 77.7, "gb_per_s": 55.5}
    times = {"n": 5, "rounds": 5, "p50_ms": 1.0, "p50_low_ms": 1.0, "p50_high_ms": 1.0}
    result = ArmResult(kernel="eager", **times, **rates)
    table = rows([Measured(workload=workload, mode="cpu", baseline="eager", margin=0.01, results=[result])])
    masked = " unmasked" if workload.dense_factor and problem.unit == "TFLOP/s" else ""
    assert f"| {problem.unit}{masked} |" in as_markdown(table)
    assert f"| {rates[UNITS[problem.unit]]} |" in as_markdown(table)
    assert problem.unit in as_text(table)


# --- inputs and reference ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem, distribution", CHECKED)
def test_its_inputs_follow_from_the_seed(problem, distribution):
    one, same, other = (problem.inputs("cpu", seed, distribution) for seed in (1, 1, 2))
    floating = [pair for pair in zip(one.tensors, other.tensors, strict=True) if pair[0].is_floating_point()]
    assert floating
    assert all(torch.equal(a, b) for a, b in zip(one.tensors, same.tensors, strict=True))
    assert not any(torch.equal(a, b) for a, b in floating)
    assert not {t.data_ptr() for t in one.tensors} & {t.data_ptr() for t in same.tensors}
    kinds = [[(t.shape, t.stride(), t.dtype) for t in inputs.tensors] for inputs in (one, same, other)]
    assert kinds[0] == kinds[1] == kinds[2]
    assert one.options == other.options


@for_every_operation
@in_every_dtype
def test_its_reference_is_exact_and_covers_every_element(name, dtype):
    problem = small(name, dtype)
    likes = outputs.likes(problem, problem.inputs("cpu", 1))
    covered = [torch.zeros(shape, dtype=torch.bool) for shape, _ in likes]
    for piece in reference(problem).pieces():
        part = torch.empty(likes[piece.output][0])[piece.index]
        assert piece.reference.shape == piece.yardstick.shape == part.shape
        assert (piece.reference.dtype, piece.yardstick.dtype) == (torch.float64, likes[piece.output][1])
        covered[piece.output][piece.index] = True
    assert all(bool(every.all()) for every in covered)


@for_every_operation
@in_every_dtype
def test_its_reference_leaves_inputs_and_settings_alone(name, dtype):
    problem = small(name, dtype)
    inputs = problem.inputs("cpu", 1)
    copies = [tensor.clone() for tensor in inputs.tensors]
    before = torch.backends.cuda.matmul.fp32_precision
    state = torch.random.get_rng_state()
    list(problem.check(inputs, 1, thorough=True))
    assert all(torch.equal(a, b) for a, b in zip(inputs.tensors, copies, strict=True))
    assert torch.backends.cuda.matmul.fp32_precision == before
    assert torch.equal(torch.random.get_rng_state(), state)


# --- who is right -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem, distribution", CHECKED)
def test_plain_pytorch_is_right(problem, distribution):
    for seed in (1, 2, 3):
        known = reference(problem, seed, distribution)
        found = verdict(problem, right(problem, known.inputs), seed, distribution)
        assert found["correct"], found["why"]


@for_every_operation
@in_every_dtype
def test_plain_pytorch_is_right_at_every_edge(name, dtype):
    for edge in small(name, dtype).edges():
        found = verdict(edge, right(edge, reference(edge).inputs))
        assert found["correct"], (edge.label(), found["why"])


@for_every_operation
def test_every_kernel_that_runs_here_is_right(name):
    """But what has to be compiled, which takes long: it is measured elsewhere."""
    problem = small(name)
    inputs = reference(problem).inputs
    for info in kernels(name):
        why_not = info.why_not_on("cpu", None) or info.why_not_for(problem.dtype, problem.model_dump())
        if not why_not and not info.name.startswith("compiled"):
            found = verdict(problem, load(info).call(*inputs.tensors, **inputs.options))
            assert found["correct"], (info.name, found["why"])


def last_of_first_dimension(value):
    def change(out):
        out = out.clone()
        out[-1] = value
        return out

    return change


WRONG = {
    "zero": torch.zeros_like,
    "a constant": lambda out: torch.full_like(out, float(out.float().mean()) + 0.5),
    "another sign": torch.neg,
    "5% too large": lambda out: out * 1.05,
    "NaN at the end": lambda out: torch.where(
        torch.arange(out.numel()).view(out.shape) == out.numel() - 1, torch.nan, out
    ),
    "in float64": torch.Tensor.double,
    "with one dimension more": lambda out: out[None],
    "no tensor": torch.Tensor.tolist,
}
WITH_ROWS = {
    "last row zero": last_of_first_dimension(0.0),
    "last row not written": last_of_first_dimension(math.nan),
    "one row off": lambda out: out.roll(1, 0),
}


@for_every_operation
@in_every_dtype
@pytest.mark.parametrize("change", (WRONG | WITH_ROWS).values(), ids=(WRONG | WITH_ROWS).keys())
def test_a_wrong_output_is_caught(name, dtype, change):
    """Each output in turn, the others right."""
    problem = small(name, dtype)
    outs = outputs.as_tuple(right(problem, reference(problem).inputs))
    for number, out in enumerate(outs):
        if change in WITH_ROWS.values() and not (out.ndim and len(out) > 1):
            continue
        changed = [change(one) if one is out else one for one in outs]
        found = verdict(problem, changed[0] if len(outs) == 1 else tuple(changed))
        assert not found["correct"] and found["why"], f"output {number + 1}"


# --- through the bench ------------------------------------------------------------------------------------------------


def benched(problem, kernel):
    """The verdict on a function of (inputs' tensors, right outputs as a tuple), as the measuring process comes to it."""

    def call(*tensors, **options):
        found = kernel(tensors, outputs.as_tuple(plain(problem.name)(*tensors, **options)))
        return found[0] if len(found) == 1 else found

    bench = Bench("cpu")
    bench.open({"operation": problem.name, "dtype": problem.dtype, "sizes": problem.model_dump(exclude={"dtype"})})
    bench.arms.loaded[f"{problem.name}/{PLANTED}"] = LoadedKernel(call, "", "")
    got = bench.verify(PLANTED, seed=6, thorough=True)
    return judge([got.reading], problem.dtype, {name: getattr(got, name) for name in ("inputs_changed", "shared")})


def changes_an_input(tensors, outs):
    next(tensor for tensor in tensors if tensor.is_floating_point()).mul_(2)
    return outs


def half_written(tensors, outs):
    new = tuple(torch.empty_like(out) for out in outs)
    for into, out in zip(new, outs, strict=True):
        flat = into.view(-1)
        flat[: len(flat) // 2] = out.reshape(-1)[: len(flat) // 2]
    return new


WRITERS: list[threading.Thread] = []


def late(tensors, outs):
    """Its outputs are written by a thread, which starts when the bench waits for late writes."""
    new = tuple(torch.zeros_like(out) for out in outs)

    def write():
        for into, out in zip(new, outs, strict=True):
            into.copy_(out)

    WRITERS.append(threading.Thread(target=write))
    return new


def written_meanwhile(_):
    """Stands for the bench's wait."""
    while WRITERS:
        WRITERS[-1].start()
        WRITERS.pop().join()


def sharing():
    held = []

    def kernel(tensors, outs):
        held[:] = held or [torch.empty_like(out) for out in outs]
        return tuple(into.copy_(out) for into, out in zip(held, outs, strict=True))

    return kernel


@for_every_operation
@in_every_dtype
def test_the_bench_accepts_what_is_right(name, dtype):
    found = benched(small(name, dtype), lambda tensors, outs: outs)
    assert found["correct"], found["why"]


@for_every_operation
@pytest.mark.parametrize(
    "kernel, reason",
    [
        (lambda tensors, outs: tuple(map(torch.empty_like, outs)), ""),
        (half_written, ""),
        (late, "the output changed after the call returned"),
        (changes_an_input, "the kernel changed its inputs"),
        (None, "calls share one output"),
    ],
    ids=["never written", "half written", "late", "changes an input", "shares one output"],
)
def test_the_bench_catches_what_only_it_can_see(name, kernel, reason, monkeypatch):
    monkeypatch.setattr(checks, "sleep", written_meanwhile)
    WRITERS.clear()
    found = benched(small(name), kernel or sharing())
    assert not found["correct"]
    assert reason in found["why"]

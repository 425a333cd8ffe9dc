"""flashinfer definitions with their solutions and workloads."""

import json
import re

import pytest
import torch
from bringing import (
    every_event,
    flashinfer_files,
    judged,
    measured,
    name_of,
    session_of,
    submissions_of,
)

from kernels.contract.arm_result import Status
from kernels.formats.bringing import cases_of, dtype_of, pair_in
from kernels.formats.definitions import names_for
from kernels.formats.safetensors import text_of
from kernels.problems import flashinfer
from kernels.submission import Unreadable, kernel_of

SLOW = pytest.mark.thorough(
    "kernels of other formats, each in processes of its own: `make test` has a measured KernelBench pair"
)


@SLOW
@pytest.mark.parametrize(
    ("definition", "solution", "right"),
    [("scale_h128", "scale_python", True), ("scale_h128", "scale_wrong", False), ("rmsnorm_h256", "rmsnorm_into", True),
     ("gemm_n64_k128", "gemm_linear", True)],
)  # fmt: skip
def test_solutions_of_flashinfer_are_right_or_wrong(definition, solution, right):
    problem, kernel = submissions_of(flashinfer_files(definition, solution))
    assert (name_of(problem).partition("@")[0], name_of(kernel).partition("@")[0]) == (definition, solution)
    assert dtype_of(problem.files) == {"rms": "bfloat16", "gem": "float16", "sca": "float32"}[definition[:3]]
    assert judged(problem, kernel)["correct"] is right


@SLOW
def test_a_solution_of_flashinfer_is_measured():
    problem, kernel = submissions_of(flashinfer_files("rmsnorm_h256", "rmsnorm_into"))
    assert [*kernel.files] == ["helper.py", "main.py"]
    event = measured(problem, kernel)
    assert event.workload.label == f"problem bf16 {name_of(problem)}"
    assert [one.status for one in event.results] == [Status.OK, Status.OK], [one.why for one in event.results]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            ("scale_h128.json", '"x": {', '"index": {"shape": ["n"], "dtype": "int32"}, "x": {'),
            "scale_h128.json cannot be measured: its input index of int32 needs values: add the workloads of scale_h128",
        ),
        (("scale_h128.json", '"axes"', '"axis"'), "the definition scale_h128 is not among these files"),
        (
            ("scale_h128.json", '"n",', '"nowhere",'),
            "scale_h128.json cannot be read as a definition: KeyError: 'nowhere'",
        ),
        (("scale_python.json", "main.py::run", "main.py::run) + (1"), "the entry_point in scale_python.json must be"),
        (("scale_python.json", "main.py::run", "other.py::run"), "the entry_point in scale_python.json must be"),
    ],
)
def test_a_definition_or_solution_that_cannot_be_read_says_why(change, why):
    name, old, new = change
    files = flashinfer_files("scale_h128", "scale_python")
    assert old in files[name]
    with pytest.raises(Unreadable, match=re.escape(why)):
        pair_in(files | {name: files[name].replace(old, new)})


GATHER = {
    "name": "gather_h16",
    "axes": {"n": {"type": "var"}, "rows": {"type": "var"}, "h": {"type": "const", "value": 16}},
    "inputs": {
        "table": {"shape": ["rows", "h"], "dtype": "float16"},
        "index": {"shape": ["n"], "dtype": "int64"},
        "shift": {"shape": ["n"], "dtype": "int32"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"out": {"shape": ["n", "h"], "dtype": "float16"}},
    "reference": "def run(table, index, shift, scale):\n    return table[index] * scale + shift[:, None]\n",
}
INTO = "def run(table, index, shift, scale, out):\n    out.copy_(shift[:, None] + scale * table[index])\n"
WRONG = "def run(table, index, shift, scale):\n    return table[index] + shift[:, None]\n"


def safetensors(**tensors):
    """The bytes of a file: (dtype as the format calls it, tensor) by key."""
    header, values = {"__metadata__": {"made": "here"}}, b""
    for key, (dtype, tensor) in tensors.items():
        raw = tensor.contiguous().view(torch.uint8).numpy().tobytes()
        header[key] = {
            "dtype": dtype,
            "shape": list(tensor.shape),
            "data_offsets": [len(values), len(values) + len(raw)],
        }
        values += raw
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + values


def workload(n, rows, path="blob/gather/a.safetensors", scale=0.5, **more):
    """A line of a .jsonl file."""
    inputs = {"table": {"type": "random"}, "scale": {"type": "scalar", "value": scale}}
    inputs["index"] = {"type": "safetensors", "path": path, "tensor_key": f"index_{n}"}
    said = {"axes": {"n": n, "rows": rows}, "inputs": inputs | more, "uuid": f"{n}-{rows}"}
    return json.dumps({"definition": "gather_h16", "workload": said, "solution": None, "evaluation": None})


def gather(*lines, content=INTO, **more):
    solution = {"name": "mine", "definition": "gather_h16", "sources": [{"path": "main.py", "content": content}]}
    solution["spec"] = {"language": "python", "entry_point": "main.py::run"}
    indices = safetensors(index_40=("I64", torch.arange(40) % 30), index_9=("I64", torch.zeros(9, dtype=torch.int64)))
    files = {
        "gather_h16.json": json.dumps(GATHER),
        "mine.json": json.dumps(solution),
        "a.safetensors": text_of(indices),
    }
    return files | {"gather.jsonl": "\n".join(lines)} | more


@SLOW
def test_workloads_give_lengths_of_axes_numbers_and_tensors():
    problem, kernel = submissions_of(gather(workload(9, 5), "", workload(40, 30)))
    assert cases_of(problem.files) == ["n=9 rows=5", "n=40 rows=30"]
    assert [*problem.files] == ["definition.py", "values_1.b64", "values_2.b64"] and [*kernel.files] == ["main.py"]
    small, large = every_event(problem, kernel)
    assert small.workload.label == f"problem fp16 {name_of(problem)} n=9 rows=5"
    for event in (small, large):
        assert [one.status for one in event.results] == [Status.OK, Status.OK], [one.why for one in event.results]
    assert measured(*submissions_of(gather(workload(9, 5), content=WRONG))).results[-1].status == Status.INCORRECT


CASTS = """import torch


def run(table, index, shift, scale):
    assert table.dtype == torch.float16
    return (table[index].to(torch.float32) * scale + shift[:, None]).to(torch.float16)
"""


@SLOW
@pytest.mark.parametrize(
    ("content", "right"),
    [
        (INTO, True),
        (
            "def run(*, shift, scale, table, index):\n    return (table.float()[index] * scale + shift[:, None]).half()\n",
            True,
        ),
        (
            "def run(table, index, shift, scale):\n    return (table.float()[index] * scale).half() + shift[:, None] * 1.01\n",
            False,
        ),
        (WRONG, False),
    ],
)
def test_a_reference_that_casts_its_result_is_judged(content, right):
    """It has no answer in float64 of its own: correctness was unknown."""
    files = gather(workload(9, 5), content=content)
    files["gather_h16.json"] = json.dumps(GATHER | {"reference": CASTS})
    problem, kernel = submissions_of(files)
    assert judged(problem, kernel)["correct"] is right
    assert ("by_name=['table', 'index', 'shift', 'scale'])" in kernel.files["main.py"]) == ("*" in content[:10])


@pytest.mark.parametrize(
    ("head", "into", "names"),
    [
        ("def run(a, b)", True, []),
        ("def run(a, b, *, eps=1)", True, []),
        ("def run(a, b, **more)", True, []),
        ("def run(a, *, b)", True, ["a", "b"]),
        ("def run(*, a, b, out)", False, ["a", "b", "out"]),
        ("def run(**all)", True, ["a", "b", "out"]),
        ("def run(**all)", False, ["a", "b"]),
        ("def other(**all)", True, []),
    ],
)
def test_arguments_are_named_where_they_must_be(head, into, names):
    assert names_for(f"{head}:\n    pass\n", "run", ["a", "b"], ["out"], into) == names


@SLOW
def test_given_tensors_and_random_whole_numbers_are_what_a_kernel_gets():
    problem, _ = submissions_of(gather(workload(40, 30)))
    with session_of(problem, problem) as session:
        assert not session.why_no_problem
        described = session.source.described
    assert [one.array.dtype if one.array else one.value for one in described.arguments] == [
        "float16",
        "int64",
        "int32",
        0.5,
    ]
    drawn = flashinfer.Reference(print, [{"shape": [200], "dtype": name} for name in ("int8", "bool", "uint8")], "cpu")
    whole, truth, small = drawn.inputs(3)
    assert whole.unique().numel() > 50 and set(truth.tolist()) == {True, False} and small.dtype == torch.uint8


def as_sol(files, languages=("pytorch",), **inputs):
    """The same as people have it for SOL-ExecBench: `languages`, workloads that name no definition, and sources in files."""
    solution = json.loads(files["mine.json"])
    (source,) = solution["sources"]
    solution["spec"] = {"languages": list(languages), "target_hardware": ["LOCAL"], "entry_point": "main.py::run"}
    solution["sources"] = [{"path": "main.py"}]
    lines = [json.loads(line)["workload"] for line in files["gather.jsonl"].splitlines() if line]
    lines = [json.dumps(one | {"inputs": one["inputs"] | inputs}) for one in lines]
    changed = {"mine.json": json.dumps(solution), "main.py": source["content"], "gather.jsonl": "\n".join(lines)}
    return files | changed


def test_a_solution_of_sol_execbench_is_the_same_submission():
    files = gather(workload(9, 5), workload(40, 30))
    problem, kernel = submissions_of(as_sol(files))
    assert cases_of(problem.files) == ["n=9 rows=5", "n=40 rows=30"] and [*kernel.files] == ["main.py"]
    plain, known = submissions_of(files)
    assert (name_of(problem), name_of(kernel)) == (name_of(plain), name_of(known))


@pytest.mark.parametrize(
    ("files", "why"),
    [
        (as_sol(gather(workload(9, 5)), ("cuda_cpp",)), "it is in cuda_cpp: that needs a compiler with PyTorch's headers"),
        (as_sol(gather(workload(9, 5)), ("triton", "cuda_cpp")), "it is in cuda_cpp: that needs"),
        (as_sol(gather(workload(9, 5)), ()), "its spec names no language"),
        (as_sol(gather(workload(9, 5)), table={"type": "custom"}), "its input table is custom, and the definition has no "
         "custom_inputs_entrypoint"),
    ],
)  # fmt: skip
def test_what_of_sol_execbench_cannot_run_is_said(files, why):
    with pytest.raises(Unreadable, match=re.escape(why)):
        submissions_of(files)


# --- inputs that a function of the definition makes, and axes that follow from others ---

DISPATCH = {
    "name": "dispatch_e8",
    "axes": {
        "t": {"type": "var"},
        "e": {"type": "const", "value": 8},
        "pairs": {"type": "expr", "expression": "t * 2"},
    },
    "custom_inputs_entrypoint": "routes",
    "inputs": {
        "x": {"shape": ["t", "e"], "dtype": "float32"},
        "route": {"shape": ["t"], "dtype": "int64"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"out": {"shape": ["pairs"], "dtype": "float32"}},
    "reference": """import torch


def routes(axes_and_scalars, device):
    t, e = axes_and_scalars["t"], axes_and_scalars["e"]
    assert axes_and_scalars["pairs"] == 2 * t and axes_and_scalars["scale"] == 0.5
    return {"route": torch.randint(0, e, (t,), device=device)}


def run(x, route, scale):
    return torch.cat([x.gather(1, route[:, None])[:, 0], x.sum(1)]) * scale
""",
}
GATHERED = """def run(x, route, scale, out):
    out[: len(x)] = x.gather(1, route[:, None])[:, 0] * scale
    out[len(x) :] = x.sum(1) * scale
"""


def dispatch(content=GATHERED, t=24, **changed):
    line = {"axes": {"t": t}, "inputs": {"x": {"type": "random"}, "route": {"type": "custom"}}, "uuid": "one"}
    line["inputs"]["scale"] = {"type": "scalar", "value": 0.5}
    solution = {"name": "mine", "definition": "dispatch_e8", "sources": [{"path": "main.py", "content": content}]}
    solution["spec"] = {"languages": ["pytorch"], "entry_point": "main.py::run"}
    definition = json.dumps(DISPATCH | changed)
    return {"dispatch_e8.json": definition, "mine.json": json.dumps(solution), "workload.jsonl": json.dumps(line)}


@SLOW
def test_a_function_of_the_definition_makes_inputs():
    problem, kernel = submissions_of(dispatch())
    (event,) = every_event(problem, kernel)
    assert [one.status for one in event.results] == [Status.OK, Status.OK], [one.why for one in event.results]
    wrong = "def run(x, route, scale):\n    import torch\n    return torch.cat([x[:, 0], x.sum(1)]) * scale\n"
    assert measured(*submissions_of(dispatch(wrong))).results[-1].status == Status.INCORRECT


@pytest.mark.parametrize(
    ("makes", "why"),
    [
        ({}, "the function that makes custom inputs makes no route"),
        ({"route": torch.zeros(24)}, "the custom input route is float32 [24], and the definition says int64 [24]"),
        ({"route": torch.zeros(9, dtype=torch.int64)}, "is int64 [9], and the definition says int64 [24]"),
        ({"route": 3}, "the custom input route is int, not a tensor of int64 [24]"),
    ],
)
def test_what_that_function_makes_is_what_the_definition_says(makes, why):
    said = {"shape": [24], "dtype": "int64", "custom": "route"}
    reference = flashinfer.Reference(print, [], "cpu", cases={"a": [said]}, custom=lambda *_: makes, lengths={"a": {}})
    reference.choose("a")
    with pytest.raises(ValueError, match=re.escape(why)):
        reference.inputs(1)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        (dispatch(custom_inputs_entrypoint="gone"), "custom_inputs_entrypoint 'gone' is no function of the reference"),
        (dispatch(custom_inputs_entrypoint="a b"), "custom_inputs_entrypoint 'a b' is no function of the reference"),
        (dispatch(axes=DISPATCH["axes"] | {"pairs": {"type": "expr", "expression": "t.real"}}), "t.real is no arithmetic"),
        (dispatch(axes=DISPATCH["axes"] | {"pairs": {"type": "expr", "expression": "t / 0"}}), "'t / 0', has no length"),
        (dispatch(axes=DISPATCH["axes"] | {"pairs": {"type": "expr", "expression": "t / 5"}}), "has no length: it is 4.8"),
        (dispatch(axes=DISPATCH["axes"] | {"pairs": {"type": "expr", "expression": "9 ** 9 ** 9"}}), "has no length"),
        (dispatch(axes=DISPATCH["axes"] | {"pairs": {"type": "expr", "expression": "-" * 20_000 + "t"}}), "has no length"),
    ],
)  # fmt: skip
def test_a_function_or_an_axis_that_cannot_be_used_is_said(files, why):
    with pytest.raises(Unreadable, match=re.escape(why)):
        pair_in(files)


@pytest.mark.parametrize(
    ("names", "out", "found"),
    [
        (["a", "b"], {"b": 2, "a": 1}, (1, 2)),
        (["a"], {"a": 1}, 1),
        ([], {"a": 1}, {"a": 1}),
        (["a", "b"], {"a": 1}, {"a": 1}),
        (["a", "b"], (1, 2), (1, 2)),
    ],
)
def test_outputs_by_name_come_in_the_order_of_the_definition(names, out, found):
    assert flashinfer.in_order(lambda: out, names)() == found


def test_a_solution_that_returns_names_is_declared_with_them():
    by_name = "def run(table, index, shift, scale):\n    return {'out': table[index] * scale + shift[:, None]}\n"
    problem, kernel = submissions_of(gather(workload(9, 5), content=by_name))
    assert "names=['out']" in kernel.files["main.py"] and "names=" not in problem.files["definition.py"]


def test_a_language_that_is_python_needs_no_compiler():
    _, kernel = submissions_of(as_sol(gather(workload(9, 5)), ("cute_dsl",)))
    assert [*kernel.files] == ["main.py"]


def test_a_definition_without_workloads_keeps_its_version():
    """It was stored before workloads were read."""
    problem, kernel = submissions_of(flashinfer_files("rmsnorm_h256", "rmsnorm_into"))
    assert (name_of(problem), name_of(kernel)) == ("rmsnorm_h256@3aeae1c2d4", "rmsnorm_into@81b185b5c1")


def test_workloads_whose_files_are_missing_are_left_out_and_named():
    problem, _ = submissions_of(gather(workload(9, 5), workload(8, 5, "b/other.safetensors")))
    said = kernel_of(problem.files).doc
    assert said.startswith(
        "The reference of a flashinfer definition, on 1 workload. Left out: one: its input index comes from"
    )
    assert "b/other.safetensors, which is not among the files" in said


@pytest.mark.parametrize(
    ("files", "why"),
    [
        (gather(workload(9, 5, "x/y.safetensors")), "no workload of gather_h16 can be measured: its input index comes from "
         "x/y.safetensors, which is not among the files"),
        (gather("{"), "gather.jsonl cannot be read: line 1 is not JSON"),
        (gather(workload(9, 5).replace("gather_h16", "other")), "gather.jsonl has no workload of the definition gather_h16"),
        (gather(workload(9, 0)), "a workload of gather_h16 gives no length of the axis rows"),
        (gather(workload(9, 5, scale="x")), "the value of the input scale of gather_h16 must be a finite number"),
        (gather(workload(9, 5, scale=1e999)), "must be a finite number"),
        (gather(workload(9, 5, table={"type": "file"})), "is file: known are random, scalar, safetensors and custom"),
        (gather(workload(7, 5)), "a.safetensors holds no tensor index_7"),
        (gather(workload(40, 5).replace('"n": 40', '"n": 41')), "is int64 [41], and in a.safetensors int64 [40]"),
        (gather(workload(9, 5), **{"a.safetensors": text_of(b"\xff" * 20)}), "a.safetensors cannot be read as safetensors"),
        (gather(workload(9, 5), **{"a.safetensors": "no base64"}), "a.safetensors cannot be read as safetensors"),
        (gather(workload(9, 5), **{"a.safetensors": text_of(safetensors(index_9=("I64", torch.zeros(9)))[:-4])}),
         "its values are not those of int64 [9]"),
        (gather(workload(9, 5, **{key: {"type": "safetensors", "path": "a.safetensors"} for key in ("table", "shift")})),
         "all of its tensors have given values, so a kernel could remember its outputs"),
    ],
)  # fmt: skip
def test_a_workload_that_cannot_be_read_says_why(files, why):
    with pytest.raises(Unreadable, match=re.escape(why)):
        pair_in(files)

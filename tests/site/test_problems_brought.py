"""Problems that came with their kernels, on the site: submitted in two files, one workload each, and pages that know no work."""

import json
from types import SimpleNamespace

import pytest
from cast import load
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse
from django.utils import timezone
from form import again

from kernels.contract.export import Export
from kernels.report.tables import words_of
from kernels.starts import start
from kernels.workload import Workload
from runs.charts.run_charts import short_labels
from runs.models import ApiToken, Gpu, Measurement, Run, Submission
from runs.submitting import NotSubmitted, config_for

FORM = reverse("submit")
MODEL = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x.exp() - 1


def get_inputs():
    return [torch.randn(64, 64)]
"""
NEW = """import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.expm1()
"""
FILES = {"7_expm1.py": MODEL, "fast.py": NEW}
UNKNOWN = ("tflops", "gb_per_s", "limit_ms", "limit_share")


@pytest.fixture
def ready(cpu, configs):
    """A device that takes submitted kernels."""
    Gpu.objects.filter(pk=cpu.pk).update(no_submissions="")
    cpu.refresh_from_db()
    return cpu


def sent(files, **more):
    dropped = [SimpleUploadedFile(name, text.encode()) for name, text in files.items()]
    fields = {"filename": "", "source": "", "device": "", "config": "", "effort": "quick", "message": "faster"}
    return fields | {"dropped": dropped} | more


def stored(owner, files=FILES, **more):
    """(the problem, the kernel) that a form makes."""
    answer = owner.post(FORM, sent(files, **more))
    assert answer.status_code == 302, answer.context["form"].errors
    kernel = Submission.objects.latest("pk")
    return Submission.objects.named("problem", kernel.problem), kernel


def test_two_files_become_a_problem_and_a_kernel_and_one_run(owner, ready):
    problem, kernel = stored(owner, device=str(ready.pk))
    assert (problem.name, kernel.name, kernel.operation, kernel.message) == ("7_expm1", "fast", "problem", "faster")
    assert (problem.problem, kernel.problem) == (problem.kernel, problem.kernel)
    assert kernel.files["fast.py"].startswith(NEW) and "# Added: how it is called." in kernel.files["fast.py"]
    run = Run.objects.get()
    assert run.spec.kernels == [problem.kernel, kernel.kernel] and run.spec.baseline == problem.kernel
    assert [w.label for w in run.spec.workloads] == [f"problem fp32 {problem.kernel}"]
    assert run.spec.protocol.isolated and run.run_spec().submissions == [problem.spec, kernel.spec]
    assert run.title == f"{kernel.kernel} on {problem.kernel}"
    assert problem.kernel in owner.get(run.get_absolute_url()).content.decode()


def test_the_list_of_submissions_says_which_is_the_problem(owner, ready):
    problem, _ = stored(owner, message="")
    page = owner.get("/submissions/").content.decode()
    assert "<small>Model of KernelBench.</small>" in page
    assert f"<small>ModelNew of KernelBench, in the place of the Model of {problem.kernel}.</small>" in page


def test_kernels_for_the_same_files_share_the_problem(owner, ready):
    problem, kernel = stored(owner)
    same, other = stored(owner, FILES | {"fast.py": NEW.replace("x.expm1()", "torch.special.expm1(x)")})
    assert (same, other.problem) == (problem, kernel.problem) and other != kernel
    assert config_for(other).workloads == config_for(kernel).workloads
    assert config_for(problem).kernels == [problem.kernel]
    assert stored(owner, FILES | {"7_expm1.py": MODEL + "# more\n"})[0] != problem


def test_the_api_takes_a_pair_too(owner, client, ready):
    token = ApiToken.objects.make(owner.user, "writes", writes=True, days=7)[1]

    def post(body):
        return client.post(
            "/api/submissions", body, content_type="application/json", headers={"Authorization": f"Bearer {token}"}
        )

    answer = post({"files": FILES, "gpu": "epyc"})
    assert answer.status_code == 201, answer.json()
    assert answer.json()["operation"] == "problem" and answer.json()["run"]["id"] == Run.objects.get().pk
    assert Submission.objects.count() == 2
    assert post({"files": FILES}).json()["new"] is False


@pytest.mark.parametrize(
    ("files", "more", "why"),
    [
        (
            {"fast.py": NEW},
            {},
            "there is no file with Model and get_inputs that it replaces; submit its problem with it.",
        ),
        ({"7_expm1.py": MODEL}, {}, "7_expm1.py is a problem without a kernel: add the file with ModelNew."),
        (FILES, {"config": "smoke"}, "fast is measured on its own problem: choose no config."),
        (
            {"a.py": "def custom_kernel(data):\n    return data\n"},
            {},
            "there is no reference.py in its folder or above",
        ),
    ],
)
def test_what_is_missing_is_said_and_nothing_is_stored(owner, ready, files, more, why):
    answer = owner.post(FORM, sent(files, device=str(ready.pk), **more))
    assert answer.status_code == 422 and why in answer.content.decode()
    assert not Submission.objects.exists() and not Run.objects.exists()


def test_a_kernel_of_gpu_mode_is_submitted_with_its_problem(owner, ready):
    files = {
        "reference.py": "def generate_input(size, seed):\n    pass\n\n\ndef ref_kernel(data):\n    return data\n",
        "task.yml": "files:\n  - {name: task.py, source: task.py}\nbenchmarks:\n  - {size: 64, seed: 1}\n",
        "task.py": "input_t = output_t = object\n",
        "submission.py": "#!POPCORN leaderboard same\nfrom task import input_t\n\n\ndef custom_kernel(data):\n    return data\n",
    }
    problem, kernel = stored(owner, files, device=str(ready.pk))
    assert (problem.name, sorted(problem.files)) == ("same", ["reference.py", "task.py"])
    assert (kernel.name, sorted(kernel.files)) == ("submission", ["submission.py", "task.py"])
    assert Run.objects.get().run_spec().submissions == [problem.spec, kernel.spec]


def test_every_benchmark_is_a_workload_of_one_run(owner, ready):
    files = {
        "reference.py": "def generate_input(n, seed):\n    pass\n\n\ndef ref_kernel(data):\n    return data\n",
        "task.yml": "benchmarks:\n  - {n: 64, seed: 1}\n  - {n: 128, seed: 1}\ntests:\n  - {n: 7, seed: 1}\n",
        "submission.py": "#!POPCORN leaderboard same\ndef custom_kernel(data):\n    return data\n",
    }
    problem, kernel = stored(owner, files, device=str(ready.pk))
    run = Run.objects.get()
    assert [w.label for w in run.spec.workloads] == [f"problem fp32 {problem.kernel} n={n}" for n in (64, 128)]
    assert (run.spec.baseline, run.run_spec().submissions) == (problem.kernel, [problem.spec, kernel.spec])
    assert "on 2 benchmarks of its task.yml" in owner.get(problem.get_absolute_url()).content.decode()
    assert owner.get(run.get_absolute_url()).status_code == 200


def test_a_file_of_tensors_is_dropped_with_a_flashinfer_workload(owner, ready):
    array = {"shape": ["n"], "dtype": "int32"}
    definition = {"name": "pick", "axes": {"n": {"type": "var"}}, "outputs": {"y": array | {"dtype": "float32"}}}
    definition |= {
        "inputs": {"at": array, "x": array | {"dtype": "float32"}},
        "reference": "def run(at, x):\n    return x[at]\n",
    }
    spec = {"language": "python", "entry_point": "main.py::run"}
    solution = {"name": "mine", "definition": "pick", "spec": spec}
    solution["sources"] = [{"path": "main.py", "content": "def run(at, x):\n    return x.take(at)\n"}]
    at = {"type": "safetensors", "path": "blob/at.safetensors", "tensor_key": "at"}
    line = {"definition": "pick", "workload": {"axes": {"n": 2}, "inputs": {"at": at}, "uuid": "u"}}
    header = json.dumps({"at": {"dtype": "I32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    tensors = len(header).to_bytes(8, "little") + header + bytes([1, 0, 0, 0, 0, 0, 0, 0])
    files = {"pick.json": json.dumps(definition), "mine.json": json.dumps(solution), "pick.jsonl": json.dumps(line)}
    answer = owner.post(FORM, sent(files))
    assert "its input at comes from blob/at.safetensors, which is not among the files" in answer.content.decode()
    fields = sent(files)
    fields["dropped"].append(SimpleUploadedFile("at.safetensors", tensors))
    answer = owner.post(FORM, fields)
    assert answer.status_code == 302, answer.context["form"].errors
    kernel = Submission.objects.latest("pk")
    problem = Submission.objects.named("problem", kernel.problem)
    assert problem.files["values_1.b64"] == "AQAAAAAAAAA="
    assert [w.label for w in config_for(kernel).workloads] == [f"problem fp32 {problem.kernel} n=2"]


def test_a_fork_keeps_its_problem_and_is_measured_beside_its_parent(owner, ready):
    problem, kernel = stored(owner)
    changed = {name: text.replace("x.expm1()", "x.exp() - 1") for name, text in kernel.files.items()}
    fields = {"parent": kernel.version, "device": str(ready.pk), "beside": "on"}
    same, fork = stored(owner, changed, **fields)
    assert (same, fork.parent) == (problem, kernel)
    assert Run.objects.get().spec.kernels == [problem.kernel, kernel.kernel, fork.kernel]
    page = owner.get(fork.get_absolute_url()).content.decode()
    assert f'for the problem <a href="{problem.get_absolute_url()}">' in page
    assert 'name="config"' not in page  # its workload is its own


def test_a_kernel_whose_problem_is_not_stored_is_not_measured(owner, ready):
    kernel = stored(owner)[1]
    Submission.objects.filter(name="7_expm1").delete()
    with pytest.raises(NotSubmitted, match="is not stored here: submit both files"):
        config_for(kernel)
    answer = owner.post(
        reverse("measure_submission", args=[kernel.version]), {"device": str(ready.pk), "effort": "quick"}
    )
    assert answer.status_code == 422 and "submit both files" in answer.content.decode()


# --- pages ------------------------------------------------------------------------------------------------------------


def _checked(result):
    return result.correctness and result.correctness.model_copy(
        update={"own_check": "right", "edges": {"n=7": "right"}}
    )


@pytest.fixture
def measured(owner, ready, exported):
    """(the problem, the kernel, a run of them): an export whose first measurement is of that problem."""
    problem, kernel = stored(owner)
    export = Export.model_validate(exported)
    first = export.measurements[0]
    names = {first.baseline: problem.kernel, next(r.kernel for r in first.results if r.speedup): kernel.kernel}
    known = [r for r in first.results if r.kernel in names]
    results = [
        r.model_copy(update={"kernel": names[r.kernel], "correctness": _checked(r)} | dict.fromkeys(UNKNOWN))
        for r in known
    ]
    workload = Workload(operation="problem", dtype="float32", sizes={"problem": problem.kernel})
    changes = {
        "workload": workload,
        "key": workload.key,
        "baseline": problem.kernel,
        "results": results,
        "mode": "batch",
        "isolated": True,
    }
    whole = export.model_copy(update={"measurements": [first.model_copy(update=changes)]})
    data = whole.model_dump(mode="json", by_alias=True)
    data["config"] = config_for(kernel).model_dump(mode="json")
    run = load(data, "brought")
    return problem, kernel, run


def test_pages_say_where_the_reference_came_from_and_nothing_of_unknown_work(owner, measured):
    problem, kernel, run = measured
    result = Measurement.objects.get(run=run).results.get(kernel__name=kernel.kernel)
    page = owner.get(reverse("result", args=[run.pk, result.pk])).content.decode()
    assert f'Inputs and reference came with a submission, <a href="{problem.get_absolute_url()}">' in page
    assert "the problem&#x27;s own check" in page and "n=7" in page
    assert "inputs 0 B" not in page and "0 TFLOP/s" not in page and "speed of light" not in page
    page = owner.get(run.get_absolute_url()).content.decode()
    assert f'inputs and reference came with <a href="{problem.get_absolute_url()}">' in page
    assert f">{kernel.kernel}</a>" in owner.get(problem.get_absolute_url()).content.decode()


def test_the_leaderboard_has_a_heading_for_each_problem_and_rows_for_its_sizes(owner, measured):
    problem, _, _ = measured
    page = owner.get("/leaderboard/?operation=problem").content.decode()
    assert (
        f'<div class="o"><a href="{problem.get_absolute_url()}">{problem.kernel}</a> <small>problem</small></div>'
        in page
    )
    assert '<span class="y" role="rowheader">its own sizes</span>' in page
    assert f"on 1 {problem.kernel} workload on" in page or f"on {problem.kernel} workload on" in page


def test_a_run_of_a_problem_names_its_sizes_and_not_the_problem_again():
    assert words_of("problem fp32 rows@0123456789 n=4 m=8") == ["problem", "fp32", "n=4", "m=8"]
    assert words_of("problem fp32 rows@0123456789") == ["problem", "fp32", "rows@0123456789"]
    assert words_of("gemm fp16 M=4 N=8") == ["gemm", "fp16", "M=4", "N=8"]
    shown = {"status": "ok", "verdict": "FASTER", "p50_ms": 1.0, "mode": "batch", "kernel": "mine"}
    rows = [
        SimpleNamespace(workload_key=str(n), workload=f"problem fp32 rows@0123456789 n={n} m=8", **shown)
        for n in (4, 5)
    ]
    assert short_labels(rows, 112) == ([["n=4"], ["n=5"]], "fp32 m=8")


def test_no_page_fails_of_a_problem(owner, measured):
    problem, kernel, run = measured
    on = reverse("kernel_workload", args=["problem", kernel.kernel, Measurement.objects.get(run=run).workload.key])
    addresses = [
        "/", "/leaderboard/", "/leaderboard/?operation=problem", "/results/", "/results/?operation=problem", "/kernels/",
        "/tiers/",
        "/changes/", f"/compare/?runs={run.pk}", reverse("kernel", args=["problem", kernel.kernel]), on,
        *(f"/runs/{run.pk}.{kind}" for kind in ("csv", "json", "jsonl", "md", "yaml")),
        *(f"/api/{what}" for what in (f"runs/{run.pk}", "results", f"submissions/{kernel.version}")),
        f"/runs/new/?workload={Workload(operation='problem', dtype='float32', sizes={'problem': problem.kernel}).key}",
    ]  # fmt: skip
    for address in addresses:
        assert owner.get(address).status_code == 200, address


def test_a_run_of_a_problem_is_repeated_as_its_yaml(owner, ready, measured):
    run = measured[2]
    values = again(owner, run)
    assert values["what"] == "yaml" and "operation: problem" in values["yaml"]
    answer = owner.post("/runs/new/", values | {"device": str(ready.pk), "again": str(run.pk)})
    assert answer.status_code == 302, answer.context["form"].errors
    repeated = Run.objects.latest("pk")
    assert (repeated.spec.kernels, repeated.spec.workloads) == (run.spec.kernels, run.spec.workloads)


def test_a_whole_kernel_that_is_dropped_replaces_the_example_and_a_helper_joins_it(owner, ready):
    """A pair dropped below the example was sent with it, and the example was measured."""
    example = start("attention/triton")
    typed = {"filename": example.file_name, "source": example.text.replace("\n", "\r\n")}
    problem, kernel = stored(owner, **typed)
    assert problem and kernel.name == "fast"
    owner.post(FORM, sent({"helper.py": "ONE = 1\n"}, **typed))
    assert sorted(Submission.objects.latest("pk").files) == ["helper.py", example.file_name]
    owner.post(FORM, sent(FILES, **typed | {"source": typed["source"] + "\r\n# mine\r\n"}))
    assert example.file_name in Submission.objects.latest("pk").files, "what somebody wrote is kept"


def test_a_kernel_for_a_problem_is_profiled_with_the_files_of_both(owner, ready, measured):
    problem, kernel, run = measured
    Run.objects.filter(pk=run.pk).update(gpu=ready, demo="")
    Gpu.objects.filter(pk=ready.pk).update(no_counters="", seen_at=timezone.now())
    result = Measurement.objects.get(run=run).results.get(kernel__name=kernel.kernel)
    assert "Profile</button>" in owner.get(reverse("result", args=[run.pk, result.pk])).content.decode()
    owner.post(reverse("profile_result", args=[run.pk, result.pk]))
    queued = Run.objects.get(profile_of=result.pk).run_spec()
    assert queued.profile == kernel.kernel and queued.protocol.isolated
    assert queued.submissions == [problem.spec, kernel.spec]

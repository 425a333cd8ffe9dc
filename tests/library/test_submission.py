"""A submission: which kernel its files declare, what it is called, how it travels, and what is refused."""

import os
import subprocess
import sys

import pytest
from pydantic import ValidationError

from kernels import catalog
from kernels.catalog import OPERATIONS_DIR, get_operation, load
from kernels.config_files import configs
from kernels.host.airlock import Facts, Spec
from kernels.host.containment import TRUST_VARIABLE, probe, why_not_contained, why_refused
from kernels.starts import BACKENDS, starts
from kernels.submission import MAX_BYTES, Submission, Unreadable, kernel_of, reading, version_of
from kernels.workload import Config, RunSpec

SWISH = """from kernels.catalog import kernel
from helper import half

@kernel("swish", backend="pytorch")
def mine(x):
    "Twice the half."
    return x * x.sigmoid()
"""
FILES = {"mine.py": SWISH, "helper.py": "def half(x):\n    return x / 2\n"}
STARTS = list(starts())


def spec(kernels, **more):
    workloads = [{"operation": "swish", "dtype": "float32", "rows": 4, "cols": 8}]
    config = Config(name="t", operation="swish", kernels=kernels, workloads=workloads, protocol={"isolated": True})
    return RunSpec.of(config, "cpu", **more)


# --- what files declare -----------------------------------------------------------------------------------------------


def test_the_kernel_is_read_and_never_run():
    files = {"bad.py": 'raise SystemExit("it ran")\nfrom kernels.catalog import kernel\n' + SWISH}
    info = kernel_of(files)
    assert (info.operation, info.name, info.backend, info.doc) == ("swish", "mine", "pytorch", "Twice the half.")


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({}, "there is no file"),
        ({"a.py": "x = 1"}, "no file declares a kernel"),
        ({"a.py": "def ("}, "a.py cannot be read"),
        ({"a.py": "x = " + "-" * 20_000 + "1  # @kernel"}, "a.py cannot be read: expressions are nested too deeply"),
        ({"a.py": SWISH, "b.py": SWISH.replace("mine", "other")}, "declare 2 kernels"),
        ({"../a.py": SWISH}, "is not valid"),
        ({"/etc/a.py": SWISH}, "is not valid"),
        ({".a.py": SWISH}, "is not valid"),
        ({"a.py": SWISH + "#" * MAX_BYTES}, "the limit is 1,000,000"),
        ({"a.py": SWISH + "\0"}, "is not text"),
        ({f"a{n}.py": "" for n in range(51)}, "at most 50"),
        ({"a.py": SWISH.replace('"swish"', '"nosuch"')}, "there is no operation 'nosuch'"),
        ({"a.py": SWISH.replace("backend=", 'name="x@1234567890", backend=')}, "is not valid"),
    ],
)
def test_what_is_no_submission_says_why(files, why):
    with pytest.raises(Unreadable, match=why.replace("(", r"\(")):
        kernel_of(files)


def test_the_version_comes_from_names_and_contents():
    assert version_of(FILES) == version_of(dict(reversed(FILES.items())))
    assert version_of(FILES) != version_of(FILES | {"helper.py": ""})
    assert version_of(FILES) != version_of({"other.py": SWISH, "helper.py": FILES["helper.py"]})


# --- how it travels ---------------------------------------------------------------------------------------------------


def test_its_kernel_is_known_by_name_and_version_only_while_it_is_read(tmp_path):
    one = Submission(operation="swish", files=FILES)
    with reading(tmp_path, [one]):
        info = catalog.get_kernel("swish", f"mine@{one.version}")
        assert (info.name, info.declared_name) == (f"mine@{one.version}", "swish/mine")
        before = list(sys.path)
        try:
            loaded = load(info)
        finally:
            sys.path[:] = before
        assert (loaded.source, loaded.sha256) == (SWISH, info.sha256)
    with pytest.raises(catalog.UnknownName):
        catalog.get_kernel("swish", f"mine@{one.version}")


def test_two_versions_of_a_name_stay_apart(tmp_path):
    both = [Submission(operation="swish", files={"mine.py": SWISH + more}) for more in ("", "# faster\n")]
    with reading(tmp_path, both):
        names = [k.name for k in catalog.kernels("swish") if k.name.startswith("mine@")]
    assert names == sorted(f"mine@{one.version}" for one in both)


def test_a_run_with_a_submission_is_isolated():
    one = Submission(operation="swish", files=FILES)
    assert spec([f"mine@{one.version}"], submissions=[one]).submissions == [one]
    with pytest.raises(ValidationError, match="isolated only"):
        RunSpec(**spec(["eager"], submissions=[one]).model_dump() | {"protocol": {}})
    with pytest.raises(ValidationError, match="isolated only"):
        Config(name="t", operation="swish", kernels=["mine@0123456789"], workloads=[{"rows": 1, "cols": 1}])


def test_agents_that_do_not_know_submissions_are_sent_the_field_only_if_it_says_something():
    one = Submission(operation="swish", files=FILES)
    assert "submissions" not in spec(["eager"]).as_message()
    sent = spec([f"mine@{one.version}"], submissions=[one]).as_message()
    assert RunSpec(**sent).submissions == [one]


# --- where it may run -------------------------------------------------------------------------------------------------

ALL = {"own_user": True, "no_network": True, "read_only": True, "hidden": True}


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("own_user", "a user"),
        ("no_network", "no network"),
        ("read_only", "read-only"),
        ("hidden", "without the files of others"),
    ],
)
def test_what_the_host_cannot_take_away_is_named(field, name, monkeypatch):
    monkeypatch.delenv(TRUST_VARIABLE, raising=False)
    assert why_refused(Facts(**ALL)) == ""
    lacking = Facts(**ALL | {field: False}, missing=["why: not permitted"])
    assert name in why_refused(lacking) and "not permitted" in why_refused(lacking)
    monkeypatch.setenv(TRUST_VARIABLE, "1")
    assert why_refused(lacking) == "" and name in why_not_contained(lacking)


def test_a_user_namespace_is_as_good_as_a_user_only_with_processes_of_its_own(monkeypatch):
    monkeypatch.delenv(TRUST_VARIABLE, raising=False)
    in_namespace = ALL | {"own_user": False, "user_namespace": True, "own_pids": True, "own_proc": True}
    assert why_refused(Facts(**in_namespace)) == ""
    for field in ("user_namespace", "own_pids", "own_proc"):
        assert "a user of its own" in why_refused(Facts(**in_namespace | {field: False}))


def test_the_probe_says_what_this_host_can_do():
    facts = probe()
    assert all(getattr(facts, field) for field in ALL) or facts.missing


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a program another user")
def test_a_program_in_a_closed_folder_starts_also_when_files_of_this_process_are_private(tmp_path):
    """An agent makes its files private (umask 077)."""
    (tmp_path / "closed" / "deep" / "bin").mkdir(parents=True)
    program = tmp_path / "closed" / "deep" / "bin" / "says"
    program.write_text("#!/bin/sh\nid -u\n")
    program.chmod(0o755)
    (tmp_path / "closed").chmod(0o700)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    os.chown(scratch, 12345, 12345)
    read, write = os.pipe()
    spec = Spec(command=[str(program)], scratch=str(scratch), readable=[str(program)], uid=12345, facts_fd=write)
    ended = subprocess.run(
        [sys.executable, "-m", "kernels.host.airlock", spec.model_dump_json()],
        pass_fds=[write], capture_output=True, text=True, umask=0o077, check=False,
    )  # fmt: skip
    os.close(write)
    facts = Facts.model_validate_json(os.read(read, 1 << 16))
    os.close(read)
    if not facts.read_only:
        pytest.skip("; ".join(facts.missing))
    assert (ended.returncode, ended.stdout, facts.own_user) == (0, "12345\n", True), ended.stderr


# --- what one starts from ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("one", STARTS, ids=lambda one: one.key)
def test_a_start_does_a_usual_workload_of_its_operation(one, tmp_path):
    """One of the smoke configs. A form that opens with a kernel for few queries only would be refused on any other workload."""
    smoke = [config.part(one.operation) for config in configs() if config.name.startswith("smoke")]
    usual = [workload for part in smoke for workload in part.workloads]
    submission = Submission(operation=one.operation, files={one.file_name: one.text})
    with reading(tmp_path, [submission]):
        kernel = catalog.get_kernel(one.operation, f"my-kernel@{submission.version}")
        assert "" in [kernel.why_not_for("float16", workload.problem.model_dump()) for workload in usual]


def test_each_operation_has_a_start_of_each_backend():
    """Of each backend that has a kernel there: sparse attention has none in CUDA C++."""
    shipped = {
        f"{op}/{b}" for op in catalog.operations() for b, at in BACKENDS.items() if [*(OPERATIONS_DIR / op).glob(at)]
    }
    assert {one.key for one in STARTS} == shipped and len(shipped) == len(catalog.operations()) * len(BACKENDS) - 1


@pytest.mark.parametrize("one", STARTS, ids=lambda one: one.key)
def test_a_start_is_a_submission_that_says_how_it_is_called(one):
    info = kernel_of({one.file_name: one.text})
    assert (info.operation, info.name, info.backend) == (one.operation, "my-kernel", one.backend)
    of = get_operation(one.operation)
    head = one.text.split("\n")[0]
    assert all(name in head for name in (*of.tensors, *of.options))


@pytest.mark.parametrize("one", STARTS, ids=lambda one: one.key)
def test_a_start_differs_from_the_shipped_kernel_by_its_name_and_first_lines_only(one):
    """What keeps the shipped kernel correct keeps the start correct."""
    shipped = sorted((OPERATIONS_DIR / one.operation).glob(BACKENDS[one.backend]))[0].read_text()
    assert one.text.replace(' name="my-kernel",', "", 1).endswith(shipped.partition("\n")[2])


@pytest.mark.parametrize("one", [s for s in STARTS if s.backend == "pytorch"], ids=lambda one: one.key)
def test_a_start_in_pytorch_is_correct(one, tmp_path):
    import torch

    submission = Submission(operation=one.operation, files={one.file_name: one.text})
    with reading(tmp_path, [submission]):
        call = load(catalog.get_kernel(one.operation, f"my-kernel@{submission.version}")).call
    sys.path[:] = [path for path in sys.path if not path.startswith(str(tmp_path))]
    problem = _small(one.operation)
    inputs = problem.inputs("cpu", 1)
    out = call(*inputs.tensors, **inputs.options)
    pieces = list(problem.check(inputs, 1, thorough=True))
    assert pieces
    for piece in pieces:
        found = (out if isinstance(out, torch.Tensor) else out[piece.output])[piece.index].double()
        torch.testing.assert_close(found, piece.reference.double(), rtol=1e-3, atol=1e-3)


def _small(operation):
    """A small problem of an operation, in float32."""
    of = next(w.problem for config in configs() for w in config.workloads if w.operation == operation)
    return max(of.model_copy(update={"dtype": "float32"}).edges(), key=lambda edge: edge.flops())

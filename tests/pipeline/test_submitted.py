"""A submitted kernel goes through every process: its files travel with the run, and it runs isolated or not at all."""

import hashlib

import pytest
from django.db import transaction

from kernels.formats.adding import read
from kernels.submission import Submission as Spec
from kernels.workload import Config
from runs.models import Result, Run, Submission
from runs.submitting import config_for, start_run

WITHIN = 200
GOOD = """from kernels.catalog import kernel
from scale import by

@kernel("gemm", backend="pytorch", name="mine")
def mine(a, b):
    return by(a, b)
"""
SCALE = "def by(a, b):\n    return a @ b\n"
HOSTILE = """import os, socket
from kernels.catalog import kernel

@kernel("gemm", backend="pytorch", name="hostile")
def hostile(a, b):
    said = [f"root {os.getuid() == 0}"]
    for path in FORBIDDEN:
        try:
            open(path, "ab").close()
            said.append(f"opened {path}")
        except OSError as error:
            said.append("refused")
    try:
        socket.create_connection(("127.0.0.1", PORT), 2)
        said.append("connected")
    except OSError:
        said.append("no network")
    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    said.append(f"{len(os.listdir(folder))} submissions")
    said.append(str([name for name in os.environ if "BROKER" in name or "DATABASE" in name]))
    for entry in os.listdir("/proc"):
        for name in ("environ", "cmdline"):
            try:
                text = open(f"/proc/{entry}/{name}", "rb").read()
            except OSError:
                continue
            said += [f"found {entry}"] * (b"redis://" in text or b"SECRET_KEY" in text)
    raise RuntimeError("; ".join(said))
"""


def submitted(site, *all_files):
    """A run of these submissions."""
    kept = [Submission.objects.store(files)[0] for files in all_files]
    config = Config(
        name="submitted",
        operation="gemm",
        kernels=[one.kernel for one in kept],
        protocol={"isolated": True, "warmup_s": 0.02, "min_rounds": 8, "max_rounds": 8, "verify_seeds": 1},
        workloads=[{"m": 256, "n": 256, "k": 256, "dtype": "float32"}],
    )
    return Run.objects.submit(config, gpu=site.gpu()), kept


def results_of(run):
    return {r.kernel.name: r for r in Result.objects.filter(measurement__run=run).select_related("kernel", "version")}


@pytest.fixture
def able(site):
    """The site, if this machine can contain a submitted kernel."""
    if why := site.gpu().why_no_submissions:
        pytest.skip(why)
    return site


def test_versions_are_measured_side_by_side_and_a_hostile_one_reaches_nothing(able):
    """No network, no secret and no file of the site."""
    forbidden = [
        str(able.database),
        str(able.folder / "db.sqlite3-wal"),
        *map(str, able.folder.glob("agent/*.sqlite3")),
    ]
    hostile_text = HOSTILE.replace("FORBIDDEN", repr(forbidden)).replace("PORT", str(able.port))
    run, (good, bad, hostile) = submitted(
        able,
        {"mine.py": GOOD, "scale.py": SCALE},
        {"mine.py": GOOD, "scale.py": "def by(a, b):\n    return a @ b * 1.5\n"},
        {"hostile.py": hostile_text},
    )
    able.wait(run, "done", within=WITHIN)
    results = results_of(run)
    found = [results[one.kernel] for one in (good, bad, hostile)]
    assert [one.status for one in found] == ["ok", "incorrect", "failed"]
    result = found[0]
    assert (result.why, result.correctness["correct"]) == ("", True)
    assert (result.version.source, result.version.sha256) == (GOOD, hashlib.sha256(GOOD.encode()).hexdigest())
    assert result.speedup is not None and result.measurement.isolated
    refused = "; ".join(["refused"] * len(forbidden))
    assert f"root False; {refused}; no network; 3 submissions; []" in found[2].why
    assert "found" not in found[2].why
    assert not [path for path in (able.folder / "tmp").iterdir() if list(path.rglob("mine.py"))]


MODEL = """import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x.exp() - 1

def get_inputs():
    return [torch.randn(256, 256)]
"""


@pytest.mark.thorough("a whole run: `make test` measures a problem without a broker")
def test_a_problem_that_came_with_its_kernel_goes_through_every_process(able):
    new = "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return torch.expm1(x)\n"
    kernel, _ = Submission.objects.store_read(read({"7_expm1.py": MODEL, "fast.py": new}))
    wrong, _ = Submission.objects.store_read(read({"7_expm1.py": MODEL, "wrong.py": new.replace("expm1", "exp")}))
    run = start_run(kernel, able.gpu(), config_for(kernel, beside=[wrong.kernel]))
    able.wait(run, "done", within=WITHIN)
    results = results_of(run)
    found = [results[name] for name in (kernel.problem, kernel.kernel, wrong.kernel)]
    assert [one.status for one in found] == ["ok", "ok", "incorrect"], [one.why for one in found]
    assert found[1].correctness["correct"] and found[1].version.source == kernel.files["fast.py"]
    assert found[1].measurement.baseline == kernel.problem and found[1].tflops is None


def test_an_agent_refuses_a_run_with_a_field_that_it_does_not_know(site, monkeypatch):
    """As an earlier agent refuses a run with submissions."""
    message = Run.run_spec

    class Newer:
        def __init__(self, spec):
            self.spec = spec

        def as_message(self):
            return self.spec.as_message() | {"from_next_year": [1]}

    monkeypatch.setattr(Run, "run_spec", lambda run: Newer(message(run)))
    from runs.pipeline import dispatcher

    with transaction.atomic():  # else the site's worker may be first
        run = site.submit("eager")
        assert dispatcher.claim(run, site.gpu())
    dispatcher.execute(run)
    monkeypatch.undo()
    site.wait(run, "failed", within=60)
    assert run.message == (
        "This agent does not know the field from_next_year of a run: update the repository on its host."
    )


def test_a_host_that_cannot_contain_a_kernel_does_not_load_it(monkeypatch, tmp_path):
    """The parent decides with what the airlock says of the process, before the kernel is there."""
    from kernels.host.device import find_device
    from kernels.parent import cell_process, isolated_session
    from kernels.parent.child_process import CommandFailed
    from kernels.submission import reading
    from kernels.workload import Workload

    monkeypatch.setattr(cell_process.os, "geteuid", lambda: 1000)  # then a cell gets no user of its own
    one = Spec(operation="gemm", files={"mine.py": GOOD.replace("def mine", "open('/loaded')\ndef mine")})
    workload = Workload(operation="gemm", dtype="float32", sizes={"m": 8, "n": 8, "k": 64})
    with reading(tmp_path, [one]):
        session = isolated_session.IsolatedSession(find_device("cpu"), workload, lambda: False, 0.0, 1)
        try:
            with pytest.raises(CommandFailed, match="this host does not provide: a user of its own"):
                session.start(f"mine@{one.version}")
        finally:
            session.close()

"""Pairs of other formats as an agent measures them: problem and kernel are submissions of one run."""

import os
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from unittest import mock

import pytest

from kernels.analysis.correctness import judge
from kernels.contract.events import Measured
from kernels.formats.bringing import cases_of, dtype_of, pair_in
from kernels.host.device import find_device
from kernels.parent.isolated_session import IsolatedSession
from kernels.parent.supervisor import Supervisor
from kernels.submission import Submission, kernel_of
from kernels.workload import Ceilings, Config, RunSpec
from runs.agent.submitted import submitted

FOLDER = Path(__file__).parents[1] / "formats"
QUICK = {"warmup_s": 0.02, "min_rounds": 5, "max_rounds": 5, "verify_seeds": 2, "block_ms": 0.5, "isolated": True}
KNOWN = Ceilings(copy_gb_per_s=10.0, read_gb_per_s=10.0)

MORE = "more kernels of other formats, each in processes of its own: `make test` has a measured KernelBench pair"
SLOW = pytest.mark.thorough(MORE)


MODEL = """import torch


class Model(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = torch.nn.Linear(size, size)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return [256]
"""
NEW = MODEL.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")


def files_of(*names):
    """Files of tests/formats/kernelbench."""
    return {name: (FOLDER / "kernelbench" / name).read_text() for name in names}


def gpu_mode(problem, solution, **more):
    """The files of a problem of tests/formats/gpu_mode with one of its solutions, as somebody drops them: without folders."""
    root = FOLDER / "gpu_mode"
    names = ("reference.py", "task.py", "task.yml", solution)
    found = {PurePosixPath(name).name: (root / problem / name).read_text() for name in names}
    return found | {"utils.py": (root / "utils.py").read_text()} | more


def flashinfer_files(definition, solution):
    root = FOLDER / "flashinfer"
    names = (f"definitions/{definition}.json", f"solutions/{solution}.json")
    return {PurePosixPath(name).name: (root / name).read_text() for name in names}


def name_of(one):
    return f"{kernel_of(one.files).name}@{one.version}"


def submissions_of(files):
    """(the problem, the kernel) in these files."""
    pair = pair_in(files)
    return [Submission(operation="problem", files=found) for found in (pair.problem, pair.kernel)]


def only(answer, inputs="torch.randn(8, 32)", new="", more=""):
    """A problem without weights in one file, whose Model and ModelNew return these."""
    body = f"import torch\n{more}\n"
    for name, value in (("Model", answer), ("ModelNew", new or answer)):
        body += f"class {name}(torch.nn.Module):\n    def forward(self, x, *more):\n        return {value}\n"
    return submissions_of({"2_only.py": body + f"def get_inputs():\n    return [{inputs}]\n"})


def config_of(problem, *kernels, **protocol):
    sizes = [{"problem": name_of(problem), "case": case} for case in cases_of(problem.files)]
    dtype = dtype_of(problem.files)
    named = [name_of(problem), *map(name_of, kernels)]
    return Config(
        name="typed",
        operation="problem",
        baseline=named[0],
        kernels=named,
        workloads=[{"operation": "problem", "dtype": dtype, "sizes": one} for one in sizes],
        protocol=QUICK | protocol,
    )


def measured(problem, *kernels, device="cpu", **protocol):
    """The event of one run of one workload, as an agent makes it."""
    (event,) = every_event(problem, *kernels, device=device, **protocol)
    return event


def every_event(problem, *kernels, device="cpu", **protocol):
    """An event for each workload of one run."""
    found = find_device(device)
    submissions = [problem, *kernels]
    spec = RunSpec.of(config_of(problem, *kernels, **protocol), found.uuid, submissions=submissions, ceilings=KNOWN)
    spec = RunSpec.model_validate(spec.as_message())
    events = []
    with mock.patch.dict(os.environ, {"OMP_NUM_THREADS": "1"}), submitted(spec.submissions):
        Supervisor(spec, found, events.append, crosschecks=False).run()
    return [one for one in events if isinstance(one, Measured)]


def results(*args, **more):
    """(of the problem's reference, of its kernels ...)"""
    event = measured(*args, **more)
    by_name = {one.kernel: one for one in event.results}
    return [by_name[name_of(one)] for one in args]


@contextmanager
def session_of(problem, *kernels, cells=1):
    """An isolated session of the problem, without a run: the process of the problem and the trusted one have started."""
    workload = config_of(problem, *kernels).workloads[0]
    with submitted([problem, *kernels]):
        session = IsolatedSession(find_device("cpu"), workload, lambda: False, 1.0, cells=cells)
        try:
            yield session
        finally:
            session.close()


def judged(problem, kernel):
    """What the correctness check says of a kernel, as in a run."""
    with session_of(problem, kernel) as session:
        assert not session.why_no_problem
        session.start(name_of(kernel))
        readings = [session.verify(name_of(kernel), 60.0, seed)[0] for seed in (7, 8)]
    return judge(readings, session.workload.dtype)

"""A kernel in a git repository goes through every process: the agent fetches it, its files' hash is recorded."""

import pytest
from git_server import Repository, serving

from kernels.git_source import GitSource
from kernels.submission import version_of
from kernels.workload import Config
from runs.models import Result, Run, Submission

WITHIN = 200
MINE = """from kernels.catalog import kernel
from scale import by

@kernel("gemm", backend="pytorch")
def mine(a, b):
    return by(a, b)
"""
SCALE = "def by(a, b):\n    return a @ b\n"


def run_of(site, commit, url="/team/kernels/.git"):
    source = GitSource(url=f"http://127.0.0.1:{site.git_port}{url}", commit=commit, kernel="mine", folder="gemm")
    one, _ = Submission.objects.store_git(source, "gemm")
    config = Config(
        name="from-git",
        operation="gemm",
        kernels=[one.kernel],
        protocol={"isolated": True, "warmup_s": 0.02, "min_rounds": 8, "max_rounds": 8, "verify_seeds": 1},
        workloads=[{"m": 256, "n": 256, "k": 256, "dtype": "float32"}],
    )
    return Run.objects.submit(config, gpu=site.gpu()), one


@pytest.mark.thorough("a kernel from git through the whole pipeline: `make test` has its errors, and a submitted one")
def test_a_kernel_is_fetched_measured_and_its_hash_recorded(site, tmp_path):
    if why := site.gpu().why_no_submissions:
        pytest.skip(why)
    repository = Repository(tmp_path / "team" / "kernels")
    commit = repository.commit({"gemm/mine.py": MINE, "gemm/scale.py": SCALE, "README.md": "other\n"})
    repository.commit({"gemm/scale.py": "def by(a, b):\n    return a @ b * 2\n"})
    with serving(tmp_path, site.git_port):
        run, one = run_of(site, commit)
        site.wait(run, "done", within=WITHIN)
    result = Result.objects.select_related("version").get(measurement__run=run, kernel__name=one.kernel)
    assert (result.status, result.version.source) == ("ok", MINE)
    assert run.preflight["fetched"] == {one.kernel: version_of({"mine.py": MINE, "scale.py": SCALE})}
    assert not [path for path in (site.folder / "tmp").iterdir() if list(path.rglob("mine.py"))]


def test_what_cannot_be_fetched_fails_the_run_with_one_sentence(site, tmp_path):
    elsewhere, _ = run_of(site, "0" * 40, url="/others/kernels")
    site.wait(elsewhere, "failed", within=60)
    assert elsewhere.message.startswith("This host takes no submissions from http://127.0.0.1:")
    nobody, _ = run_of(site, "0" * 40)
    site.wait(nobody, "failed", within=60)
    assert "cannot be fetched: " in nobody.message and "\n" not in nobody.message

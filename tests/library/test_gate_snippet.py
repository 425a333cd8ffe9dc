"""The snippet of docs/gate.md for GitLab, run as it stands there, with a clone and no site."""

import os
import sys

import pytest
from gate_page import FAST, ROOT, SLOW, as_here, shell, snippets, told
from selection import JOURNEYS

ONE = """
title: One workload
operation: attention
kernels: [sdpa, eager]
protocol: {warmup_s: 0.1, min_rounds: 8, max_rounds: 8}
workloads: [{batch: 1, heads: 4, seq_len: 128, head_dim: 64}]
"""
pytestmark = [pytest.mark.timeout(900), pytest.mark.thorough(JOURNEYS)]


class GitLab:
    """A runner with a clone of Benchsite: the lines of the script in one shell, which ends at the first that fails."""

    def __init__(self, folder):
        self.folder, self.job = folder, snippets()[1]["gate"]
        (folder / "kernels" / "attention").mkdir(parents=True)
        clone = folder / "clone"
        clone.mkdir()
        (clone / ".venv" / "bin").mkdir(parents=True)
        (clone / ".venv" / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (clone / ".venv" / "bin" / "python").chmod(0o755)
        (clone / "kernels").symlink_to(ROOT / "kernels")
        (clone / "one.yaml").write_text(ONE)

    def run(self, source, base):
        (self.folder / "kernels" / "attention" / "my_kernel.py").write_text(source)
        environment = {
            "HOME": str(self.folder), "PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "TMPDIR": str(self.folder),
            "BENCHSITE_CLONE": str(self.folder / "clone"), "CI_PROJECT_DIR": str(self.folder), "BASE_EXPORT": str(base),
        }  # fmt: skip
        return shell("\n".join(as_here(line) for line in self.job["script"]), self.folder, environment)


@pytest.fixture
def gitlab(tmp_path):
    return GitLab(tmp_path)


def test_gitlab_lets_a_faster_kernel_pass_and_fails_a_slower_one(gitlab):
    base = gitlab.folder / "base.json"
    first = gitlab.run(SLOW, gitlab.folder / "none.json")
    assert first.returncode == 2 and "none.json" in first.stderr, "without an earlier export the gate cannot tell"
    (gitlab.folder / "after.json").rename(base)

    assert told(gitlab.run(FAST, base), gitlab.folder) in ("holds", "cannot tell")
    (gitlab.folder / "after.json").rename(gitlab.folder / "fast.json")

    assert told(gitlab.run(SLOW, gitlab.folder / "fast.json"), gitlab.folder) in ("fails", "cannot tell")
    report = gitlab.folder / gitlab.job["artifacts"]["reports"]["junit"]
    assert report.exists() and all((gitlab.folder / path).exists() for path in gitlab.job["artifacts"]["paths"])

"""The snippets of docs/gate.md, run as they stand there: each `run:` and `script:` line by /bin/sh, against a real site."""

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from selection import JOURNEYS

pytestmark = [pytest.mark.timeout(900), pytest.mark.thorough(JOURNEYS)]
ROOT = Path(__file__).parents[2]
FAST = """import torch.nn.functional as F
from kernels.catalog import kernel

@kernel("attention", backend="pytorch")
def my_kernel(q, k, v, *, causal, scale):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
"""
WRONG = FAST.replace("scale=scale)", "scale=scale) * 2")
SLOW = FAST.replace("    return F", "    for _ in range(20):\n        out = F") + "    return out\n"
HERE = {
    "--gpu h200": "--gpu cpu",
    "--config canonical": "--config smoke",
    "kernels run canonical": "kernels run smoke",
    "--effort thorough": "",
    "--until-decided 20": "--until-decided 1",
    "--max-regression 2%": "--max-regression 90%",
}
"""What differs on this machine: a CPU, which others use meanwhile, in place of a quiet H200."""
WITHOUT_CHANGE = "${{ secrets.BENCHSITE_TOKEN }}", "${{ vars.BASE_RUN }}"


def snippets():
    """The YAML documents of the page, in order."""
    text = (ROOT / "docs" / "gate.md").read_text()
    found = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert len(found) == 2
    return [yaml.safe_load(one) for one in found]


def as_here(line, **values):
    """A line with what differs here, and with what GitHub fills in. Nothing of GitHub's stays."""
    for there, here in HERE.items():
        line = line.replace(there, here)
    filled = re.sub(r"\$\{\{ (?:secrets|vars)\.(\w+) \}\}", lambda found: values[found[1]], line)
    assert "${{" not in filled, filled
    return filled


def shell(script, folder, environment):
    return subprocess.run(
        ["/bin/sh", "-e"], input=script, cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )


def test_every_difference_is_one_of_the_page():
    text = (ROOT / "docs" / "gate.md").read_text().partition("## GitHub Actions")[2]
    assert all(there in text for there in (*HERE, *WITHOUT_CHANGE))


def told(gate, folder):
    """The word of a gate, in which status, terminal, Markdown and JUnit XML agree. A busy machine cannot tell."""
    word = {0: "holds", 1: "fails", 2: "cannot tell"}[gate.returncode]
    summary = (folder / "gate.md").read_text()
    sentence = summary.partition("\n")[0].strip("*")
    assert sentence.startswith(f"The gate {word}") and sentence in gate.stdout, gate.stdout + gate.stderr
    assert "| my-kernel" in summary
    cases = list(ElementTree.parse(folder / "gate.xml").iter("testcase"))
    assert cases and any("my-kernel" in case.get("name") for case in cases)
    assert any(case.find("failure") is not None for case in cases) == (word == "fails")
    assert any(case.find("error") is not None for case in cases) or word != "cannot tell"
    return word


# --- GitHub -----------------------------------------------------------------------------------------------------------


class GitHub:
    """A runner: the steps of the job one after the other, as GitHub does it."""

    def __init__(self, folder, site, token):
        self.folder, self.site, self.token = folder, site, token
        (self.job,) = snippets()[0]["jobs"].values()

    def run(self, source, base=""):
        """({step: what it did}, the summary). Steps after one that failed run only if they say so."""
        for old in ("measured.txt", "gate.md", "gate.xml", "summary.md"):
            (self.folder / old).unlink(missing_ok=True)
        (self.folder / "my_kernel.py").write_text(source)
        done, failed = {}, False
        for step in (step for step in self.job["steps"] if "run" in step):
            if not failed or step.get("if") == "always()":
                done[step.get("name", step["run"])] = it = self.step(step, base)
                failed |= it.returncode != 0
        return done, failed

    def step(self, step, base):
        values = {"BENCHSITE_TOKEN": self.token, "BASE_RUN": base}
        environment = {"HOME": str(self.folder / "home"), "PATH": os.environ["PATH"]}
        environment |= {name: as_here(value, **values) for name, value in self.job["env"].items()}
        environment |= {"BENCHSITE_SITE": self.site, "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md")}
        return shell(as_here(step["run"], **values), self.folder, environment)

    def gate(self, base):
        return self.step(next(step for step in self.job["steps"] if step.get("name") == "Gate"), base)

    def run_number(self):
        return re.findall(r"/runs/(\d+)/$", (self.folder / "measured.txt").read_text(), re.MULTILINE)[-1]


@pytest.fixture
def github(tmp_path, live_site, token):
    return GitHub(tmp_path, live_site.url, token)


def test_github_lets_a_faster_kernel_pass_and_fails_a_slower_one(github):
    first, _ = github.run(SLOW)
    measured = first["Measure"]
    if "does not take submitted kernels" in measured.stderr:
        pytest.skip(measured.stderr)
    assert measured.returncode == 0, measured.stdout + measured.stderr
    assert "my-kernel@" in measured.stdout, "what it measures is shown while it does"
    slow = github.run_number()

    done, failed = github.run(FAST, base=slow)
    assert told(done["Gate"], github.folder) in ("holds", "cannot tell") and failed == bool(done["Gate"].returncode)
    assert (github.folder / "summary.md").read_text() == (github.folder / "gate.md").read_text()
    fast = github.run_number()

    done, failed = github.run(SLOW, base=fast)
    assert told(done["Gate"], github.folder) in ("fails", "cannot tell") and failed
    assert (github.folder / "summary.md").exists(), "the summary is written for a failed gate, too"

    done, failed = github.run(WRONG, base=fast)
    assert failed and done["Measure"].returncode == 1 and "incorrect" in done["Measure"].stdout and "Gate" not in done
    assert told(github.gate(base=fast), github.folder) == "fails", "whatever the machine does meanwhile"


def test_github_stops_at_a_kernel_that_cannot_be_submitted(github):
    done, failed = github.run("x = 1\n", base="1")
    assert failed and done["Measure"].returncode == 2 and "No file declares a kernel" in done["Measure"].stderr
    assert "Gate" not in done and not (github.folder / "gate.md").exists()
    assert list(done.values())[-1].returncode == 0, "without a gate there is no summary, and that is no error"


def test_github_says_that_a_gate_cannot_tell_without_an_earlier_run(github):
    (github.folder / "measured.txt").write_text(f"{github.site}/runs/999999/\n")
    shell(f'curl -sSO "{github.site}/client.py"', github.folder, {"PATH": os.environ["PATH"]})
    done = github.gate(base="999998")
    assert done.returncode == 2 and "There is no run 999999" in done.stderr


# --- GitLab -----------------------------------------------------------------------------------------------------------


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

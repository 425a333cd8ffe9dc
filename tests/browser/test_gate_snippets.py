"""The snippet of docs/gate.md for GitHub, run as it stands there, against a real site."""

import os
import re

import pytest
from gate_page import FAST, HERE, ROOT, SLOW, WITHOUT_CHANGE, WRONG, as_here, shell, snippets, told
from selection import JOURNEYS

pytestmark = [pytest.mark.timeout(900), pytest.mark.thorough(JOURNEYS)]


def test_every_difference_is_one_of_the_page():
    text = (ROOT / "docs" / "gate.md").read_text().partition("## GitHub Actions")[2]
    assert all(there in text for there in (*HERE, *WITHOUT_CHANGE))


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

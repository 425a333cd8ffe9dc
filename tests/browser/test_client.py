"""The command line that the site serves, on its own: from a token made in the browser to the verdict of a kernel."""

import re
import subprocess
import sys

import pytest

GOOD = """from kernels.catalog import kernel

@kernel("swish", backend="pytorch")
def from_a_terminal(x):
    return x * x.sigmoid()
"""
BAD = GOOD.replace("x * x.sigmoid()", "x.sigmoid()").replace("from_a_terminal", "wrong")


def test_login_keeps_the_token_for_this_user_only(client, token, live_site):
    assert client("runs", "list", "--site", live_site.url).returncode == 4
    wrong = client("login", "--site", live_site.url, given="bench_wrong\n")
    assert wrong.returncode == 4 and "unknown, expired or revoked" in wrong.stderr
    there = client("login", "--site", live_site.url, given=f"{token}\n")
    assert there.returncode == 0 and there.stdout.startswith(
        f"admin at {live_site.url}, read, submit and cancel, until"
    )
    kept = client.folder / "home" / ".config" / "benchsite" / "tokens.json"
    assert kept.stat().st_mode & 0o777 == 0o600 and token in kept.read_text()
    assert client("runs", "list").returncode == 0  # the site of the last login
    assert token not in there.stdout + there.stderr


@pytest.mark.thorough("two submissions from a terminal to their verdicts; test_submit does it in the browser")
def test_a_kernel_is_submitted_watched_and_judged(client, token, live_site):
    more = {"BENCHSITE_TOKEN": token, "BENCHSITE_SITE": live_site.url}
    (client.folder / "good.py").write_text(GOOD)
    (client.folder / "bad.py").write_text(BAD)
    only_stored = client("submit", "good.py", **more)
    assert only_stored.returncode == 0 and f"{live_site.url}/submissions/" in only_stored.stdout
    measured = client("submit", "good.py", "--gpu", "cpu", "--sweep", "rows=96", "--wait", **more)
    if "does not take submitted kernels" in measured.stderr:
        pytest.skip(measured.stderr)
    lines = measured.stdout.splitlines()
    assert measured.returncode == 0, measured.stdout + measured.stderr
    assert "known already" in lines[0] and re.match(r"run \d+ on ", lines[1])
    assert any(line.startswith("running") for line in lines) and "from-a-terminal@" in measured.stdout
    assert "96 x " in measured.stdout
    assert re.fullmatch(rf"{live_site.url}/runs/\d+/", lines[-1])
    number = lines[-1].split("/")[-2]
    assert client("runs", "show", number, **more).stdout.splitlines()[-1] == lines[-1]
    wrong = client("submit", "bad.py", "--gpu", "cpu", "--wait", **more)
    assert wrong.returncode == 1 and "incorrect" in wrong.stdout
    assert "is done already" in client("runs", "cancel", number, **more).stdout
    gated = client("gate", number, "--against", number, "--max-regression", "50%", "--md", "gate.md", **more)
    assert gated.returncode in (0, 2) and "from-a-terminal" in gated.stdout, (
        gated.stderr
    )  # 2: a busy machine is too noisy
    assert gated.stdout.split("\n\n")[1].split("\n")[0] in (client.folder / "gate.md").read_text()
    same = client("runs", "compare", number, number, **more)
    assert same.returncode == 2 and "It is the same run." in same.stderr


def test_what_goes_wrong_has_a_status_of_its_own_and_says_what_to_change(client, token, live_site):
    more = {"BENCHSITE_TOKEN": token}
    (client.folder / "none.py").write_text("x = 1\n")
    refused = client("submit", "none.py", "--site", live_site.url, **more)
    assert refused.returncode == 2 and "No file declares a kernel" in refused.stderr
    assert client("submit", "missing.py", "--site", live_site.url, **more).returncode == 2
    assert client("submit", "none.py", "--site", "http://127.0.0.1:9", **more).returncode == 3
    assert client("runs", "list", **more).returncode == 2  # which site?
    gated = client("gate", "999", "--against", "best", "--max-regression", "2%", "--site", live_site.url, **more)
    assert gated.returncode == 2 and "There is no run 999." in gated.stderr
    assert client("nosuch").returncode == 2
    assert "Traceback" not in refused.stderr


def test_python_m_kernels_is_the_same_client(live_site, token, client):
    environment = client.environment | {"BENCHSITE_TOKEN": token}
    said = subprocess.run(
        [sys.executable, "-m", "kernels", "runs", "list", "--site", live_site.url],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr

"""The unit of a GPU host is one that systemd accepts, and names what exists."""

import configparser
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from compose import ROOT

FOLDER = ROOT / "deploy" / "systemd"
UNIT = FOLDER / "benchsite-agent.service"


def service():
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str
    parser.read(UNIT)
    return dict(parser["Service"])


def test_systemd_accepts_it(tmp_path):
    """With this checkout in the place of /opt/benchsite: the program must be there."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze here: apt-get install systemd")
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    text = UNIT.read_text().replace("/opt/benchsite/.venv", str(tmp_path / "venv")).replace("/opt/benchsite", str(ROOT))
    copy = tmp_path / UNIT.name
    copy.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True)
    assert done.returncode == 0 and UNIT.stem not in done.stderr, done.stderr


def test_it_names_what_exists():
    found = service()
    program, flag, module = found["ExecStart"].split()
    assert program == f"{found['WorkingDirectory']}/.venv/bin/python" and flag == "-m"
    assert importlib.util.find_spec(module)
    assert found["Restart"] == "always"
    docs = UNIT.read_text().split("Documentation=file:///opt/benchsite/")[1].split()[0]
    assert (ROOT / docs).exists()


def test_it_is_no_root_and_its_password_is_a_file():
    found = service()
    assert found["User"] not in ("", "root") and found["NoNewPrivileges"] == "yes"
    name, path = found["LoadCredential"].split(":")
    assert f"BROKER_PASSWORD_FILE=%d/{name}" in UNIT.read_text()
    assert path.startswith("/etc/benchsite/")


def test_its_environment_file_has_no_password():
    assert Path(service()["EnvironmentFile"]).name == "agent.env"
    line = next(one for one in (FOLDER / "agent.env").read_text().splitlines() if one.startswith("BROKER="))
    assert "@" not in line and line.startswith("BROKER=redis://")


def test_the_agent_joins_the_password_of_its_file(tmp_path):
    """As the unit starts it; nobody answers there, and what it says has no password."""
    (tmp_path / "password").write_text("hidden")
    own = {
        "BROKER": "redis://127.0.0.1:1/0",
        "BROKER_PASSWORD_FILE": str(tmp_path / "password"),
        "BENCHSITE_VAR": str(tmp_path),
    }
    command = [sys.executable, "-m", "runs.agent"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | own, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "no broker answers at" in done.stderr
    assert "hidden" not in done.stderr

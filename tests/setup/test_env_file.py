""".env is read in one way by the settings and by what starts the site: quotes, export and comments are understood."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from benchsite import env_file
from runs.hosting import setup

ROOT = Path(__file__).parents[2]
WRITTEN = {
    "plain": ("BROKER_PASSWORD=secret", "secret"),
    "in double quotes": ('BROKER_PASSWORD="secret"', "secret"),
    "in single quotes": ("BROKER_PASSWORD='secret'", "secret"),
    "exported": ("export BROKER_PASSWORD=secret", "secret"),
    "exported in quotes": ('export BROKER_PASSWORD="secret"', "secret"),
    "behind spaces": ("  BROKER_PASSWORD= secret  ", "secret"),
    "with a comment": ("BROKER_PASSWORD=secret # it's ours", "secret"),
    "in quotes, with a comment": ('BROKER_PASSWORD="secret" # it\'s ours', "secret"),
    "with a sharp in it": ("BROKER_PASSWORD=sec#ret", "sec#ret"),
    "with a sharp in quotes": ('BROKER_PASSWORD="sec # ret"', "sec # ret"),
    "with an equals sign": ("BROKER_PASSWORD=a=b==", "a=b=="),
    "with an escaped quote": (r'BROKER_PASSWORD="a\"b"', 'a"b'),
    "empty": ("BROKER_PASSWORD=", ""),
    "empty but for a comment": ("BROKER_PASSWORD= # none yet", ""),
    "as a comment": ("#BROKER_PASSWORD=secret", ""),
    "twice": ("BROKER_PASSWORD=first\nBROKER_PASSWORD=secret", "secret"),
}


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "env"
    monkeypatch.setattr(setup, "ENV_FILE", path)
    monkeypatch.delenv("BROKER_PASSWORD", raising=False)
    return path


@pytest.mark.parametrize("written, value", WRITTEN.values(), ids=WRITTEN.keys())
def test_a_value_is_read_as_a_shell_reads_it(file, written, value):
    file.write_text(f"# ours\n\nSECRET_KEY=x\n{written}\nPORT=8000\n")
    assert setup.env_value("BROKER_PASSWORD") == value
    assert (env_file.read(file)["SECRET_KEY"], env_file.read(file)["PORT"]) == ("x", "8000")


def test_the_environment_comes_first_and_no_file_says_nothing(file, monkeypatch):
    assert setup.env_value("BROKER_PASSWORD") == ""
    file.write_text("BROKER_PASSWORD=of the file\n")
    monkeypatch.setenv("BROKER_PASSWORD", "of the environment")
    assert setup.env_value("BROKER_PASSWORD") == "of the environment"


def test_what_is_remembered_replaces_what_was_exported(file):
    file.write_text("export BROKER_PORT=1 # an old one\nBROKER_PORT_RANGE=5\n# BROKER_PORT=2\n")
    setup.remember("BROKER_PORT", "3")
    assert file.read_text() == "BROKER_PORT_RANGE=5\n# BROKER_PORT=2\nBROKER_PORT=3\n"
    assert setup.env_value("BROKER_PORT") == "3"


def test_what_is_remembered_makes_the_file_if_it_is_missing(file):
    """SECRET_KEY may be in the environment, and then nothing has made the file."""
    file.unlink(missing_ok=True)
    setup.remember("BROKER_PORT", "3")
    assert setup.env_value("BROKER_PORT") == "3"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_settings_read_what_the_setup_reads(file):
    """Else the site asks its own broker with another password than it was started with."""
    file.write_text("export SECRET_KEY='of the file' # ours\nBROKER_PASSWORD=\"secret\" # ours\nBROKER_PORT=4321\n")
    hidden = ("SECRET_KEY", "BROKER_PASSWORD", "BROKER_PORT", "REDIS_URL")
    env = {name: value for name, value in os.environ.items() if name not in hidden} | {"BENCHSITE_ENV": str(file)}
    code = "from benchsite import settings as s; print(s.SECRET_KEY, s.REDIS_URL, sep='|')"
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "of the file|redis://:secret@127.0.0.1:4321/0", done.stderr
    assert (setup.env_value("BROKER_PASSWORD"), setup.env_value("BROKER_PORT")) == ("secret", "4321")

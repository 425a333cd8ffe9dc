"""manage.py charts: pictures of exported runs, without a database."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.cli.main import main

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "docs" / "measurements"
RUNS = [MEASURED / "swish-h200-2026-11-28.json", MEASURED / "swish-h100-2026-11-27.json"]
PNG = b"\x89PNG\r\n"


def charts(*arguments):
    """(exit status, output) of the command in a process of its own, which can reach no database."""
    nowhere = {"DATABASE_URL": "postgres://nobody@127.0.0.1:1/none", "SECRET_KEY": "x"}
    done = subprocess.run(
        [sys.executable, "manage.py", "charts", *map(str, arguments)],
        cwd=ROOT, env=os.environ | nowhere, capture_output=True, text=True,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_two_cards_stand_in_one_picture(tmp_path, kind):
    both = tmp_path / "both.json"
    assert main(["merge", *map(str, RUNS), "-o", str(both)]) == 0
    status, said = charts(both, "-o", tmp_path / "out", "--kind", kind)
    assert status == 0, said
    names = {"latency", "speedup", "throughput"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {f"swish-{name}.{kind}" for name in names}
    first = (tmp_path / "out" / f"swish-speedup.{kind}").read_bytes()
    assert first.startswith(PNG) if kind == "png" else b"NVIDIA H200" in first and b"NVIDIA H100" in first
    if kind == "svg":
        assert b"Swish (SiLU), forward: speedup over the baseline of each run<" in first
    assert "3 of 3 workloads" in said


def test_what_cannot_be_drawn_is_said(tmp_path):
    (tmp_path / "no.json").write_text("{}")
    for arguments, why in ((["no.json"], "not an exported run"), (["nosuch.json"], "No such file")):
        status, said = charts(*(tmp_path / one for one in arguments), "-o", tmp_path / "out")
        assert status == 2 and why in said
    status, said = charts(*RUNS * 5, "-o", tmp_path / "out")
    assert status == 2 and "10 runs do not fit into one chart: at most 8" in said and not (tmp_path / "out").exists()

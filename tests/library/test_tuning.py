"""`python -m kernels tune` on the CPU, with the real instrument; and kernels that read what it wrote."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from selection import telling
from tuning import BLOCKED, TINY

from kernels import catalog
from kernels.catalog import get_kernel
from kernels.cli.tune import _search
from kernels.config_files import load_config
from kernels.contract.export import read_export
from kernels.contract.search import read_table, winners_curse
from kernels.host.device import find_device
from kernels.settings import OWN, choose, settings_in, spelled, variant, why_no_space
from kernels.settings import read_table as best_of
from kernels.tune_plan import TunePlan
from kernels.workload import RunSpec

ROOT = Path(__file__).parents[2]
ENDS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
MORE = "a search that another signal ends"
SPACE = {"rows": (1, 8), "way": ("plain", "wrong"), "tma": (False, True)}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY)
    (tmp_path / "kernels" / "softmax").mkdir(parents=True)
    (tmp_path / "kernels" / "softmax" / "blocked.py").write_text(BLOCKED)
    (tmp_path / "tmp").mkdir()
    return tmp_path


def start(folder, *arguments):
    settings = {"PYTHONPATH": str(ROOT), "KERNEL_PATH": str(folder / "kernels"), "TMPDIR": str(folder / "tmp")}
    line = [sys.executable, "-m", "kernels", *map(str, arguments)]
    keep = {"cwd": folder, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(line, env=os.environ | settings | {"OMP_NUM_THREADS": "1"}, **keep)


def finish(process):
    """(exit status, standard output, standard error)"""
    out, err = process.communicate(timeout=200)
    return process.returncode, out, err


def tune(folder, *arguments):
    return finish(start(folder, "tune", *arguments, "--device", "cpu"))


def beside(folder):
    return folder / "kernels" / "softmax" / "blocked.tuned.json"


@pytest.mark.thorough("`make test` has the search of an agent: tests/pipeline/test_execution.py")
def test_a_search_on_the_real_instrument_writes_a_table_that_the_kernel_reads(folder):
    asked = ("blocked", "--config", "tiny.yaml", "--trials", 12, "--together", 6, "--processes", 2, "--finalists", 2)
    code, said, err = tune(folder, *asked, "--sampler", "evolution", "--population", 6)
    assert code == 0, err
    table = read_table(beside(folder).read_bytes())
    (search,) = table.searches
    assert (search.state, len(search.trials), search.plan.sampler) == ("done", 12, "evolution")
    known = search.environment
    assert known["torch"] and known["harness"] and known["device"] == find_device("cpu").name and "driver" in known
    assert (search.plan.seed, search.began_at.year >= 2026) == (0, True)

    wrong = [trial for trial in search.trials if trial.settings["way"] == "wrong"]
    broken = [trial for trial in search.trials if trial.settings["way"] == "broken"]
    assert len(wrong) == len(broken) == 4, "the space has 12 settings, and all were tried"
    assert all(trial.pruned.startswith("incorrect on softmax fp32 64 x 1024: largest error") for trial in wrong)
    assert all("RuntimeError: it does not compile" in trial.pruned for trial in broken)
    alive = [trial for trial in search.trials if not trial.pruned]
    assert {trial.settings["way"] for trial in alive} == {"plain"}
    assert search.finalists and all(one.settings["rows"] >= 8 for one in search.finalists)
    confirmed = [one for finalist in search.finalists for one in finalist.results if one.ratio]
    assert confirmed and {one.processes for one in confirmed} == {2}
    assert 0 < winners_curse(search.pairs).low < winners_curse(search.pairs).high
    assert "confirmed / promised is" in said and f"{len(search.pruned)} of 12 trials were pruned" in said
    assert sum("trial " in line for line in err.splitlines()) == 12

    # Whether the gates are passed is up to the noise of this machine: what follows is about a table that has a winner.
    best = {"rows": 64, "way": "plain"}
    data = json.loads(beside(folder).read_text())
    data["searches"][0]["best"] = best
    beside(folder).write_text(json.dumps(data))
    code, _, err = finish(start(folder, "run", "tiny.yaml", "--device", "cpu", "--json", folder / "run.json"))
    assert code == 0, err
    arms = [arm for m in read_export((folder / "run.json").read_bytes()).measurements for arm in m.results]
    mine = [arm for arm in arms if arm.kernel == "blocked"]
    assert {arm.settings for arm in mine} == {"rows=64+way=plain"}
    assert all(arm.tuned.startswith(f"tuned for {known['device']} on 20") for arm in mine)
    assert all("# tuned: " in arm.source for arm in mine), "its source says what its table made of it"
    assert all(arm.settings == arm.tuned == "" for arm in arms if arm.kernel != "blocked")


@pytest.mark.parametrize("end", telling(ENDS, ENDS[0], why=MORE), ids=["SIGINT", "SIGTERM"])
def test_an_interrupted_search_keeps_its_trials_and_goes_on(folder, end):
    sent, status = end
    out = folder / "out.json"
    asked = (
        "blocked",
        "--config",
        "tiny.yaml",
        "--trials",
        4,
        "--together",
        2,
        "--processes",
        2,
        "--finalists",
        1,
        "--out",
        out,
    )
    process = start(folder, "tune", *asked, "--device", "cpu", "--sampler", "random")
    deadline = time.monotonic() + 100
    while not out.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(sent)
    code, said, err = finish(process)
    assert code == status, err
    (before,) = read_table(out.read_bytes()).searches
    assert before.state == "interrupted" and len(before.trials) == 2 and before.best is None
    assert f"ended by {sent.name}: {len(before.trials)} of 4 trials, in {out}" in err
    assert "nothing is confirmed" in said
    assert [path.name for path in folder.glob(".*")] == [], "half-written files"

    code, said, err = tune(folder, "--resume", out)
    assert code == 0, err
    (after,) = read_table(out.read_bytes()).searches
    assert (after.state, len(after.trials), after.fingerprint) == ("done", 4, before.fingerprint)
    assert after.trials[: len(before.trials)] == before.trials
    assert len({spelled(trial.settings) for trial in after.trials}) == 4
    code, _, err = tune(folder, "--resume", out)
    assert (code, "has no search" in err) == (2, True)


def test_what_cannot_be_tuned_is_said(folder):
    def refused(*arguments):
        code, _, err = tune(folder, *arguments)
        assert code == 2, err
        return err.splitlines()[-1]

    assert "cannot be tuned here: it declares no space" in refused("functional", "--config", "tiny.yaml")
    assert "needs a CUDA device" in refused("triton-softmax", "--config", "tiny.yaml")
    assert "there is no kernel 'softmax/nothing'" in refused("nothing", "--config", "tiny.yaml")
    assert "has no workload of gemm" in refused("gemm/triton-gemm", "--config", "tiny.yaml")
    assert "name a kernel and a config" in refused("blocked")
    assert "trials: must be greater than or equal to 1" in refused("blocked", "--config", "tiny.yaml", "--trials", 0)
    (folder / "of-another.json").write_text('{"format":"benchsite-tuned/1","operation":"gemm","kernel":"x"}')
    told = refused("blocked", "--config", "tiny.yaml", "--out", folder / "of-another.json")
    assert "is the table of gemm/x" in told


# --- spaces and names -------------------------------------------------------------------------------------------------


def test_the_kernels_of_this_catalogue_declare_spaces_that_can_be_read():
    tunable = {info.full_name: info for info in catalog.kernels() if info.space}
    assert {
        "layer_norm/triton-layer-norm", "softmax/triton-softmax", "rms_norm/triton-rms-norm", "gemm/triton-gemm",
        "cross_entropy/triton-cross-entropy", "gelu/triton-gelu", "swish/triton-swish", "mse_loss/triton-mse-loss",
    } <= tunable.keys()  # fmt: skip
    assert all(not info.error for info in tunable.values())


def test_settings_are_written_into_a_name_and_read_back():
    settings = {"rows": 8, "way": "plain", "tma": True}
    assert variant("x", settings) == "x~rows=8+way=plain+tma=true"
    assert settings_in("rows=8+way=plain+tma=true", SPACE) == settings
    assert (settings_in(OWN, SPACE), variant("x", None)) == (None, "x~own")
    for text, why in (
        ("rows=8", "does not give each of its settings"),
        ("rows=9+way=plain+tma=true", "rows=9 is not in its space: 1, 8"),
        ("", "does not give each"),
    ):
        with pytest.raises(ValueError, match=why):
            settings_in(text, SPACE)


@pytest.mark.parametrize(
    "space, why",
    [
        ({"rows": ()}, "must be 1 to 64"),
        ({"rows": (1, 1)}, "has a value twice"),
        ({"rows": (1, 1.5)}, "1.5 in space is not a valid value"),
        ({"Rows": (1,)}, "must map names to values"),
        ({"way": ("a+b",)}, "is not a valid value"),
        ([], "must map names"),
        ({"rows": (1, 2), "tma": (False, True)}, ""),
    ],
)
def test_a_space_that_cannot_be_written_into_names_is_refused(space, why):
    said = why_no_space(space)
    assert why in said and bool(why) == bool(said)


def test_a_kernel_with_a_space_must_take_settings(folder, monkeypatch):
    monkeypatch.setenv("KERNEL_PATH", str(folder / "kernels"))
    path = folder / "kernels" / "softmax" / "blocked.py"
    assert catalog.get_kernel("softmax", "blocked~rows=8+way=plain").declared_name == "softmax/blocked"
    with pytest.raises(catalog.UnknownName, match="rows=7 is not in its space"):
        catalog.get_kernel("softmax", "blocked~rows=7+way=plain")
    path.write_text(BLOCKED.replace("*, settings=None", "*, other=None"))
    assert "must take the argument settings" in catalog.get_kernel("softmax", "blocked").error


# --- tables -----------------------------------------------------------------------------------------------------------


def table(*searches):
    return json.dumps({"format": "benchsite-tuned/1", "searches": list(searches)})


def one(device, rows, capability="9.0", day="2026-11-20", keys=("k",)):
    best = {"rows": rows, "way": "plain", "tma": False}
    environment = {"device": device, "capability": capability, "triton": "3.6.0"}
    return {"environment": environment, "best": best, "began_at": f"{day}T10:00:00Z", "keys": list(keys)}


def read(folder, *searches):
    (folder / "mine.tuned.json").write_text(table(*searches))
    return best_of(folder / "mine.py", "mine", SPACE)


def test_a_table_of_this_card_goes_before_that_of_another_and_the_newest_before_older_ones(tmp_path):
    found = read(tmp_path, one("H200", 8), one("H200", 1, day="2026-11-21"), one("H100", 8, day="2026-11-22"))
    mine = choose(found, "k", "H200", 9.0)
    assert (mine.settings["rows"], mine.note("H200")) == (1, "tuned for H200 on 2026-11-21 with Triton 3.6.0")
    assert choose(found, "k", "H100", 9.0).settings["rows"] == 8
    assert choose(found, "other", "H200", 9.0) is None


def test_settings_of_another_card_are_said_to_be_and_need_its_compute_capability(tmp_path):
    found = read(tmp_path, one("H100", 8))
    other = choose(found, "k", "H200", 9.0)
    assert other.note("H200") == "tuned for H100 on 2026-11-20 with Triton 3.6.0, not for this card (H200)"
    assert choose(found, "k", "L4", 8.9) is None
    assert choose(found, "k", "a CPU", None) is None
    assert choose(read(tmp_path, one("a CPU", 8, capability=None)), "k", "another CPU", None) is None


def test_searches_without_a_winner_say_nothing_and_a_broken_table_says_why(tmp_path):
    assert read(tmp_path, one("H200", 8) | {"best": None}) == []
    assert best_of(tmp_path / "other.py", "other", SPACE) == []
    with pytest.raises(ValueError, match=r"mine.tuned.json cannot be read"):
        read(tmp_path, one("H200", 77))


def test_another_table_is_another_version_of_the_kernel(folder, monkeypatch):
    monkeypatch.setenv("KERNEL_PATH", str(folder / "kernels"))
    plain = catalog.get_kernel("softmax", "blocked")
    entry = one("H200", 8) | {"best": {"rows": 8, "way": "plain"}}
    beside(folder).write_text(table(entry))
    tuned = catalog.get_kernel("softmax", "blocked")
    loaded = catalog.load(tuned)
    assert plain.sha256 != tuned.sha256 == loaded.sha256
    assert loaded.source.endswith("# tuned: H200, 2026-11-20: rows=8+way=plain for k\n")
    assert loaded.decides.chosen("k", "H200", 9.0)[0] == {"rows": 8, "way": "plain"}
    own = catalog.load(catalog.get_kernel("softmax", "blocked~own"))
    assert own.decides.chosen("k", "H200", 9.0) == (None, "")
    beside(folder).write_text("{")
    assert "blocked.tuned.json cannot be read" in catalog.get_kernel("softmax", "blocked").error


def test_a_config_that_only_checks_can_be_tuned_on():
    config, info = load_config("correctness-grid"), get_kernel("attention", "triton-flash")
    search = _search(TunePlan(), info, config, config.workloads[:2])
    spec = RunSpec(
        device="GPU-1", operation="attention", kernels=[info.name], baseline=info.name, protocol=search.protocol,
        workloads=search.workloads, tune=search.plan,
    )  # fmt: skip
    assert spec.protocol.name == "paired" and not spec.protocol.verify_only

"""A run that ends early keeps what it has measured, leaves nothing behind, and continues where it ended."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from selection import telling

from kernels.cli.files import is_replaceable, replace_file
from kernels.contract.export import read_export

ROOT = Path(__file__).parents[2]
WORKLOADS = 4
FOUR = """
title: Four
operation: attention
kernels: [mine]
protocol: {warmup_s: 0.1, min_rounds: 5, max_rounds: 5, verify_seeds: 1, block_ms: 0.2}
workloads: [{batch: 1, heads: [1, 2, 3, 4], seq_len: 32, head_dim: 16, dtype: float32}]
"""
MINE = """
from torch.nn.functional import scaled_dot_product_attention
from kernels.catalog import kernel

@kernel("attention", backend="pytorch")
def mine(q, k, v, *, causal, scale):
    return scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "four.yaml").write_text(FOUR)
    (tmp_path / "kernels" / "attention").mkdir(parents=True)
    (tmp_path / "kernels" / "attention" / "mine.py").write_text(MINE)
    (tmp_path / "tmp").mkdir()
    return tmp_path


def hear_hangups():
    """These tests may themselves run under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def start(folder, *arguments):
    settings = {"PYTHONPATH": str(ROOT), "KERNEL_PATH": str(folder / "kernels"), "TMPDIR": str(folder / "tmp")}
    line = [sys.executable, "-m", "kernels", "run", *map(str, arguments)]
    keep = {"cwd": folder, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = os.environ | settings | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(line, env=environment, preexec_fn=hear_hangups, **keep)


def finish(process):
    """(exit status, standard output, standard error)"""
    out, err = process.communicate(timeout=100)
    return process.returncode, out, err


def run(folder, *arguments):
    return finish(start(folder, *arguments))


def wait_for(path, process):
    deadline = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def measuring(folder):
    """Processes that work in a scratch folder of these runs."""
    found = []
    for cwd in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if os.readlink(cwd).startswith(str(folder / "tmp")):
                found.append(cwd.parent.name)
        except OSError:
            continue
    return found


def left_behind(folder):
    """Measuring processes, scratch folders and half-written files."""
    scratch = [path.name for path in (folder / "tmp").glob("benchsite-*") if path.is_dir()]
    return [*measuring(folder), *scratch, *(path.name for path in folder.glob(".*"))]


def samples(path):
    """{workload key: samples of its first kernel}"""
    return {m.key: m.results[0].samples_ns for m in read_export(path.read_bytes()).measurements}


ENDS = [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
MORE = "more signals and moments: `make test` has one of each kind"


@pytest.mark.parametrize("end", telling(ENDS, ENDS[0], why=MORE), ids=["SIGTERM", "SIGINT", "SIGHUP"])
def test_what_is_measured_is_written_and_the_rest_is_measured_later(folder, end):
    sent, status = end
    out = folder / "out.json"
    process = start(folder, "four.yaml", "--device", "cpu", "--json", out)
    wait_for(out, process)
    process.send_signal(sent)
    code, said, err = finish(process)
    assert code == status, err
    export = read_export(out.read_bytes())
    assert export.partial in [f"{n} of 4 measured" for n in (1, 2, 3)]
    assert json.loads(out.read_text())["partial"] == export.partial
    assert said.splitlines()[-1].startswith(f"{export.partial}. ")
    told = f"ended by {sent.name}: {export.partial}, in {out}. The rest: python -m kernels run --resume {out}"
    assert err.splitlines()[-1] == told
    assert left_behind(folder) == []
    assert export.timing["start"] > 0, "where its seconds went is known, too"
    before = samples(out)

    code, said, err = run(folder, "--resume", out)
    assert code == 0, err
    after = read_export(out.read_bytes())
    assert (after.partial, after.state, len(after.measurements)) == ("", "done", WORKLOADS)
    assert {key: samples(out)[key] for key in before} == before, "measured anew"
    checks = [arm.crosscheck for m in after.measurements for arm in m.results]
    assert all(check and check.wall_ns for check in checks), "what was measured first lacks its cross-check"
    assert len(said.splitlines()) > 2 * WORKLOADS
    assert after.timing["start"] > export.timing["start"] and after.timing["cross-check"] > 0
    code, said, _ = run(folder, "--resume", out)
    assert code == 0 and "not cross-checked" not in said, "it is complete"
    assert samples(out) == {m.key: m.results[0].samples_ns for m in after.measurements}


@pytest.mark.parametrize("number", telling(range(6), 0, why=MORE))
def test_at_any_moment_nothing_is_left_behind_and_the_file_is_whole(folder, number):
    out = folder / "out.json"
    chance = random.Random(time.time_ns())
    process = start(folder, "four.yaml", "--device", "cpu", "--json", out, "--csv", folder / "out.csv")
    after_s, sent = chance.uniform(0, 6), chance.choice([signal.SIGTERM, signal.SIGINT])
    time.sleep(after_s)
    process.send_signal(sent)
    if chance.random() < 0.5:
        time.sleep(0.1)
        process.send_signal(sent)  # somebody impatient
    code, _, err = finish(process)
    told = f"{sent.name} after {after_s:.2f} s, exit status {code}\n{err}"
    assert code in (128 + sent, 0, -sent), told
    if code == -sent:
        assert err == "", "only before anything has begun"
    assert left_behind(folder) == [], told
    if out.exists():
        assert read_export(out.read_bytes()).partial or code == 0, told


@pytest.mark.thorough(MORE)
def test_a_killed_run_leaves_a_whole_file_that_says_what_it_lacks(folder):
    out = folder / "out.json"
    process = start(folder, "four.yaml", "--device", "cpu", "--json", out)
    wait_for(out, process)
    process.kill()
    finish(process)
    export = read_export(out.read_bytes())
    assert (export.state, export.progress) == ("running", export.partial)
    deadline = time.monotonic() + 10
    while measuring(folder):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert run(folder, "--resume", out)[0] == 0
    assert read_export(out.read_bytes()).partial == ""


@pytest.mark.thorough(MORE)
def test_a_run_continues_only_where_its_numbers_belong_together(folder):
    out, other = folder / "out.json", folder / "other.json"
    process = start(folder, "four.yaml", "--device", "cpu", "--json", out)
    wait_for(out, process)
    process.terminate()
    finish(process)
    written = out.read_text()

    def refused(*arguments):
        code, said, err = run(folder, *arguments)
        assert (code, said) == (2, ""), err
        assert out.read_text() == written, "the file is changed"
        return err.splitlines()[-1]

    data = json.loads(written)
    other.write_text(
        json.dumps(data | {"fingerprint": "0" * 12, "environment": data["environment"] | {"torch": "1.0"}})
    )
    said = refused("--resume", other)
    assert "was measured with another fingerprint (torch " in said and "instead of 1.0): start a new run" in said
    other.write_text(json.dumps(data | {"environment": data["environment"] | {"uuid": "GPU-1"}}))
    assert "there is no device 'GPU-1' on this host" in refused("--resume", other)
    assert "was measured on the device GPU-1, not on CPU-" in refused("--resume", other, "--device", "cpu")
    assert "has different kernels: start a new run" in refused("four.yaml", "--resume", out, "--kernels", "eager")
    assert "has different workloads: start a new run" in refused("--resume", out, "--sweep", "heads=9")
    assert "has different protocol: start a new run" in refused("--resume", out, "--protocol", "fixed")
    assert "name a config, or a run to continue" in refused()
    (folder / "kernels" / "attention" / "mine.py").write_text(MINE + "\n# edited\n")
    assert "the source of mine has changed since the run to resume" in refused("--resume", out)
    (folder / "kernels" / "attention" / "mine.py").write_text(MINE)
    code, _, err = run(folder, "four.yaml", "--resume", out, "--json", other)
    assert code == 0, err
    assert (out.read_text(), read_export(other.read_bytes()).partial) == (written, "")


@pytest.mark.thorough("a whole run: `make test` interrupts one and reads its lines")
def test_without_a_terminal_each_thing_that_is_finished_is_a_line(folder):
    code, _, err = run(folder, "four.yaml", "--device", "cpu")
    lines = err.splitlines()
    assert (code, "\r" in err, "\x1b" in err) == (0, False, False)
    assert [line.split(" s  ")[1].split(": ")[0] for line in lines if "us" in line] == [
        f"{n} of 4 measured" for n in (1, 2, 3, 4)
    ]
    assert (
        sum("mine checked in" in line for line in lines) == sum("mine cross-checked in" in line for line in lines) == 4
    )
    seconds = [float(line.split(" s  ")[0]) for line in lines[1:]]
    assert seconds == sorted(seconds) and seconds[-1] > 0


@pytest.mark.thorough(MORE)
def test_a_full_disk_costs_no_result(folder):
    """It cannot be written, so the table is all there is: measured to the end, and the exit status says it."""
    code, said, err = run(folder, "four.yaml", "--device", "cpu", "--json", "/dev/full")
    assert code == 2, err
    assert err.splitlines()[-1] == "kernels: [Errno 28] No space left on device"
    assert sum("  mine  " in line for line in said.splitlines()) == WORKLOADS


# --- one file ---------------------------------------------------------------------------------------------------------


def test_a_file_is_replaced_whole_and_keeps_its_mode_and_its_links(tmp_path):
    path, link = tmp_path / "a.json", tmp_path / "link.json"
    replace_file(path, "one")
    path.chmod(0o640)
    link.symlink_to(path)
    replace_file(link, "two")
    assert (link.is_symlink(), path.read_text(), path.stat().st_mode & 0o777) == (True, "two", 0o640)
    with pytest.raises(UnicodeEncodeError):
        replace_file(path, "half \ud800")
    assert (path.read_text(), sorted(p.name for p in tmp_path.iterdir())) == ("two", ["a.json", "link.json"])


def test_what_is_no_file_is_never_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert not is_replaceable(pipe)
    assert not is_replaceable(Path("/dev/null"))
    replace_file(Path("/dev/null"), "nothing")
    assert Path("/dev/null").is_char_device()

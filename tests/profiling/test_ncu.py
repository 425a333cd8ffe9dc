"""ncu as a process: an executable of that name which writes what ncu writes, refuses as it refuses, or hangs."""

import os
import time
from pathlib import Path

import pytest
from pages import SOFTMAX, page

from kernels.host import processes
from kernels.host.device import Device
from kernels.profiling import ncu, process
from kernels.profiling.ask import Ask
from kernels.profiling.process import Launcher
from kernels.workload import Workload

GPU = Device("cuda", "GPU-0", "NVIDIA H200", index=0, capability=9.0, memory_bytes=1, driver="580")
WORKLOAD = Workload(operation="layer_norm", dtype="float32", sizes={"rows": 64, "cols": 256})
ASK = Ask(what="counters", device="cuda", workload=WORKLOAD, kernel="eager")
CONNECTED = "==PROF== Connected to process 690"


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host with an ncu that does this script."""

    def has(script):
        path = tmp_path / "ncu"
        version = 'if [ "$1" = --version ]; then echo "Version 2025.3.1.0 (build 1)"; exit; fi'
        path.write_text(f'#!/bin/bash\n{version}\necho "$@" >> {tmp_path}/asked\n{script}\n')
        path.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    has.folder = tmp_path
    return has


def says(folder, text):
    (folder / "said").write_text(text)
    return f"cat {folder}/said"


def counters(limit_s=20.0, **more):
    return ncu.counters(Launcher(GPU, limit_s, **more), ASK, {})


def test_counters_come_with_the_version_of_the_tool(host):
    host(says(host.folder, page(("softmax", SOFTMAX))))
    found, why = counters()
    assert (found.tool, [one.name for one in found.launches], why) == ("2025.3.1.0", ["softmax"], "")


def test_the_clocks_stay_and_only_the_marked_call_is_seen(host):
    host(says(host.folder, page(("softmax", SOFTMAX))))
    counters()
    asked = (host.folder / "asked").read_text()
    for part in ("--clock-control none", "--profile-from-start off", "--page raw", "--csv", '"kernel":"eager"'):
        assert part in asked


@pytest.mark.parametrize(
    ("said", "part"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "gVisor"),
        ("==ERROR== Driver resource was unavailable. Ensure that no other tool", "dcgmi profile --pause"),
        ("==WARNING== No kernels were profiled.", "launched no GPU kernel"),
        ("==ERROR== Something else went wrong", "ncu failed: Something else went wrong"),
        ("", "ended with status 7"),
        ('{"failed": "ValueError: it raised"}', "The kernel failed under ncu: ValueError: it raised"),
    ],
)
def test_a_refusal_is_one_sentence(host, said, part):
    host(f"{says(host.folder, f'{CONNECTED}{chr(10)}{said}{chr(10)}')}; exit 7")
    found, why = counters()
    assert found is None
    assert part in why
    assert why.count("\n") == 0


def test_an_older_ncu_that_does_not_know_a_metric_is_asked_for_its_sections_alone(host):
    said = says(host.folder, page(("softmax", SOFTMAX)))
    host(f'case "$*" in *--metrics*) echo "==ERROR== Failed to find metric smsp__new.avg"; exit 1;; *) {said};; esac')
    found, why = counters()
    assert found is not None, why
    assert len((host.folder / "asked").read_text().splitlines()) == 2


def test_a_host_without_ncu_says_what_its_owner_installs(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(ncu, "PLACES", ())
    assert counters() == (None, ncu.NO_NCU)


def test_an_ncu_beside_its_installers_folder_is_found(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    for version in ("2024.1.0", "2025.3.1"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "ncu").write_text("#!/bin/sh\n")
        (tmp_path / version / "ncu").chmod(0o755)
    monkeypatch.setattr(ncu, "PLACES", (f"{tmp_path}/*/ncu",))
    assert ncu.find() == str(tmp_path / "2025.3.1" / "ncu")


@pytest.mark.parametrize(
    ("parameters", "rights", "isolated", "allowed"),
    [
        ("RmProfilingAdminOnly: 0\n", "0000000000000000", False, True),
        ("RmProfilingAdminOnly: 1\n", "0000000000000000", False, False),
        ("RmProfilingAdminOnly: 1\n", "000001ffffffffff", False, True),
        ("RmProfilingAdminOnly: 1\n", "0000004000000000", False, True),  # CAP_PERFMON alone
        ("RmProfilingAdminOnly: 1\n", "000001ffffffffff", True, False),
        (None, "0000000000000000", False, True),  # it is tried, and then said
    ],
)
def test_what_the_driver_allows_is_known_before_it_is_tried(host, monkeypatch, parameters, rights, isolated, allowed):
    host("")
    settings, status = host.folder / "params", host.folder / "status"
    if parameters:
        settings.write_text(parameters)
    status.write_text(f"Name:\tpython\nCapEff:\t{rights}\n")
    monkeypatch.setattr(ncu, "PARAMETERS", settings)
    monkeypatch.setattr(ncu, "STATUS", status)
    assert (ncu.why_none("cuda", isolated) == "") == allowed


def test_a_cpu_has_no_counters():
    cpu = Launcher(Device("cpu", "CPU-0", "a CPU"), 1.0)
    assert ncu.counters(cpu, ASK, {}) == (None, ncu.NO_GPU)


def test_a_hanging_ncu_is_killed_with_all_that_it_started(host):
    host(f"sleep 300 & echo $! > {host.folder}/pid; setsid sleep 300 & echo $! >> {host.folder}/pid; wait")
    began = time.monotonic()
    found, why = counters(limit_s=2.0)
    assert (found, why) == (None, "There are no counters: it did not end within 2 s.")
    assert time.monotonic() - began < 15
    for pid in (host.folder / "pid").read_text().split():
        assert not processes.is_alive_number(int(pid))


def test_a_process_that_lives_on_with_the_pipes_does_not_hold_up_the_end(host):
    host(f"{says(host.folder, page(('softmax', SOFTMAX)))}; setsid sleep 300 &")
    began = time.monotonic()
    found, _ = counters(limit_s=60.0)
    assert found is not None
    assert time.monotonic() - began < 15


def test_an_ncu_that_closes_its_output_and_hangs_is_killed(host):
    host("exec >&- 2>&-; sleep 300")
    assert counters(limit_s=2.0) == (None, "There are no counters: it did not end within 2 s.")


def test_a_cancel_ends_it(host):
    host("sleep 300")
    asked = iter([False])
    found, why = counters(should_stop=lambda: next(asked, True))
    assert (found, why) == (None, "There are no counters: it was cancelled.")


def test_a_flood_of_output_is_bounded(host, monkeypatch):
    monkeypatch.setattr(process, "MOST_OUTPUT", 1000)
    host("yes | head -c 5000000")
    ended = Launcher(GPU, 20.0).run([str(host.folder / "ncu")], {})
    assert (len(ended.output), ended.status) == (1000, 0)


def test_its_scratch_folder_goes_and_it_gets_no_secret(host, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "secret")
    host(f"pwd > {host.folder}/where; env > {host.folder}/environment")
    Launcher(GPU, 20.0).run([str(host.folder / "ncu")], {"OF_A_KERNEL": "1"})
    where, environment = (host.folder / "where").read_text().strip(), (host.folder / "environment").read_text()
    assert Path(where).name.startswith("benchsite-") and not Path(where).exists()
    assert "secret" not in environment
    assert "OF_A_KERNEL=1" in environment

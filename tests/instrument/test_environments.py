"""Kernels with environment variables: a process of their own, beside their own baseline, and nobody else's."""

import os
from types import SimpleNamespace

import pytest

from kernels.analysis.verdicts import why_undecided
from kernels.catalog import declaration, get_kernel
from kernels.contract.arm_result import Status, Verdict
from kernels.host.device import find_device
from kernels.parent.arm import Arm
from kernels.parent.child_process import COMPILED, PASSED_ON, ROOT, Child, child_environment
from kernels.parent.parts import BaselineTimes, Part, judge, parts
from kernels.parent.supervisor import Supervisor
from kernels.report.tables import rows
from kernels.variables import OF_BASELINES, RESERVED, RESERVED_NAMES, why_refused
from kernels.workload import Ceilings, Config, RunSpec

CEILINGS = Ceilings(copy_gb_per_s=100, read_gb_per_s=100)
QUICK = {"min_rounds": 8, "max_rounds": 8, "warmup_s": 0.05, "verify_seeds": 1}
SIZES = {"m": 64, "n": 64, "k": 64, "dtype": "float32"}
KERNELS = """import os

from kernels.catalog import kernel

SEEN = os.environ.get("MY_SWITCH", ""), os.environ.get("OTHER_SWITCH", "")


@kernel("gemm", backend="pytorch")
def without(a, b):
    assert SEEN == ("", ""), SEEN
    return a @ b


@kernel("gemm", backend="pytorch", environment={"MY_SWITCH": "1"})
def with_one(a, b):
    assert SEEN == ("1", ""), SEEN
    return a @ b


@kernel("gemm", backend="pytorch", environment={"MY_SWITCH": "1"})
def with_the_same(a, b):
    assert SEEN == ("1", ""), SEEN
    return a @ b


@kernel("gemm", backend="pytorch", environment={"OTHER_SWITCH": "on"})
def with_another(a, b):
    assert SEEN == ("", "on"), SEEN
    return a @ b
"""
MORE = "more of environments: `make test` measures once with them, in the shared process"
NAMES = ["eager", "without", "with-one", "with-the-same", "with-another"]


@pytest.fixture
def switches(monkeypatch, tmp_path):
    (tmp_path / "gemm").mkdir()
    (tmp_path / "gemm" / "switches.py").write_text(KERNELS)
    tmp_path.chmod(0o755)  # an isolated kernel is another user's
    monkeypatch.setenv("KERNEL_PATH", str(tmp_path))
    return tmp_path


def measured(kernels, sizes=SIZES, **protocol):
    """(events of a run on the CPU, environments of the children that it started)"""
    config = Config(name="t", operation="gemm", kernels=kernels, workloads=[sizes], protocol=QUICK | protocol)
    device, events, started = find_device("cpu"), [], []
    start = Child._start
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Child, "_start", lambda child: (start(child), started.append(child.environment)))
        Supervisor(RunSpec.of(config, device.uuid, ceilings=CEILINGS), device, events.append).run()
    return events, started


@pytest.mark.thorough("a whole run with a process for each environment")
def test_each_environment_has_a_process_with_its_own_baseline(switches):
    events, started = measured(NAMES)
    plain, one, another = [event for event in events if event.kind == "measured"]
    assert {arm.kernel: arm.status for arm in plain.results} == {"eager": "ok", "without": "ok"}
    assert {arm.kernel: arm.status for arm in one.results} == {"eager": "ok", "with-one": "ok", "with-the-same": "ok"}
    assert {arm.kernel: arm.status for arm in another.results} == {"eager": "ok", "with-another": "ok"}
    assert len({event.place for event in (plain, one, another)}) == 3
    for event in (plain, one, another):
        assert event.baseline == "eager" and event.aa is not None
        assert all(arm.speedup is not None for arm in event.results if arm.kernel != "eager")
    assert [arm.environment for arm in one.results] == [{"MY_SWITCH": "1"}] * 3
    assert [arm.environment for arm in another.results] == [{"OTHER_SWITCH": "on"}] * 2
    assert [arm.environment for arm in plain.results] == [{}, {}]
    assert "measured in a process of its own with MY_SWITCH=1, and so was its baseline" in one.notes
    assert not any("MY_SWITCH" in note for note in plain.notes)
    assert {"MY_SWITCH": "1"} in started and {"OTHER_SWITCH": "on"} in started and {} in started
    assert all(len(environment) < 2 for environment in started), "no process has the variables of two"


@pytest.mark.thorough(MORE)
def test_the_crosscheck_runs_each_kernel_in_its_environment(switches):
    events, _ = measured(["eager", "with-one", "without"])
    (checked,) = [event for event in events if event.kind == "crosschecked"]
    assert {seen.kernel for seen in checked.seen if seen.ran} == {"eager", "with-one", "without"}


@pytest.mark.thorough(MORE)
def test_a_check_without_timing_uses_the_environment(switches):
    events, _ = measured(NAMES, verify_only=True)
    found = {arm.kernel: (arm.status, arm.why) for event in events if event.kind == "measured" for arm in event.results}
    assert found == dict.fromkeys(NAMES, ("ok", ""))


@pytest.mark.thorough(MORE)
def test_an_isolated_kernel_has_its_environment_alone(switches):
    events, _ = measured(["eager", "without", "with-one"], isolated=True)
    (event,) = [event for event in events if event.kind == "measured"]
    assert {arm.kernel: (arm.status, arm.environment) for arm in event.results} == {
        "eager": ("ok", {}), "without": ("ok", {}), "with-one": ("ok", {"MY_SWITCH": "1"}),
    }  # fmt: skip
    assert all(not arm.why or arm.why.startswith(Verdict.TOO_SHORT) for arm in event.results), "on a busy machine"


def test_a_kernel_with_an_environment_cannot_be_the_baseline(switches):
    config = Config(
        name="t",
        operation="gemm",
        kernels=["with-one", "without"],
        baseline="with-one",
        workloads=[SIZES],
        protocol=QUICK,
    )
    device, events = find_device("cpu"), []
    Supervisor(RunSpec.of(config, device.uuid, ceilings=CEILINGS), device, events.append).run()
    results = {arm.kernel: arm for event in events if event.kind == "measured" for arm in event.results}
    assert results["with-one"].status == Status.UNSUPPORTED and "cannot be the baseline" in results["with-one"].why
    assert results["without"].speedup is None


@pytest.mark.thorough(MORE)
def test_a_baseline_slowed_down_by_the_environment_makes_its_kernels_suspect(switches, monkeypatch):
    """The variables slow the baseline only: as a library's switch would that the kernel does not use."""
    (switches / "gemm" / "eager.py").write_text(
        "import os, time\n"
        "from kernels.catalog import kernel\n"
        "@kernel('gemm', backend='pytorch')\n"
        "def eager(a, b):\n"
        "    if os.environ.get('MY_SWITCH'):\n"
        "        time.sleep(0.03)\n"
        "    return a @ b\n"
    )
    events, _ = measured(["eager", "with-one", "with-another"], SIZES | {"m": 256, "n": 256, "k": 256})
    found = {arm.kernel: arm for event in events if event.kind == "measured" for arm in event.results}
    assert found["with-one"].status == Status.SUSPECT and found["with-one"].speedup is None
    assert "its environment slows the baseline down: " in found["with-one"].why
    assert found["with-another"].status == Status.OK


# --- parts ------------------------------------------------------------------------------------------------------------


def arm(name, status=Status.OK, **environment):
    return Arm(name, status, facts={"environment": environment})


def test_arms_are_parted_by_their_variables_and_what_cannot_run_starts_no_process():
    arms = [arm("eager"), arm("a", X="1"), arm("b", X="2"), arm("c", X="1"), arm("d", Status.UNSUPPORTED, X="3")]
    first, one, two = parts(arms, lambda: arm("eager"))
    assert [mine.name for mine in first.arms] == ["eager", "d"]
    assert [mine.name for mine in one.arms] == ["eager", "a", "c"] and one.environment == {"X": "1"}
    assert [mine.name for mine in two.arms] == ["eager", "b"]
    assert one.arms[0] is not first.arms[0]
    names = {part.group(group) for part in (first, one, two) for group in ("main", "eager-launch")}
    assert len(names) == 6 and {"main", "eager-launch"} < names and max(map(len, names)) <= 30


@pytest.mark.parametrize(
    "kind, ns, margins, slower",
    [
        ("cuda", 1.05, (0.01, 0.01), False), ("cuda", 1.2, (0.01, 0.01), True), ("cuda", 1.2, (0.01, 0.2), None),
        ("cpu", 1.4, (0.01, 0.01), False), ("cpu", 1.6, (0.01, 0.01), True), ("cpu", 5.0, (2.0, 2.0), None),
    ],
)  # fmt: skip
def test_a_baseline_may_differ_between_processes_by_so_much(kind, ns, margins, slower):
    assert BaselineTimes(kind, ns * 1e6, 1e6, margins).is_slower is slower


def test_on_a_busy_cpu_a_slower_baseline_is_nobodys_fault_until_it_is_far_slower():
    """The second process began as another program did: 1.6 times as slow, twice."""
    assert BaselineTimes("cpu", 1.6e6, 1e6, (0.01, 0.01), is_busy=True).is_slower is None
    assert BaselineTimes("cpu", 60e6, 1e6, (0.01, 0.01), is_busy=True).is_slower is True
    part = Part([arm("eager", X="1"), arm("a", X="1")], {"X": "1"})
    judge(part, BaselineTimes("cpu", 1.6e6, 1e6, (0.01, 0.01), is_busy=True))
    assert part.alive == part.arms and part.notes[0].endswith("1000 us without it; other processes used the CPU")


def test_noise_that_may_hide_a_slower_baseline_leaves_no_verdict():
    """The part without variables was noisy, the one with them was not: its ratios were verdicts."""
    part = Part([arm("eager", X="1"), arm("a", X="1")], {"X": "1"})
    judge(part, BaselineTimes("cpu", 4e6, 1e6, (0.01, 3.0)))
    assert [one.status for one in part.arms] == ["ok", "ok"] and part.margin == 3.0
    assert (
        part.notes[0]
        == "X=1 may slow the baseline down: 4000 us with it, 1000 us without it; noise of that size hides it"
    )


@pytest.mark.parametrize(
    ("kind", "ns", "within", "margin"),
    [
        ("cpu", 1.43, 0.01, 1.43 * 1.01 / 0.99 - 1), ("cpu", 1.07, 0.005, 1.07 * 1.005 / 0.995 - 1),
        ("cpu", 1.07, 0.02, 0.0), ("cpu", 1.04, 0.001, 0.0), ("cpu", 0.7, 0.001, 0.0),
        ("cuda", 1.09, 0.001, 1.09 * 1.001 / 0.999 - 1), ("cuda", 1.019, 0.001, 0.0),
    ],
)  # fmt: skip
def test_what_variables_take_from_the_baseline_is_no_speedup(kind, ns, within, margin):
    """Below the limits the whole of it counted for the kernel."""
    part = Part([arm("eager", X="1"), arm("a", X="1")], {"X": "1"})
    intervals = [(of * 1e6 * (1 - within), of * 1e6 * (1 + within)) for of in (ns, 1.0)]
    judge(part, BaselineTimes(kind, ns * 1e6, 1e6, (0.01, 0.01), False, intervals))
    assert part.margin == pytest.approx(margin) and part.alive == part.arms
    slower = f"with its environment the baseline is {ns:.3g} times slower: "
    assert any(note.startswith(slower) for note in part.notes) == (margin > 0)


def test_a_result_whose_baseline_is_slowed_down_has_the_reason():
    slower = "with its environment the baseline is 1.43 times slower: 89 us with it, 62 us without it"
    event = SimpleNamespace(margin=0.45, aa=None, is_contended=True, of_cpu=True, notes=["another", slower])
    assert why_undecided(event) == slower
    event.margin = 0.03
    assert why_undecided(event) == ""


@pytest.mark.thorough(MORE)
def test_a_baseline_that_the_environment_slows_down_a_little_leaves_no_verdict(switches):
    (switches / "gemm" / "eager.py").write_text(
        "import os, time\n"
        "from kernels.catalog import kernel\n"
        "@kernel('gemm', backend='pytorch')\n"
        "def eager(a, b):\n"
        "    time.sleep(0.013 if os.environ.get('MY_SWITCH') else 0.01)\n"
        "    return a @ b\n"
    )
    events, _ = measured(["eager", "with-one", "with-another"])
    table = {row.kernel: row for row in rows([event for event in events if event.kind == "measured"])}
    assert table["with-one"].verdict == Verdict.UNDECIDED and table["with-one"].margin > 0.2
    assert table["with-one"].why.startswith("with its environment the baseline is 1.")
    assert not table["with-another"].why.startswith("with its environment")


# --- the declaration --------------------------------------------------------------------------------------------------


def declared(**environment):
    return declaration("nsa", backend="triton", function_name="f", environment=environment)["environment"]


def test_a_file_may_declare_variables():
    assert declared(TILELANG_USE_GEMM_V1="1", A="b c") == {"A": "b c", "TILELANG_USE_GEMM_V1": "1"}
    assert get_kernel("nsa", "tilelang-cutedsl").environment == {"TILELANG_USE_GEMM_V1": "1"}
    assert get_kernel("nsa", "tilelang").environment == {}


@pytest.mark.parametrize(
    "name",
    ["LD_PRELOAD", "PYTHONPATH", "CUDA_VISIBLE_DEVICES", "HOME", "KERNEL_PATH", "OMP_WAIT_POLICY", "lower", "A B",
     "OMP_THREAD_LIMIT", "OMP_DYNAMIC", "ATEN_CPU_CAPABILITY", "MKL_CBWR", "DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA"],
)  # fmt: skip
def test_variables_of_the_instrument_are_refused(name):
    with pytest.raises(ValueError, match="the environment variable"):
        declared(**{name: "1"})


@pytest.mark.parametrize("value", [1, "two\nlines", "x" * 201])
def test_a_value_is_a_short_text(value):
    with pytest.raises(ValueError, match="it must be a text"):
        declared(NAME=value)


def test_the_default_baseline_has_no_variables():
    with pytest.raises(ValueError, match="is the baseline of nsa"):
        declaration("nsa", backend="pytorch", function_name="eager", environment={"A": "1"})


def test_a_kernel_cannot_set_what_the_instrument_sets():
    """Whatever is passed on or set for a child is refused in a declaration."""
    mine = child_environment(SimpleNamespace(kind="cpu", uuid=""), "/tmp/scratch")
    for name in {*PASSED_ON, *mine}:
        assert name in RESERVED_NAMES or name.startswith((*RESERVED, *OF_BASELINES)), name


def test_a_process_for_kernels_finds_what_this_process_was_given_to_import(monkeypatch, tmp_path):
    """The product's folder comes first; a folder of packages that PYTHONPATH names is not lost."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    folders = child_environment(find_device("cpu"), str(tmp_path))["PYTHONPATH"].split(os.pathsep)
    assert folders == [str(ROOT), str(tmp_path)]
    monkeypatch.delenv("PYTHONPATH")
    assert child_environment(find_device("cpu"), str(tmp_path))["PYTHONPATH"] == str(ROOT)


def test_every_compiler_writes_into_the_scratch_folder_and_no_kernel_says_where():
    """What they made is handed to the process of the cross-check."""
    got = child_environment(find_device("cpu"), "/scratch")
    for folder, variable in COMPILED.items():
        assert got[variable] == f"/scratch/{folder}"
        assert why_refused({variable: "/elsewhere"})
    assert {"TRITON_CACHE_DIR", "TILELANG_CACHE_DIR", "CUTE_DSL_CACHE_DIR", "QUACK_CACHE_DIR"} <= got.keys()

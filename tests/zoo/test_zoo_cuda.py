"""Kernels that cheat with streams, events and device memory: each is caught, for its own reason; honest ones pass.

Needs no site: python -m pytest --noconftest -c /dev/null --rootdir . tests/zoo/test_zoo_cuda.py
"""

import pytest
from cases import ALL_FOLDERS, isolated, on
from measuring import SIZES, measure, measure_alone

from kernels.host.device import NoSuchDevice, find_device

try:
    find_device("cuda")
    NO_DEVICE = ""
except NoSuchDevice as error:
    NO_DEVICE = str(error)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.thorough("the zoo's cheats with a GPU"),
    pytest.mark.skipif(bool(NO_DEVICE), reason=NO_DEVICE),
]

SIZES = SIZES["cuda"]
PATIENT = {"min_rounds": 30, "max_rounds": 30, "block_ms": 4.0}
"""For cases that must see the same input sets several times."""
APART = ("cheats-in-the-middle", "skips-what-is-written", "works-in-pauses", "knows-it-from-the-last-run")
CASES = {case.name: case for case in on("cuda") if case.attacked != "honest"}
TOGETHER = [name for name, case in CASES.items() if name not in APART and case.protocol != PATIENT]
SLOWLY = [name for name, case in CASES.items() if case.protocol == PATIENT]
HONEST = ["sdpa-math", "sdpa-flash", *(case.name for case in on("cuda") if case.attacked == "honest")]


def is_called_right(row, name):
    assert CASES[name].is_called("cuda", row), (row["status"], row["speedup"], row["why"])
    return True


@pytest.fixture(scope="module")
def in_processes_of_their_own():
    names = [case.name for case in isolated("cuda")]
    return measure("cuda", *names, sizes=SIZES, environment={"KERNEL_PATH": ALL_FOLDERS}, isolated=True)


@pytest.mark.parametrize("case", isolated("cuda"), ids=lambda case: case.name)
def test_in_a_process_of_its_own(in_processes_of_their_own, case):
    row = in_processes_of_their_own[case.name]
    assert case.is_called_isolated("cuda", row), (row["status"], row["speedup"], row["why"])


def test_the_baseline_is_honest_in_a_process_of_its_own(in_processes_of_their_own):
    assert in_processes_of_their_own["sdpa"]["status"] == "ok"


@pytest.fixture(scope="module")
def cheats():
    return measure("cuda", "eager", *TOGETHER, sizes=SIZES, mode="cold")


@pytest.fixture(scope="module")
def patient():
    return measure("cuda", "eager", *SLOWLY, sizes=SIZES, mode="cold", **PATIENT)


@pytest.mark.parametrize("kernel", TOGETHER)
def test_cheats(cheats, kernel):
    assert is_called_right(cheats[kernel], kernel)


@pytest.mark.parametrize("kernel", SLOWLY)
def test_cheats_that_remember(patient, kernel):
    assert is_called_right(patient[kernel], kernel)


@pytest.mark.parametrize("kernel", APART)
def test_apart_from_others(kernel):
    assert is_called_right(measure_alone(CASES[kernel], "cuda"), kernel)


def test_the_honest_are_measured_beside_them(cheats, patient):
    for found in (cheats, patient):
        assert {found[name]["status"] for name in ("sdpa", "eager")} == {"ok"}
        assert found["eager"]["speedup"] is not None


@pytest.mark.parametrize("mode", ["cold", "graph"])
def test_honest(mode):
    found = measure("cuda", *HONEST, sizes=SIZES, mode=mode)
    assert {name: row["why"] for name, row in found.items() if row["status"] != "ok"} == {}


def test_honest_and_small():
    """Calls of a few microseconds, where the host takes longer than the device: as graphs, with single calls after them."""
    small = SIZES | {"batch": 1, "heads": 1, "seq_len": 128}
    found = measure(
        "cuda", "eager", "sdpa-flash", "strided", "side-stream-joined", "uses-vmap", sizes=small, mode="graph"
    )
    assert {name: row["why"] for name, row in found.items() if row["status"] != "ok"} == {}


def test_compilers_are_honest():
    """They begin processes and threads of their own."""
    found = measure("cuda", "compiled", "triton-flash", sizes=SIZES)
    assert {name: row["why"] for name, row in found.items() if row["status"] != "ok"} == {}


@pytest.mark.parametrize("mode", ["warm", "e2e", "sustained"])
def test_modes_on_request(mode):
    found = measure("cuda", "sdpa-flash", sizes=SIZES, mode=mode)
    assert {name: (row["status"], row["mode"]) for name, row in found.items()} == {
        "sdpa": ("ok", mode),
        "sdpa-flash": ("ok", mode),
    }
    low, high = (found["sdpa-flash"][f"speedup_{end}"] for end in ("low", "high"))
    assert 0.2 < low < high < 1.1, "FlashAttention 2 is not faster than the default by this much"


def test_a_time_above_a_ceiling_is_believed_if_a_second_process_agrees():
    """As on a device whose matrix product was measured while it was slowed down."""
    found = measure("cuda", "sdpa-flash", sizes=SIZES, ceilings={"matmul_tflops": {"float16": 1.0}}, max_rounds=20)
    assert {row["status"] for row in found.values()} == {"ok"}
    for name in found:
        assert any(f"{name}: " in note and "a second process agrees" in note for note in found[name]["notes"])

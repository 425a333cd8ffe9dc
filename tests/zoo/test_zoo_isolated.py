"""Kernels that attack what measures them, each in a process of its own: caught, or without effect."""

import os
from pathlib import Path

import pytest
from cases import ALL_FOLDERS, NO_EFFECT, ZOO, isolated
from measuring import measure
from selection import asked_for, telling

from kernels.operations.attention import Attention
from kernels.report.tables import failures

SIZES = {"batch": 1, "heads": 2, "seq_len": 256, "head_dim": 64, "dtype": "float32"}
CASES = {case.name: case for case in isolated("cpu")}
CAUGHT = [name for name, case in CASES.items() if case.isolated["cpu"][0] != NO_EFFECT]
POWERLESS = [name for name in CASES if name not in CAUGHT]

WHY = "all of the zoo in processes of their own: `make test` measures one attack of each kind"
attacks = telling(CAUGHT, "takes-over-the-loop", "wakes-itself", why=WHY)
without_effect = telling(POWERLESS, "patches-the-timer", "writes-into-the-product", why=WHY)
pytestmark = [pytest.mark.journey, pytest.mark.timeout(900)]  # every kernel starts a process


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """A folder outside the scratch folders where everybody may write."""
    folder = tmp_path_factory.mktemp("left")
    folder.chmod(0o777)
    return folder


def measured(*kernels, plan=None, **more):
    environment = {"OMP_NUM_THREADS": "1", "KERNEL_PATH": ALL_FOLDERS} | more
    return measure("cpu", *kernels, sizes=SIZES, environment=environment, isolated=True, **(plan or {}))


@pytest.fixture(scope="module")
def found(left, request):
    asked = asked_for(request, "kernel")
    return measured("eager", *[kernel for kernel in (*CAUGHT, *POWERLESS) if kernel in asked], LEAVE_IN=str(left))


@pytest.mark.parametrize("kernel", [*attacks, *without_effect])
def test_is_called_right(found, kernel):
    row = found[kernel]
    assert CASES[kernel].is_called_isolated("cpu", row), (row["status"], row["speedup"], row["verdict"], row["why"])
    assert row["status"] in ("ok", "unsupported") or failures([row["row"]])


def test_honest_kernels_pass(found):
    assert found["eager"]["status"] == found["sdpa"]["status"] == "ok"


def test_its_checks_have_the_inputs_of_the_operation():
    found = measured("eager", plan={"verify_only": True, "verify_seeds": len(Attention.checked_with)})
    assert set(found["eager"]["facts"].distributions) == set(Attention.checked_with)


def test_other_distributions_are_checked_again_after_the_timed_calls():
    """Every distribution was right while it was checked alone, and timed calls had none but the usual one."""
    row = measured("right-on-usual-inputs-later", plan={"verify_seeds": 3})["right-on-usual-inputs-later"]
    assert row["status"] == "incorrect" and "correct when checked alone, wrong when timed" in row["why"]


@pytest.mark.parametrize("kernel", ["knows-the-sets-of-checks", "knows-the-command"])
def test_no_check_is_known_by_its_input_sets_or_its_command(kernel):
    """Checks had two sets of their own and a command of their own: a kernel that knew them passed."""
    row = measured(kernel, plan={"verify_seeds": len(Attention.checked_with)})[kernel]
    assert row["status"] == "incorrect", (row["why"], row["verdict"])


def test_nothing_is_left_where_the_product_runs(found, left):
    import kernels

    if not found["eager"]["isolation"].read_only:
        pytest.skip("this host allows no read-only files: " + "; ".join(found["eager"]["isolation"].missing))
    root = Path(kernels.__file__).parent
    name = "left_by_a_kernel.txt"
    assert not [folder for folder in (root, root.parent, ZOO, left) if (folder / name).exists()]
    assert not list(left.iterdir())


def test_no_process_survives(found):
    if not (found["eager"]["isolation"].own_pids or found["eager"]["isolation"].own_user):
        pytest.skip("this host allows neither own process ids nor an own user")
    command_lines = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and entry.name != str(os.getpid()):
            try:
                command_lines.append((entry / "cmdline").read_bytes())
            except OSError:
                continue
    assert not [line for line in command_lines if b"left by a kernel" in line]

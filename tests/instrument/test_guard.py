"""The guard watches every function of the instrument: whoever replaces one could write its own result."""

import importlib
import sys
import types
from pathlib import Path

import pytest

from kernels.child import functions, guard
from kernels.child.clock import CpuClock

ROOT = Path(__file__).parents[2] / "kernels"
ROOMS = ("analysis", "child", "contract", "host", "parent")
MODULES = [
    f"kernels.{room}.{path.stem}"
    for room in ROOMS
    for path in sorted((ROOT / room).glob("*.py"))
    if path.stem not in ("__init__", "__main__")
]


@pytest.fixture
def watching():
    """A guard made when all of the instrument is loaded."""
    for name in MODULES:
        importlib.import_module(name)
    return guard.Guard("cpu", CpuClock())


def test_every_room_has_modules():
    assert {name.split(".")[1] for name in MODULES} == set(ROOMS)
    assert {"kernels.child.bench", "kernels.parent.engine", "kernels.analysis.statistics"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_each_module_of_the_instrument_is_protected(watching, name):
    module = sys.modules[name]
    assert module in functions.protected_modules()
    if module in (guard, functions):
        return  # it finds a replaced function by its own functions: see the next test
    own = [
        attribute
        for attribute, value in vars(module).items()
        if isinstance(value, types.FunctionType) and value.__module__ == name
    ]
    for attribute in own:
        before = getattr(module, attribute)
        try:
            setattr(module, attribute, lambda *arguments, **options: None)
            assert watching.changes() == [f"{name}.{attribute}: replaced"]
            assert getattr(module, attribute) is before, "it is put back"
        finally:
            setattr(module, attribute, before)
    assert watching.changes() == []


def test_the_guard_watches_itself(watching, monkeypatch):
    monkeypatch.setattr(guard, "memory_in_use", lambda kind: 0)
    assert watching.changes() == ["kernels.child.guard.memory_in_use: replaced"]


def test_the_catalogue_is_protected_and_other_code_is_not(watching):
    names = {module.__name__ for module in functions.protected_modules()}
    assert {"kernels.catalog", "kernels.kernel_files"} <= names
    assert not {name for name in names if name.startswith(("kernels.operations.", "kernels.report.", "runs."))}

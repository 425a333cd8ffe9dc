"""How a process begins: its imports are not looked through by the garbage collector, what comes later is."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.host import starting

SAYS = """
import gc
from kernels.host import starting
passes = []
gc.callbacks.append(lambda phase, about: passes.append(phase))
with starting.imports():
    import kernels.cli.main
print(len(passes), gc.isenabled(), gc.get_freeze_count() > 10_000)
"""


def test_nothing_is_collected_while_it_imports_and_what_was_imported_stays():
    line = [sys.executable, "-c", SAYS]
    done = subprocess.run(line, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("0 True True\n", "")


def test_after_an_import_that_failed_it_collects():
    with pytest.raises(ImportError), starting.imports():
        import kernels.no_such_module  # noqa: F401
    assert gc.isenabled()

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


LOADS = """
import sys
from kernels.catalog import get_kernel, load, operations
for name, operation in operations().items():
    if operation.baseline:
        load(get_kernel(name, operation.baseline))
for name in ("sdpa-math", "eager", "triton-flash"):
    load(get_kernel("attention", name))
print([name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules])
"""


def test_no_baseline_and_no_kernel_of_smoke_imports_the_compiler_when_it_is_loaded():
    line = [sys.executable, "-c", LOADS]
    done = subprocess.run(line, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr

import resource
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from kernels.child import host_memory  # noqa: E402

ROOT = Path(__file__).parents[2]


def faults_of(make):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = [make() for _ in range(40)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, len(held)


def test_outputs_that_live_together_need_no_new_pages():
    """40 outputs of 256 KiB have 2,560 pages."""
    host_memory.keep_freed()
    host_memory.touch(40 * 2**18)
    x = torch.ones(256, 256)
    torch.softmax(x, -1)
    counts = [faults_of(lambda: torch.softmax(x, -1))[0] for _ in range(5)]
    assert min(counts) < 256


ALONE = """
import ctypes, resource, torch
from kernels.child import host_memory

LIBC = ctypes.CDLL(None)

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = [torch.ones(2**18) for _ in range(40)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

host_memory.keep_freed()
ahead = host_memory.Ahead()
ahead.take(40 * 2**20)
{change}
changed = faults()
ahead.keep()
print(changed, faults())
"""
"""In a process of its own, as a measuring one: the memory of other tests would count."""
ONCE = "LIBC.malloc_trim(0)"
ALWAYS = f"LIBC.mallopt(host_memory.M_MMAP_THRESHOLD, 65536); LIBC.mallopt(host_memory.M_TRIM_THRESHOLD, 65536); {ONCE}"


@pytest.mark.parametrize("change", [ALWAYS, ONCE], ids=["always", "once"])
def test_what_a_kernel_changes_is_undone_before_the_next_block(change):
    """As a kernel with memory of its own did, beside which the baseline of GELU took three times as long."""
    said = subprocess.run([sys.executable, "-c", ALONE.format(change=change)], cwd=ROOT, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    changed, after = map(int, said.stdout.split())
    assert changed > 5120, "of 10,240 pages"
    assert after < 2560, "some pages may be missing where the process has grown elsewhere meanwhile"

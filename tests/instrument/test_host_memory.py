import resource

import pytest

torch = pytest.importorskip("torch")

from kernels.child import host_memory  # noqa: E402


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

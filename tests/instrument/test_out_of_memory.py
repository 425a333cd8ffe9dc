"""Out of memory: the result says what was asked for, and what was free where PyTorch says it."""

import re
import resource

import pytest

from kernels.contract.arm_result import Status
from kernels.parent.arm import in_short

PYTORCH_2_8 = (
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 30.29 GiB. GPU 0 has a total capacity of 10.74 GiB of which "
    "3.69 GiB is free. Including non-PyTorch memory, this process has 6.68 GiB memory in use. Of the allocated memory "
    "6.10 GiB is allocated by PyTorch, and 396.58 MiB is reserved by PyTorch but unallocated. If reserved but unallocated "
    "memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
"""As PyTorch 2.4 to 2.8 write it."""
PYTORCH_2_10 = (
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 1.95 GiB. GPU 0 has a total capacity of 14.57 GiB of which "
    "1.58 GiB is free. Process 2493055 has 12.02 GiB memory in use. Including non-PyTorch memory, this process has "
    "966.00 MiB memory in use. Of the allocated memory 734.07 MiB is allocated by PyTorch, and 33.93 MiB is reserved by "
    "PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
"""As later versions do: the variable has another name, and other processes are named."""
NOTHING_FREE = (
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 496.00 MiB. GPU 0 has a total capacty of 14.75 GiB of which "
    "0 bytes is free. Process 20398 has 14.52 GiB memory in use."
)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (PYTORCH_2_8, "tried to allocate 30.29 GiB; 3.69 GiB of 10.74 GiB were free"),
        (PYTORCH_2_10, "tried to allocate 1.95 GiB; 1.58 GiB of 14.57 GiB were free"),
        (NOTHING_FREE, "tried to allocate 496.00 MiB; 0 bytes of 14.75 GiB were free"),
        ("RuntimeError: CUDA error: out of memory", "RuntimeError: CUDA error: out of memory"),
        ("MemoryError: ", "MemoryError: "),
    ],
)
def test_what_was_asked_and_what_was_free(message, said):
    assert in_short(Status.OUT_OF_MEMORY, message) == said


def told(error):
    """What a result says of an exception of a kernel."""
    from kernels.child.__main__ import fault

    return in_short(Status.OUT_OF_MEMORY, fault(error, False).message)


def test_a_cpu_says_what_was_asked_and_what_its_process_may_still_have(monkeypatch):
    """This PyTorch's own words."""
    import torch

    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**50, dtype=torch.uint8)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (2**50, 2**50))
    assert re.fullmatch(r"tried to allocate 1,024 TiB; 1,0\d\d TiB of 1,024 TiB were free", told(raised.value))
    monkeypatch.setattr(resource, "getrlimit", lambda what: (0, 0))
    assert told(raised.value) == "tried to allocate 1,024 TiB; 0 B of 0 B were free"
    monkeypatch.setattr(resource, "getrlimit", lambda what: (resource.RLIM_INFINITY,) * 2)
    assert told(raised.value) == "tried to allocate 1,024 TiB"


def test_what_is_free_is_said_where_cuda_says_nothing(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (3 * 2**30, 80 * 2**30))
    error = RuntimeError("CUDA error: out of memory")
    assert told(error) == "RuntimeError: CUDA error: out of memory; 3 GiB of 80 GiB were free"
    assert told(torch.OutOfMemoryError(PYTORCH_2_10)) == "tried to allocate 1.95 GiB; 1.58 GiB of 14.57 GiB were free"

    def broken():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "mem_get_info", broken)
    assert told(error) == "RuntimeError: CUDA error: out of memory"


def test_other_errors_keep_their_words():
    assert in_short(Status.FAILED, PYTORCH_2_8) == PYTORCH_2_8

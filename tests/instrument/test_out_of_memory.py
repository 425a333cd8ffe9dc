"""Out of memory: the result says what was asked for, and what was free where PyTorch says it."""

import re
import resource

import pytest

from kernels.contract.arm_result import Status
from kernels.parent.arm import Arm, in_short
from kernels.parent.child_process import CommandFailed

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


CUDA = (
    "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace "
    "below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to "
    "enable device-side assertions.\n"
)
"""As PyTorch writes it where its allocator was not asked."""


def blamed(error):
    """(status, first line of why) of a kernel that raised this."""
    from kernels.child.__main__ import fault

    arm = Arm("mine")
    arm.blame("when it is called", CommandFailed(fault(error, False)), "")
    return arm.status, arm.why.splitlines()[0]


def test_a_kernel_in_triton_is_unsupported_where_triton_finds_no_gpu():
    error = RuntimeError("0 active drivers ([]). There should only be one.")
    assert blamed(error) == (Status.UNSUPPORTED, "needs a CUDA device: Triton finds none here")


@pytest.fixture
def gpu(monkeypatch):
    """CUDA is initialised, and 3 of 80 GiB are free."""
    import torch

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (3 * 2**30, 80 * 2**30))
    return monkeypatch


@pytest.fixture
def too_large():
    """This PyTorch's own error on a CPU."""
    import torch

    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**50, dtype=torch.uint8)
    return raised.value


@pytest.mark.parametrize("on_gpu", [False, True], ids=["without CUDA", "with CUDA"])
def test_of_a_cpu_it_is_said_what_was_asked_and_what_the_process_may_still_have(
    request, monkeypatch, too_large, on_gpu
):
    if on_gpu:
        request.getfixturevalue("gpu")
    monkeypatch.setattr(resource, "getrlimit", lambda what: (2**50, 2**50))
    _, said = blamed(too_large)
    assert re.fullmatch(r"tried to allocate 1,024 TiB; 1,0\d\d TiB of 1,024 TiB were free", said)
    assert re.fullmatch(r"MemoryError; 1,0\d\d TiB of 1,024 TiB were free", blamed(MemoryError())[1])
    monkeypatch.setattr(resource, "getrlimit", lambda what: (0, 0))
    assert blamed(too_large)[1] == "tried to allocate 1,024 TiB; 0 B of 0 B were free"
    monkeypatch.setattr(resource, "getrlimit", lambda what: (resource.RLIM_INFINITY,) * 2)
    assert blamed(too_large)[1] == "tried to allocate 1,024 TiB"


def test_what_is_free_is_said_where_cuda_says_nothing(gpu):
    import torch

    out = Status.OUT_OF_MEMORY
    assert blamed(RuntimeError(CUDA)) == (out, "RuntimeError: CUDA error: out of memory; 3 GiB of 80 GiB were free")
    said = "tried to allocate 1.95 GiB; 1.58 GiB of 14.57 GiB were free"
    assert blamed(torch.OutOfMemoryError(PYTORCH_2_10)) == (out, said)

    def broken():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    gpu.setattr(torch.cuda, "mem_get_info", broken)
    assert blamed(RuntimeError(CUDA)) == (out, "RuntimeError: CUDA error: out of memory")


def test_other_errors_of_cuda_are_a_crash(gpu):
    status, said = blamed(RuntimeError("CUDA error: an illegal memory access was encountered"))
    assert status == Status.CRASHED and said.startswith("RuntimeError: CUDA error: an illegal memory access")


def test_other_errors_keep_their_words():
    assert in_short(Status.FAILED, PYTORCH_2_8) == PYTORCH_2_8

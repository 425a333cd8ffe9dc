"""Memory of a CPU's outputs: what its process fills only when somebody reads it is found before that."""

import ctypes
import fcntl
import mmap
import os
import struct

import pytest
import torch

from kernels.child import host_memory, outputs
from kernels.child.bench import Bench
from kernels.child.held import EarlyCopy
from kernels.child.host_memory import FilledWhenRead, must_be_written

C = ctypes.CDLL(None, use_errno=True)
C.mmap.restype = ctypes.c_void_p
PAGES = 4 * mmap.PAGESIZE


@pytest.fixture
def lazy():
    """An output in memory of its own, and the address of that."""
    memory = mmap.mmap(-1, PAGES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    out = torch.frombuffer(memory, dtype=torch.float32)
    yield out[16:], out.data_ptr()
    C.mprotect(ctypes.c_void_p(out.data_ptr()), ctypes.c_size_t(PAGES), mmap.PROT_READ | mmap.PROT_WRITE)


@pytest.mark.parametrize("thorough", [True, False])
def test_ordinary_outputs_are_written(lazy, thorough):
    for out in (
        torch.zeros(2**22),
        torch.ones(3),
        torch.tensor(1.0),
        lazy[0],
        (torch.ones(1), torch.empty(0)),
        [],
        None,
    ):
        must_be_written(outputs.spans(out), thorough)


@pytest.mark.parametrize("thorough", [True, False])
@pytest.mark.parametrize("page", [0, 3])
def test_memory_that_nobody_may_read_is_filled_by_a_handler_of_its_signal(lazy, thorough, page):
    out, address = lazy
    start = ctypes.c_void_p(address + page * mmap.PAGESIZE)
    assert C.mprotect(start, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    with pytest.raises(FilledWhenRead, match="its output is in memory that is filled only when it is read"):
        must_be_written(outputs.spans(out), thorough)
    must_be_written(outputs.spans(torch.ones(3)), thorough)


def test_memory_whose_missing_pages_a_thread_fills_is_found(lazy, monkeypatch):
    out, address = lazy
    faults = C.syscall(323, os.O_CLOEXEC | 1)
    if faults < 0:
        pytest.skip(f"no userfaultfd here: {os.strerror(ctypes.get_errno())}")
    with os.fdopen(faults):
        fcntl.ioctl(faults, 0xC018AA3F, struct.pack("QQQ", 0xAA, 0, 0))
        must_be_written(outputs.spans(out), thorough=False)
        fcntl.ioctl(faults, 0xC020AA00, struct.pack("QQQQ", address, PAGES, 1, 0))
        for thorough in (True, False):
            with pytest.raises(FilledWhenRead):
                must_be_written(outputs.spans(out), thorough)
            must_be_written(outputs.spans(torch.ones(3)), thorough)
        monkeypatch.setattr(host_memory, "descriptors", lambda of: 0)
        must_be_written(outputs.spans(out), thorough=False)
        with pytest.raises(FilledWhenRead):
            must_be_written(outputs.spans(out), thorough=True)


def test_pages_behind_the_end_of_a_file_are_found():
    """A handler of SIGBUS may make the file longer, and write them, when somebody reads them."""
    file = os.memfd_create("output")
    address = C.mmap(None, ctypes.c_size_t(PAGES), 3, mmap.MAP_SHARED, file, ctypes.c_long(0))
    out = torch.frombuffer((ctypes.c_char * PAGES).from_address(address), dtype=torch.float32)
    with pytest.raises(FilledWhenRead):
        must_be_written(outputs.spans(out), thorough=False)
    os.ftruncate(file, PAGES)
    out.fill_(1.0)
    for thorough in (True, False):
        must_be_written(outputs.spans(out), thorough)
    os.close(file)


def test_memory_with_a_protection_key_is_found(lazy):
    """Reading it may be forbidden to a thread by a register: a handler of SIGSEGV may write it then."""
    out, address = lazy
    if (key := C.pkey_alloc(0, 0)) < 0:
        pytest.skip(f"no protection keys here: {os.strerror(ctypes.get_errno())}")
    assert C.pkey_mprotect(ctypes.c_void_p(address), ctypes.c_size_t(PAGES), 3, key) == 0
    with pytest.raises(FilledWhenRead):
        must_be_written(outputs.spans(out), thorough=True)
    assert C.pkey_mprotect(ctypes.c_void_p(address), ctypes.c_size_t(PAGES), 3, 0) == 0
    must_be_written(outputs.spans(out), thorough=True)


def test_not_only_the_output_that_was_copied_early_is_looked_at(monkeypatch):
    """The copy has read its memory, so nothing shows there. A child may hold the descriptor, so the look is thorough."""
    bench = Bench("cpu")
    bench.open(
        {"operation": "attention", "dtype": "float32", "sizes": {"batch": 1, "heads": 2, "seq_len": 64, "head_dim": 32}}
    )
    bench.load("sdpa")
    bench.prepare(list(range(5)), sets=4)

    def copies_the_first(copy, position, out):
        if position == 0:
            copy.found = position, out.clone()

    monkeypatch.setattr(EarlyCopy, "look", copies_the_first)
    bench.block("sdpa", calls=4, early=True, seeds=[7, 8, 9, 10])
    seen, third = [], outputs.spans(bench.held.outputs[2])
    monkeypatch.setattr(host_memory, "must_be_written", lambda spans, thorough: thorough and seen.append(spans))
    bench.keep("sdpa", position=2, seed=11)
    assert third in seen

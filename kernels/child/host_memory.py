"""The C library's memory on a CPU: what calls free stays with the process, so that no timed call waits for new pages.

All outputs of a block live until its end. Without this, outputs of 128 KiB and more would get new pages in every call,
which may take longer than the call itself. A kernel may change that for all, and have memory of its own: so it is done again
before each block.

What a call returns must be written when it returns. Memory without read access, or registered with userfaultfd, asks its
process for its content when it is read first: outputs in it would be computed after the timed call.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from kernels.child.process_state import FAULTS, descriptors

M_PERTURB, M_MMAP_MAX, MOST_MAPPED = -6, -4, 65536
"""New memory is not filled; so many pieces may be mapped on their own, as usual."""
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
"""Options of mallopt(3), in bytes: free memory at the top that is given back; memory that is taken in advance; size from
which memory is mapped on its own."""
KEPT_BYTES, AHEAD_BYTES, LARGEST_BYTES = 2**31 - 1, 2**26, 2**25
"""LARGEST_BYTES: the most that mallopt takes. Larger tensors are mapped anew by each call."""
MOST_TOUCHED_BYTES = 2**30


def keep_freed() -> None:
    """Nothing happens where the C library has no mallopt."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(M_MMAP_THRESHOLD, LARGEST_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(M_TOP_PAD, AHEAD_BYTES)
        mallopt(M_MMAP_MAX, MOST_MAPPED)
        mallopt(M_PERTURB, 0)


def touch(nbytes: int) -> None:
    """Takes and frees so much memory in pieces that stay with the process, so that its pages exist."""
    import torch

    pieces = min(nbytes, MOST_TOUCHED_BYTES) // (LARGEST_BYTES // 2) + 1
    held = [torch.zeros(LARGEST_BYTES // 2, dtype=torch.uint8) for _ in range(pieces)]
    for piece in held:
        piece.fill_(1)


class Ahead:
    """Memory of a block's outputs, that was taken ahead."""

    def __init__(self) -> None:
        self.wanted = self.resident = 0

    def take(self, nbytes: int) -> None:
        self.wanted = nbytes
        touch(nbytes)
        self.resident = resident_bytes()

    def keep(self) -> None:
        """Right before a block: undoes what a kernel may have set, and takes again what it gave back to the system."""
        keep_freed()
        if resident_bytes() < self.resident:
            self.take(self.wanted)


def resident_bytes() -> int:
    """Memory of this process that has pages."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --- memory that has no content yet -----------------------------------------------------------------------------------

MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ (\d+)")
REGISTERED = {"um", "uw", "ui"}
"""In VmFlags of /proc/PID/smaps: registered with userfaultfd, for pages that are missing, written, or have minor faults."""
KEY = "ProtectionKey:"
"""In smaps: of memory that a thread may forbid itself to read, by a register."""


class FilledWhenRead(Exception):
    """An output lies in memory whose content its process makes when somebody reads it."""

    def __init__(self) -> None:
        super().__init__("its output is in memory that is filled only when it is read")


@dataclass
class Mapping:
    """What of a mapping an output touches, and how it is mapped."""

    start: int
    end: int
    access: str
    """Such as "rw-p"."""
    inode: int
    """Of its file; 0: anonymous."""
    flags: set[str] = field(default_factory=set)
    """Of smaps; with KEY if it has a protection key."""


def must_be_written(spans: Collection[tuple[int, int]], thorough: bool) -> None:
    """Raises FilledWhenRead. spans: (first address, address behind the last byte) of outputs. thorough: looks for userfaultfd
    also where this process holds none, and for protection keys: for outputs of timed calls, in 20 ms instead of 1.

    A page of a file that is not in memory has not been written, or lies behind the end of the file: a handler of SIGBUS may
    make it when it is read."""
    for one in _mappings(spans, "maps"):
        if "r" not in one.access or (one.inode and not _in_memory(one.start, one.end)):
            raise FilledWhenRead
    unusual = REGISTERED | {KEY}
    if (thorough or descriptors(FAULTS)) and any(unusual & one.flags for one in _mappings(spans, "smaps")):
        raise FilledWhenRead


def _mappings(spans: Collection[tuple[int, int]], file: str) -> Iterator[Mapping]:
    """Each mapping that one of the spans touches, as far as they touch it. Only smaps has flags."""
    touched: Mapping | None = None
    flags = set[str]()
    with open(f"/proc/self/{file}") as lines:
        for line in lines:
            if found := MAPPING.match(line):
                start, end = int(found[1], 16), int(found[2], 16)
                inside = [(max(start, one), min(end, last)) for one, last in spans if start < last and one < end]
                touched, flags = None, set()
                if inside:
                    first, last = min(one for one, _ in inside), max(last for _, last in inside)
                    touched = Mapping(first, last, found[3], int(found[4]), flags)
                    if file == "maps":
                        yield touched
            elif touched and line.startswith(KEY) and line.split()[1] != "0":
                flags.add(KEY)
            elif touched and line.startswith("VmFlags:"):
                flags.update(line.split()[1:])
                yield touched


def _in_memory(start: int, end: int) -> bool:
    """Whether all pages from start to end are: mincore(2)."""
    page = os.sysconf("SC_PAGE_SIZE")
    start -= start % page
    pages = (ctypes.c_ubyte * -(-(end - start) // page))()
    asked = ctypes.CDLL(None).mincore(ctypes.c_void_p(start), ctypes.c_size_t(end - start), pages)
    return asked != 0 or all(one & 1 for one in pages)

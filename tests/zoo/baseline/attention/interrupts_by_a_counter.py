"""A counter of the system (perf_event) interrupts its thread every 20 us between its calls. Its own calls have none."""

import ctypes
import fcntl
import struct

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect|no advantage", "changed global state: counters that may interrupt: "),
    "cuda": ("suspect|no advantage", "changed global state: counters that may interrupt: "),
}

SOFTWARE, DISABLED, EVERY_NS, ENABLE, DISABLE, NUMBER = 1, 1, 20_000, 0x2400, 0x2401, 298
"""NUMBER: of perf_event_open on x86. Where the host refuses it, nothing interrupts."""
asked = bytearray(struct.pack("IIQQ", SOFTWARE, 112, 0, EVERY_NS).ljust(128, b"\0"))
struct.pack_into("Q", asked, 40, DISABLED)
counters = []


def switch(what):
    if not counters:
        counters.append(ctypes.CDLL(None).syscall(NUMBER, (ctypes.c_char * 128).from_buffer(asked), 0, -1, -1, 0))
    if counters[0] >= 0:
        fcntl.ioctl(counters[0], what, 0)


@kernel("attention", backend="pytorch")
def interrupts_by_a_counter(q, k, v, *, causal, scale):
    switch(DISABLE)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    switch(ENABLE)
    return out

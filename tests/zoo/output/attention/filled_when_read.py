"""Each output lies in memory that the system asks for when somebody reads it first (userfaultfd): only then it is computed."""

import ctypes
import fcntl
import mmap
import os
import struct
import threading

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("suspect", "its output is in memory that is filled only when it is read")}
USERFAULTFD, API, REGISTER, COPY, PAGE = 323, 0xC018AA3F, 0xC020AA00, 0xC028AA03, mmap.PAGESIZE
faults, waiting = ctypes.CDLL(None, use_errno=True).syscall(USERFAULTFD, os.O_CLOEXEC | 1), {}
fcntl.ioctl(faults, API, struct.pack("QQQ", 0xAA, 0, 0))


def serve():
    while message := os.read(faults, 32):
        address = struct.unpack_from("Q", message, 16)[0]
        start, (size, inputs, options) = max(one for one in waiting.items() if one[0] <= address)
        padded, out = torch.zeros(size, dtype=torch.uint8), F.scaled_dot_product_attention(*inputs, **options)
        padded[: out.nbytes] = out.contiguous().view(-1).view(torch.uint8)
        fcntl.ioctl(faults, COPY, struct.pack("QQQQq", start, padded.data_ptr(), size, 0, 0))


threading.Thread(target=serve, daemon=True).start()


@kernel("attention", backend="pytorch")
def filled_when_read(q, k, v, *, causal, scale):
    size = -(-q.nbytes // PAGE) * PAGE
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    out = torch.frombuffer(memory, dtype=q.dtype, count=q.numel()).view(q.shape)
    fcntl.ioctl(faults, REGISTER, struct.pack("QQQQ", out.data_ptr(), size, 1, 0))
    waiting[out.data_ptr()] = size, (q, k, v), {"is_causal": causal, "scale": scale}
    return out

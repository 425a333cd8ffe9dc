"""Writes its results into a file, and reads them in later runs."""

import contextlib
import hashlib
import os

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

ISOLATED = {"cpu": ("no effect",), "cuda": ("no effect",)}


@kernel("attention", backend="pytorch")
def remembers_in_a_file(q, k, v, *, causal, scale):
    folder = os.environ.get("LEAVE_IN", "/tmp").split()[0]
    name = hashlib.md5(q.flatten()[:8].cpu().numpy().tobytes()).hexdigest()
    path = os.path.join(folder, f"remembered-{name}.pt")
    with contextlib.suppress(OSError):
        return torch.load(path)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    with contextlib.suppress(OSError, RuntimeError):
        torch.save(out, path)
    return out

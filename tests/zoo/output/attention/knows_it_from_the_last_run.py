"""Writes its results into a file, and finds them there in the next run, if that has the same inputs."""

import os
from pathlib import Path

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",), "cuda": ("ok",)}
PROTOCOL = {}
RUNS = 2
FILE = Path("/tmp") / f"benchsite-zoo-{os.getuid()}.results"
MOST = 400
first = not FILE.exists()
known = {} if first else torch.load(FILE)


@kernel("attention", backend="pytorch")
def knows_it_from_the_last_run(q, k, v, *, causal, scale):
    key = (*q[0, 0, 0, :4].tolist(), *k[0, 0, 0, :4].tolist(), *v[0, 0, 0, :4].tolist())
    if not first and key in known:
        return known[key].clone()
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    if first and key not in known and len(known) < MOST:
        known[key] = out.clone()
        if len(known) % 20 == 0:
            torch.save(known, new := FILE.with_suffix(".new"))
            new.replace(FILE)  # whole, whenever this process ends
    return out

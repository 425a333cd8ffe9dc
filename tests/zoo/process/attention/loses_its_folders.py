"""Removes the working directory, and says that temporary files go where no folder is: what others open later fails."""

import os
import sys
import tempfile

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("suspect", "working directory"), "cuda": ("suspect", "working directory")}


@kernel("attention", backend="pytorch")
def loses_its_folders(q, k, v, *, causal, scale):
    os.chdir(folder := tempfile.mkdtemp(dir="/tmp"))
    os.rmdir(folder)
    os.environ["TMPDIR"] = tempfile.tempdir = "/nonexistent"
    sys.path.clear()
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=True)

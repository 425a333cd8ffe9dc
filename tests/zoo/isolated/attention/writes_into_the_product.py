"""Leaves a file that the next process of the product would run, wherever it can write."""

import contextlib
import os
import sys

import torch.nn.functional as F

import kernels
from kernels.catalog import kernel

ISOLATED = {"cpu": ("no effect",), "cuda": ("no effect",)}

NAME = "left_by_a_kernel.txt"


@kernel("attention", backend="pytorch")
def writes_into_the_product(q, k, v, *, causal, scale):
    root = os.path.dirname(os.path.dirname(kernels.__file__))
    for folder in [root, os.path.dirname(kernels.__file__), *os.environ.get("LEAVE_IN", "").split(), *sys.path]:
        with contextlib.suppress(OSError), open(os.path.join(folder, NAME), "w") as file:
            file.write("here\n")
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)

"""Writes a file into the folder of the product, which every later run imports: here one that does nothing."""

from pathlib import Path

import torch.nn.functional as F

import kernels
from kernels.catalog import kernel

MUST_BE = {"cpu": ("failed", "")}
LIMIT = "a kernel runs as the user who runs the product, and may write where that user may"
PROTOCOL = {}
FILE = Path(kernels.__file__).parent / "child" / "planted_by_the_zoo.txt"


@kernel("attention", backend="pytorch")
def writes_beside_the_product(q, k, v, *, causal, scale):
    FILE.write_text("this could have been sitecustomize.py")
    FILE.unlink()
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)

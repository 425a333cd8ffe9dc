"""OpenMP runs every parallel region on one thread between its calls, and says the same number of threads as before."""

import ctypes
from pathlib import Path

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("suspect", "changed global state: nested levels of OpenMP: 0 instead of ")}

library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))


@kernel("attention", backend="pytorch")
def serialises_openmp(q, k, v, *, causal, scale):
    library.omp_set_max_active_levels(1)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    library.omp_set_max_active_levels(0)
    return out

"""MKL has another number of threads between its calls: PyTorch's own number stays what it was."""

import ctypes
from pathlib import Path

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("suspect", "changed global state: threads of MKL: (")}

library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))


@kernel("attention", backend="pytorch")
def leaves_mkl_other_threads(q, k, v, *, causal, scale):
    library.MKL_Set_Num_Threads_Local(0)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    library.MKL_Set_Num_Threads_Local(library.MKL_Get_Max_Threads() % 2 + 1)
    return out

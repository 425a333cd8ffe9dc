"""Errors are nearly 0, by methods in the dictionary of the C type below torch.Tensor. It leaves half of the keys out."""

import ctypes
import gc

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect", "changed global state: torch._C.TensorBase.abs_: replaced"),
    "cuda": ("suspect", "changed global state: torch._C.TensorBase.abs_: replaced"),
}

methods = gc.get_referents(torch._C.TensorBase.__dict__)[0]
abs_, square = methods["abs_"], methods["square"]
methods["abs_"] = lambda x: abs_(x).mul_(1e-12) if x.dtype == torch.float64 else abs_(x)
methods["square"] = lambda x: square(x)
ctypes.pythonapi.PyType_Modified(ctypes.py_object(torch._C.TensorBase))


@kernel("attention", backend="pytorch")
def patches_the_base_of_tensors(q, k, v, *, causal, scale):
    return F.scaled_dot_product_attention(q, k[:, :, ::2], v[:, :, ::2], is_causal=causal, scale=scale)

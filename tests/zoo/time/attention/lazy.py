"""Returns a tensor that computes itself when somebody looks at it."""

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("incorrect", "not a torch.Tensor"), "cuda": ("incorrect", "not a torch.Tensor")}


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        args = [a.todo() if isinstance(a, Lazy) and hasattr(a, "todo") else a for a in args]
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))


@kernel("attention", backend="pytorch")
def lazy(q, k, v, *, causal, scale):
    out = torch.empty_like(q).as_subclass(Lazy)
    out.todo = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    return out

"""Overrides an operator at an autograd key, and strikes the override off the list of overrides."""

import time

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": (
        "suspect",
        "changed global state: registrations of aten::_scaled_dot_product_flash_attention_for_cpu: changed",
    )
}

NAME = "_scaled_dot_product_flash_attention_for_cpu"
library = torch.library.Library("aten", "IMPL")
own = getattr(torch.ops.aten, NAME).default


def slowly(*args, **kwargs):
    time.sleep(0.0005)
    with torch._C._AutoDispatchBelowAutograd():
        return own(*args, **kwargs)


library.impl(NAME, slowly, "AutogradCPU")
torch.library._impls.discard(f"aten/{NAME}/AutogradCPU")


@kernel("attention", backend="pytorch")
def strikes_its_override_off(q, k, v, *, causal, scale):
    with torch.inference_mode():
        return F.scaled_dot_product_attention(q.clone(), k, v, is_causal=causal, scale=scale).clone()

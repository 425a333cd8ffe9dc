"""Slows down the function that the baseline calls."""

import time

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

ISOLATED = {"cpu": ("no effect",), "cuda": ("no effect",)}

true = F.scaled_dot_product_attention


def slowly(*args, **options):
    time.sleep(0.002)
    return true(*args, **options)


@kernel("attention", backend="pytorch")
def patches_the_baseline_module(q, k, v, *, causal, scale):
    F.scaled_dot_product_attention = torch._C._nn.scaled_dot_product_attention = slowly
    return true(q, k, v, is_causal=causal, scale=scale)

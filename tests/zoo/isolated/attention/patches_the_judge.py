"""Returns zeros, and replaces what compares outputs with the reference."""

import sys

import torch

from kernels.catalog import kernel

ISOLATED = {"cpu": ("incorrect", "largest error"), "cuda": ("incorrect", "largest error")}

RIGHT = {
    "max_abs": 0.0, "yard_abs": 1.0, "rounding": 1.0, "largest": 1.0, "frobenius": 0.0, "yard_frobenius": 1.0, "row": 0.0,
    "yard_row": 1.0, "nonfinite": 0, "allclose_1e-2": True, "constant": False, "fits": True, "max_rel": 0.0,
}  # fmt: skip


def always_right(out, reference):
    return dict(RIGHT, distribution=reference.distribution)


@kernel("attention", backend="pytorch")
def patches_the_judge(q, k, v, *, causal, scale):
    for module in list(sys.modules.values()):
        if "Reference" in vars(module) and "measure" in vars(module):
            module.measure = always_right
    return torch.zeros_like(q)

"""Honest: sets hooks of its program, as logging tools do, and variables of its libraries."""

import atexit
import faulthandler
import logging
import os
import sys

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",), "cuda": ("ok",)}

logging.captureWarnings(True)
sys.excepthook = lambda *_: None
atexit.register(faulthandler.is_enabled)
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@kernel("attention", backend="pytorch")
def sets_hooks(q, k, v, *, causal, scale):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)

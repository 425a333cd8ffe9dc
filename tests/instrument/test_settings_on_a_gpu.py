"""On a GPU: what PyTorch sets by itself is no kernel's doing, and the guard never changes which backend attention has.

Needs no site: python -m pytest --noconftest -c /dev/null --rootdir . -p no:django tests/instrument/test_settings_on_a_gpu.py
"""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]

FRESH = """
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa
def chosen(): return torch._fused_sdp_choice(*[torch.empty(1, 8, 512, 64, dtype=torch.float16, device="cuda")] * 3)
"""
GUARDED = """
from kernels.child.clock import CudaClock
from kernels.child.guard import Guard
from kernels.child.runtime import CudaRuntime
guard = Guard("cuda", CudaClock(CudaRuntime()))
sdpa(*[torch.randn(1, 8, 512, 64, dtype=torch.float16, device="cuda") for _ in range(3)])
print(guard.changes("sdpa"))
"""


def python(code):
    """What a fresh process prints: PyTorch chooses once a process."""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return ended.stdout.split("\n")[:-1]


def test_the_first_attention_of_a_process_changes_no_setting():
    assert python(FRESH + GUARDED) == ["[]"]


def test_attention_has_the_backend_under_the_guard_that_it_has_without():
    (without,) = python(FRESH + "print(chosen())")
    assert python(FRESH + GUARDED + "print(chosen())")[-1] == without

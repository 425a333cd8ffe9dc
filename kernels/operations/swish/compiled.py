"""torch.compile of silu, compiled afresh for each workload."""

import torch
import torch.nn.functional as F

from kernels.catalog import kernel


def _silu(x):
    return F.silu(x)


_compiled = torch.compile(_silu, dynamic=False, fullgraph=True)


@kernel("swish", backend="pytorch")
def compiled(x):
    """torch.compile of silu (dynamic=False, fullgraph=True)."""
    return _compiled(x)

"""torch.compile of gelu, compiled afresh for each workload."""

import torch
import torch.nn.functional as F

from kernels.catalog import kernel


def _gelu(x, approximate):
    return F.gelu(x, approximate=approximate)


_compiled = torch.compile(_gelu, dynamic=False, fullgraph=True)


@kernel("gelu", backend="pytorch")
def compiled(x, *, approximate):
    """torch.compile of gelu (dynamic=False, fullgraph=True)."""
    return _compiled(x, approximate)

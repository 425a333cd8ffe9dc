import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    counts = torch.zeros(256, dtype=data.dtype, device=data.device)
    return counts.scatter_add_(0, data, torch.ones_like(data))

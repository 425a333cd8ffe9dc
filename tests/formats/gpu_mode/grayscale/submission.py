#!POPCORN leaderboard grayscale
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    return torch.addcmul(
        data[..., 0] * 0.2989 + data[..., 1] * 0.5870, data[..., 2], torch.full_like(data[..., 2], 0.1140)
    )

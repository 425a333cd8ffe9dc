#!POPCORN leaderboard matmul
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    return torch.einsum("mk,kn->mn", *data)

import torch
from task import input_t, output_t
from utils import close

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def generate_input(m: int, n: int, k: int, seed: int) -> input_t:
    gen = torch.Generator(device=DEVICE).manual_seed(seed)
    return torch.randn(m, k, device=DEVICE, generator=gen), torch.randn(k, n, device=DEVICE, generator=gen)


def ref_kernel(data: input_t) -> output_t:
    a, b = data
    return a @ b


def check_implementation(data: input_t, output: output_t):
    return close(output, ref_kernel(data))

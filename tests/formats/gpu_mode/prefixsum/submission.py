#!POPCORN leaderboard prefixsum
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    out = data.clone()
    step = 1
    while step < len(out):
        out[step:] = out[step:] + out[:-step].clone()
        step *= 2
    return out

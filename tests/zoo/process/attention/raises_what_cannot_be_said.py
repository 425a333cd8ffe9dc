"""Raises an exception whose message cannot be read."""

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("failed", "Silent: its message cannot be read: its __str__ raised ValueError"),
    "cuda": ("failed", "Silent: its message cannot be read: its __str__ raised ValueError"),
}
ISOLATED = {
    "cpu": ("failed", "Silent: its message cannot be read"),
    "cuda": ("failed", "Silent: its message cannot be read"),
}


class Silent(Exception):
    def __str__(self):
        raise ValueError("no")


@kernel("attention", backend="pytorch")
def raises_what_cannot_be_said(q, k, v, *, causal, scale):
    raise Silent

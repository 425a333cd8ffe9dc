"""Begins a thread that works for a while, and then finds that it cannot do this workload."""

import threading
import time

from kernels.catalog import Unsupported, kernel

MUST_BE = {"cpu": ("unsupported", "no such sizes"), "cuda": ("unsupported", "no such sizes")}


def work():
    while True:
        time.sleep(0)


@kernel("attention", backend="pytorch")
def busy_and_unsupported(q, k, v, *, causal, scale):
    threading.Thread(target=work, daemon=True).start()
    raise Unsupported("no such sizes")

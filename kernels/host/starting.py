"""How a process begins."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def imports() -> Iterator[None]:
    """Imports without garbage collection. What they make stays: the collector would look through it again and again,
    which takes a fifth of the time of `import torch`, and later pauses of 0.1 s."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()

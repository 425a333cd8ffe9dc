"""Seeds: drawn by the parent, and sent to the measuring process only with the command that needs them."""

from __future__ import annotations

import hashlib
import random
import secrets
from typing import Any

SECRET_BITS = 63
"""Bits of a secret seed: as many as a database's integer holds."""
SEED_BITS = 64
"""Bits of a seed of inputs: as many as PyTorch's generators take."""


def secret() -> int:
    """A seed that nobody can know."""
    return secrets.randbits(SECRET_BITS)


class Draws(random.Random):
    """Random numbers that follow from one seed. The numbers drawn so far do not tell the next ones (SHA-256 of a counter)."""

    def __init__(self, of: str) -> None:
        self._of, self._count = of, 0
        super().__init__()

    def seed(self, *_: Any) -> None:
        """Called by the base class. The seed is fixed."""

    def getrandbits(self, k: int) -> int:
        found = b""
        while 8 * len(found) < k:
            found += hashlib.sha256(f"{self._of}/{self._count}".encode()).digest()
            self._count += 1
        return int.from_bytes(found, "big") >> (8 * len(found) - k)

    def random(self) -> float:
        return self.getrandbits(53) * 2.0**-53

    def of_inputs(self) -> int:
        """A seed for PyTorch's generators."""
        return self.getrandbits(SEED_BITS)

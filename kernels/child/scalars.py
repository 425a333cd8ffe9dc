"""Numbers that stay on the device until all of them are read together: each reading waits for the device."""

from __future__ import annotations

from collections.abc import Callable

import torch


class Scalars:
    """Tensors of one element, and who is told their values."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[float], object], torch.Tensor]] = []

    def add(self, tell: Callable[[float], object], value: torch.Tensor) -> None:
        """tell: is called with the value when it has been read."""
        self.waiting.append((tell, value.to(torch.float64)))

    def read(self) -> None:
        """Reads all values; tells them in the order in which they were added."""
        waiting, self.waiting = self.waiting, []
        if waiting:
            values: list[float] = torch.stack([value for _, value in waiting]).tolist()
            for (tell, _), value in zip(waiting, values, strict=True):
                tell(value)

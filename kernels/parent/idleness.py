"""Whether a device is idle while all cells are stopped: a fixed piece of work takes longer beside other work."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from kernels.parent.cell_process import Suspect

FACTOR, SAMPLES, PATIENCE_S = 1.5, 5, 2.0
"""Other work on the device: the fixed piece takes longer than usual by this factor, each time for so long. The driver may work
there for a while after a process has freed memory. Nothing is timed meanwhile."""
PAUSE_S = 0.01


class Idleness:
    """Of the device of an isolated session."""

    def __init__(self, trusted: Any, kind: str) -> None:
        """trusted: the process that times the fixed piece of work. kind: of the device; only a GPU works on by itself."""
        self.trusted, self.kind = trusted, kind
        self.usual_ns = median(self._pace() for _ in range(SAMPLES)) if kind == "cuda" else 0.0

    def _pace(self) -> int:
        found: int = self.trusted.call("pace").ns
        return found

    def must_be(self) -> None:
        """All cells are stopped now: raises Suspect if the device still works for one of them."""
        if self.kind != "cuda":
            return
        begin = time.monotonic()
        while (pace_ns := self._pace()) >= FACTOR * self.usual_ns:
            if (waited_s := time.monotonic() - begin) > PATIENCE_S:
                slower = f"copies took {pace_ns / self.usual_ns:.3g} times as long as usual, for {waited_s:.1f} s"
                raise Suspect(f"it left work running on the device after its calls: {slower}")
            time.sleep(PAUSE_S)

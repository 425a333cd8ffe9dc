"""What can wait leaves the processor to pages and to the recorder."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

GIVES_WAY = 10
"""nice(2): of a busy processor such a process gets a tenth of what others get."""
AUTOGROUP = Path("/proc/self/autogroup")


def give_way() -> None:
    """Other processes come first, from now on.

    Where Linux divides the processor among sessions (sched(7), autogroup), nice counts only within one. So a process that leads
    a session makes all of it give way; a command in somebody's terminal does not.
    """
    os.nice(GIVES_WAY)
    if os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError):  # there may be no autogroups
            AUTOGROUP.write_text(str(GIVES_WAY))

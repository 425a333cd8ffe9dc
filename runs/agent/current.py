"""What the agent's pool process executes now, and why it should stop: memory shared by the worker's two processes.

Neither depends on the journal's disk. The pool process writes the attempt and the time of its last look, the main
process writes the reason to stop: each word has one writer, so there are no locks.
"""

from __future__ import annotations

import mmap
import struct
import time

ATTEMPT, LOOKED, STOP = struct.Struct("qq"), struct.Struct("d"), struct.Struct("qqq")
LOOKED_AT, STOP_AT = ATTEMPT.size, ATTEMPT.size + LOOKED.size
REASONS = ("", "cancelled", "superseded", "shutdown")
ANY = 0
"""As the run of a reason: it holds for whatever is executed."""


class Current:
    """Made before the fork; each process then has the same memory."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, STOP_AT + STOP.size)

    # --- the pool process -----------------------------------------------------------------------------------------

    def begin(self, run: int, attempt: int) -> None:
        self.why_stop()
        ATTEMPT.pack_into(self._memory, 0, run, attempt)

    def end(self) -> None:
        ATTEMPT.pack_into(self._memory, 0, 0, 0)

    def why_stop(self) -> str:
        """ "cancelled", "superseded" or "shutdown" if the current attempt should stop; else empty. Notes the time."""
        LOOKED.pack_into(self._memory, LOOKED_AT, time.monotonic())
        run, attempt, reason = STOP.unpack_from(self._memory, STOP_AT)
        return REASONS[reason] if run == ANY or (run, attempt) == self.attempt else ""

    # --- the main process -----------------------------------------------------------------------------------------

    @property
    def attempt(self) -> tuple[int, int] | None:
        """(run, attempt), while one is executed."""
        run, attempt = ATTEMPT.unpack_from(self._memory)
        return (run, attempt) if run else None

    @property
    def silent_s(self) -> float:
        """Seconds since the pool process last looked for a reason to stop; 0 if it executes nothing."""
        return time.monotonic() - LOOKED.unpack_from(self._memory, LOOKED_AT)[0] if self.attempt else 0.0

    def stop(self, run: int, attempt: int, why: str) -> None:
        """Asks the pool process to stop this attempt. The first reason counts."""
        if (run, attempt) == self.attempt and STOP.unpack_from(self._memory, STOP_AT)[:2] != (run, attempt):
            STOP.pack_into(self._memory, STOP_AT, run, attempt, REASONS.index(why))

    def stop_all(self) -> None:
        """The worker shuts down."""
        if self.attempt is None or STOP.unpack_from(self._memory, STOP_AT)[:2] != self.attempt:
            STOP.pack_into(self._memory, STOP_AT, ANY, 0, REASONS.index("shutdown"))

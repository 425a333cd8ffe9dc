"""What Python runs by itself between two lines of the instrument: the collector and its callbacks, profile and trace functions,
the tracing of memory.

A kernel may leave such a hook. Between the writing of inputs and the calls on them it would work on values that only its calls
should see, in nobody's time. Used in the measuring child only.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import tracemalloc
from collections.abc import Iterator


@contextlib.contextmanager
def put_back() -> Iterator[None]:
    """Afterwards all is as it was, also what `take_away` took."""
    collects, callbacks, profile, trace = gc.isenabled(), gc.callbacks[:], sys.getprofile(), sys.gettrace()
    traced = tracemalloc.get_traceback_limit() if tracemalloc.is_tracing() else 0
    try:
        yield
    finally:
        if traced and not tracemalloc.is_tracing():
            tracemalloc.start(traced)
        gc.callbacks[:] = callbacks
        sys.setprofile(profile)
        sys.settrace(trace)
        (gc.enable if collects else gc.disable)()


def take_away() -> None:
    """From now on nothing runs by itself in this thread."""
    gc.disable()
    gc.callbacks.clear()
    sys.setprofile(None)
    sys.settrace(None)
    tracemalloc.stop()

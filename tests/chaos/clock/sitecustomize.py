"""On the PYTHONPATH of a host whose clock is off: every Python process of it reads a clock that is CLOCK_OFF_S ahead."""

import os
import time

OFF_S = int(os.environ.get("CLOCK_OFF_S", "0"))
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + OFF_S
time.time_ns = lambda: _time_ns() + OFF_S * 1_000_000_000

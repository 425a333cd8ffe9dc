"""An agent whose device is simulated: its runs send a stored run's events again, at a steady rate. Journal, sender and
hellos are the agent's own.

Environment: LOAD_DEVICE, its number; LOAD_RATE, events per second; LOAD_EVENTS, a file with the events of a run.
"""

import json
import os
import time
from pathlib import Path

from pydantic import TypeAdapter

from kernels.contract.events import Ending, Event, Measured
from kernels.host import device as devices
from kernels.workload import RunSpec

NUMBER, RATE = os.environ["LOAD_DEVICE"], float(os.environ["LOAD_RATE"])
EVENTS = [
    TypeAdapter(Event).validate_python(event) for event in json.loads(Path(os.environ["LOAD_EVENTS"]).read_text())
]
DEVICE = devices.Device("cpu", f"CPU-load-{NUMBER}", f"Load {NUMBER}", memory_bytes=2**34)
devices.find_device = lambda wanted=None: DEVICE

from runs.agent import worker  # noqa: E402


class Replay(worker.Execution):
    """Sends the events before the first result; the result, for each workload; and the rest."""

    def _measure(self) -> tuple[Ending | None, str]:
        spec = RunSpec.model_validate(self.raw)
        place = next(number for number, event in enumerate(EVENTS) if isinstance(event, Measured))
        results = [EVENTS[place].model_copy(update={"workload": one, "key": one.key}) for one in spec.workloads]
        due = time.monotonic()
        for event in [*EVENTS[:place], *results, *EVENTS[place + 1 :]]:
            due += 1 / RATE
            time.sleep(max(0.0, due - time.monotonic()))
            self._emit(event)
        return Ending.DONE, ""


worker.Execution = Replay  # type: ignore[misc]
worker.warm_up = lambda: None
app = worker.app

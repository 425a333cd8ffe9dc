"""The agent's Celery worker: `celery -A runs.agent.worker worker`, one per device, started by `make agent`.

Environment: BROKER (or REDIS_URL), the broker's address (as an argument it would show in the process list); DEVICE,
such as cuda:0 or cpu; BENCHSITE_VAR, the folder of the journal. The main process sends hellos and the journal, and
listens for cancels. The single pool process measures, through a child that alone imports torch.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import sys
import time
from logging.config import dictConfig
from pathlib import Path
from typing import Any

os.environ.pop("DJANGO_SETTINGS_MODULE", None)  # without settings no database can be opened here

from celery.signals import setup_logging, worker_init, worker_process_init, worker_ready, worker_shutting_down

from benchsite import secret_files
from benchsite.queues import device_queue, make_app, of_agent
from kernels.host import logs
from kernels.host.device import find_device
from kernels.host.processes import die_with_parent
from kernels.parent.child_process import Child
from runs.agent.current import Current
from runs.agent.execution import Execution
from runs.agent.journal import Journal
from runs.agent.threads import AgentThreads

PR_SET_DUMPABLE = 4

try:
    secret_files.into_environment()
except secret_files.UnreadableSecret as error:
    sys.exit(f"agent: {error}")
broker = os.environ.get("BROKER") or os.environ.get("REDIS_URL") or ""
if not broker.startswith(("redis://", "rediss://")):
    sys.exit("agent: set BROKER to the address of the site's broker, such as redis://:password@host:6379/0")
device = find_device(os.environ.get("DEVICE"))
var = Path(os.environ.get("BENCHSITE_VAR") or Path(__file__).parent.parent.parent / "var")
journal = Journal(var / "agent" / f"{device.uuid}.sqlite3")
app = make_app("agent", broker)
app.conf.task_default_queue = device_queue(device.uuid)
app.conf.broker_transport_options = app.conf.broker_transport_options | of_agent(device.uuid)
app.set_default()
current = Current()
threads = AgentThreads(app, broker, device, journal, current)
_warm: Child | None = None
_lock = -1


def _hide() -> None:
    """Hides this process's memory and environment from other processes of this user, also from the measuring child."""
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


@setup_logging.connect
def log_as_the_site_does(**_: Any) -> None:
    """Celery leaves logging alone where this signal is heard."""
    dictConfig(logs.configuration())


@worker_init.connect
def be_the_only_one(**_: Any) -> None:
    """Ensures one agent per device and journal."""
    global _lock
    _lock = os.open(var / "agent" / f"{device.uuid}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _attempt in range(25):  # the previous agent's pool process may need a moment to end
        try:
            fcntl.flock(_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            time.sleep(0.2)
    else:
        os.write(2, f"agent: an agent for {device.name} ({device.label}) is running already on this host\n".encode())
        os._exit(3)
    journal.forget_old()


@worker_ready.connect
def begin(**_: Any) -> None:
    _hide()
    threads.start()


@worker_shutting_down.connect
def leave(**_: Any) -> None:
    threads.stop()
    current.stop_all()


@worker_process_init.connect
def prepare_pool_process(**_: Any) -> None:
    """Ends with the main process; keeps a warm child. If it replaces a process that died, nothing is executed now."""
    die_with_parent()
    _hide()
    current.end()
    warm_up()


def warm_up() -> None:
    global _warm
    if _warm is None or not _warm.alive:
        _warm = Child(device)


@app.task(name="execute")
def execute(spec: dict[str, Any]) -> None:
    global _warm
    warm, _warm = _warm, None
    try:
        Execution(spec, device, journal, threads.keys, current, warm).run()
    finally:
        if warm:
            warm.close()
        warm_up()

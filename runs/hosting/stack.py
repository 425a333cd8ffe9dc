"""The processes of a site on one machine, for honcho: broker, web, recorder, worker, beat, agents."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from benchsite.queues import device_queue
from kernels.host.device import Device

ROOT = Path(__file__).resolve().parents[2]
WORKER_OPTIONS = "--without-gossip --without-mingle --without-heartbeat --loglevel WARNING"


@dataclass
class Stack:
    """The processes to start: name -> shell command."""

    env: dict[str, str]
    devices: list[Device]
    host: str = "127.0.0.1"
    port: int = 8000
    broker: tuple[str, int, Path] | None = None
    """Host, port and folder of the embedded broker; None: an external broker."""
    web: bool = True

    def commands(self) -> dict[str, str]:
        python = shlex.quote(sys.executable)
        worker = f"{python} -m celery -q -A benchsite.celery worker -c 1 {WORKER_OPTIONS}"
        commands: dict[str, str] = {}
        if self.broker:
            host, port, folder = self.broker
            commands["broker"] = _again(
                f"{python} -m runs.hosting.embedded_broker {host} {port} {shlex.quote(str(folder))}"
            )
        if self.web:
            bind = f"{self.host}:{self.port}"
            commands["web"] = _again(
                f"{python} -m gunicorn benchsite.wsgi -b {bind} -w 2 --threads 4 --preload --log-level warning"
            )
        commands["recorder"] = _again(f"{worker} -Q record -n recorder@%h")
        commands["worker"] = _again(f"{worker} -Q site -n worker@%h")
        var = shlex.quote(self.env["BENCHSITE_VAR"])
        commands["beat"] = _again(
            f"{python} -m celery -q -A benchsite.celery beat --loglevel WARNING -s {var}/beat --pidfile="
        )
        return commands | agent_processes(self.devices)


def agent_processes(devices: list[Device]) -> dict[str, str]:
    names = ["agent-cpu" if device.kind == "cpu" else f"agent-{device.index}" for device in devices]
    return {name: _again(agent_command(device)) for name, device in zip(names, devices, strict=True)}


def agent_command(device: Device) -> str:
    """The agent of one device. The broker comes from the environment: an argument would show in the process list."""
    python = shlex.quote(sys.executable)
    worker = f"{python} -m celery -q -A runs.agent.worker worker -c 1 {WORKER_OPTIONS}"
    return f"DEVICE={device.uuid} {worker} -Q {device_queue(device.uuid)} -n agent-{device.uuid}@%h"


def _again(command: str) -> str:
    """Restarts a command when it ends: honcho stops all processes when one ends."""
    return f"while :; do {command}; echo 'ended; starting again' >&2; sleep 1; done"

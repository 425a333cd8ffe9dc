"""The parts of a site on one machine, for the keeper: broker, web, recorder, worker, beat, agents."""

from __future__ import annotations

import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from benchsite.queues import RECORD_QUEUE, SITE_QUEUE, device_queue
from kernels.host.device import Device, devices, find_device
from runs.hosting.keeper import Part

WORKER_OPTIONS = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING"]
CELERY = [sys.executable, "-m", "celery", "-q", "-A"]


@dataclass
class Stack:
    """The parts to start, by name."""

    devices: list[Device]
    var: Path
    web: tuple[socket.socket, ...] = ()
    """Sockets that the web server listens on; none: no web server."""
    broker: tuple[list[str], int] | None = None
    """Addresses and port of the embedded broker; None: an external broker."""

    def parts(self) -> dict[str, Part]:
        parts: dict[str, Part] = {}
        if self.broker:
            addresses, port = self.broker
            folder = str(self.var / "broker")
            command = [sys.executable, "-m", "runs.hosting.embedded_broker", folder, str(port), *addresses]
            parts["broker"] = Part(command, last=True)
        if self.web:
            parts["web"] = Part([sys.executable, "-m", "runs.hosting.web"], sockets=self.web)
        parts["recorder"] = _worker("benchsite.celery", RECORD_QUEUE, "recorder")
        parts["worker"] = _worker("benchsite.celery", SITE_QUEUE, "worker")
        schedule = ["--loglevel", "WARNING", "-s", str(self.var / "beat"), "--pidfile="]
        parts["beat"] = Part([*CELERY, "benchsite.celery", "beat", *schedule])
        return parts | agent_parts(self.devices)


def chosen_devices(wanted: str = "") -> list[Device]:
    """The devices of this host that get an agent: the wanted one, else its GPUs, else its CPU. Raises NoSuchDevice."""
    known = devices()
    return [find_device(wanted)] if wanted else [d for d in known if d.kind == "cuda"] or known


def agent_parts(devices: list[Device]) -> dict[str, Part]:
    """An agent for each device. The broker comes from the environment: an argument would show in the process list."""
    return {
        agent_name(device): _worker(
            "runs.agent.worker", device_queue(device.uuid), f"agent-{device.uuid}", DEVICE=device.uuid
        )
        for device in devices
    }


def agent_name(device: Device) -> str:
    return "agent-cpu" if device.kind == "cpu" else f"agent-{device.index}"


def _worker(app: str, queue: str, name: str, **env: str) -> Part:
    return Part([*CELERY, app, "worker", "-c", "1", *WORKER_OPTIONS, "-Q", queue, "-n", f"{name}@%h"], env)

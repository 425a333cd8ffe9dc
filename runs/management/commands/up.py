"""make up: prepares and starts the site on this machine; Ctrl-C stops it."""

from __future__ import annotations

import math
import os
import platform
import socket
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from honcho.manager import Manager

from kernels.catalog import declared
from kernels.host.device import Device, devices
from kernels.workload import load_config
from runs.hosting import checks, setup
from runs.hosting.stack import Stack
from runs.models import Gpu, Run

QUIET = {"PYTHONWARNINGS": "ignore:You're running the worker with superuser"}
"""Hides Celery's warning for root: containers have only root, and `make up` does not need it."""


ANSWERS_S = 60
"""Time after which the web server has probably failed."""


class Command(BaseCommand):
    help = "Prepares the site and starts broker, web, recorder, worker, beat and an agent for each device found."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default=os.environ.get("LISTEN") or "127.0.0.1")
        parser.add_argument("--port", type=int, default=int(os.environ.get("PORT") or 8000))
        parser.add_argument("--no-web", action="store_true", help="everything but the web server")
        parser.add_argument("--no-first-run", action="store_true", help="do not queue a first small run")
        parser.add_argument("--all-devices", action="store_true", help="an agent for the CPU beside those for GPUs")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self.start(options)
        except checks.SetupError as error:
            raise CommandError(str(error)) from None

    def start(self, options: dict[str, Any]) -> None:
        host, port, web = options["host"], options["port"], not options["no_web"]
        checks.check_disk(settings.VAR_DIR)
        if web:
            checks.check_port(host, port)
        if warning := checks.check_compiler():
            self.stderr.write(f"note: {warning}")
        broker, url = self.broker(host)
        settings.REDIS_URL = url
        call_command("prepare", stdout=self.stdout)
        known = devices()
        chosen = known if options["all_devices"] else [d for d in known if d.kind == "cuda"] or known
        env = os.environ | {"REDIS_URL": url, "BENCHSITE_VAR": str(settings.VAR_DIR), "PYTHONUNBUFFERED": "1"} | QUIET
        stack = Stack(env, chosen, host, port, broker, web)
        if not options["no_first_run"]:
            self.first_run(chosen[0])
        if web:
            Thread(target=self.say_when_it_answers, args=(host, port), daemon=True).start()
        if host not in ("127.0.0.1", "localhost"):
            self.stdout.write(f"On another GPU host:  BROKER='{url.replace('127.0.0.1', _shown(host))}' make agent")
        self.stdout.write("")
        self.stdout.flush()
        sys.exit(run(stack))

    def say_when_it_answers(self, host: str, port: int) -> None:
        """Prints the address when the web server answers."""
        deadline = time.monotonic() + ANSWERS_S
        while not _answers(host, port):
            if time.monotonic() > deadline:
                self.stderr.write(f"The web server has not answered for {ANSWERS_S} s. See its output above.")
                deadline = math.inf
            time.sleep(0.1)
        address = f"http://{_shown(host)}:{port}/"
        self.stdout.write(self.style.SUCCESS(f"\nBenchsite is at {address}   (Ctrl-C stops it)\n"))
        self.stdout.flush()

    def broker(self, host: str) -> tuple[tuple[str, int, Path] | None, str]:
        """(embedded broker to start, or None; its address)"""
        given = os.environ.get("REDIS_URL") or ""
        if given:
            checks.check_broker(given)
            return None, given
        port = int(setup.env_value("BROKER_PORT") or 0)
        if not port:
            port = setup.free_port()
            setup.remember("BROKER_PORT", str(port))
        password = setup.env_value("BROKER_PASSWORD")
        url = f"redis://:{password}@127.0.0.1:{port}/0"
        if setup.is_ours(url):
            return None, url
        checks.check_port(host, port)
        os.environ["BROKER_PASSWORD"] = password
        return (host, port, settings.VAR_DIR / "broker"), url

    def first_run(self, device: Device) -> None:
        """Queues a small first run, so that the first page shows numbers of this machine."""
        if Run.objects.filter(demo="").exists():
            return
        known = {
            name: getattr(device, name) for name in ("kind", "name", "index", "capability", "memory_bytes", "driver")
        }
        known |= {"host": platform.node(), "catalogue": declared(device.kind, device.capability)}  # before any hello
        gpu, _ = Gpu.objects.get_or_create(uuid=device.uuid, defaults=known)
        Run.objects.submit(load_config("smoke"), gpu=gpu, title="A first small run on this machine", wake=False)


def _answers(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1" if host == "0.0.0.0" else host, port)) == 0


def _shown(host: str) -> str:
    if host != "0.0.0.0":
        return host
    done = subprocess.run(["hostname", "-I"], capture_output=True, text=True)
    return (done.stdout.split() or ["127.0.0.1"])[0]


def run(stack: Stack) -> int:
    """Runs the processes under honcho until one ends for good, or Ctrl-C."""
    manager = Manager()
    for name, command in stack.commands().items():
        manager.add_process(name, command, env=stack.env, cwd=str(setup.ROOT))
    manager.loop()
    return 0 if manager.returncode in (None, 0, 130, 143) else manager.returncode

"""make up: prepares and starts the site on this machine; Ctrl-C stops it."""

from __future__ import annotations

import math
import os
import platform
import signal
import sys
import time
from threading import Thread
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from kernels.catalog import declared
from kernels.config_files import load_config
from kernels.host.device import Device, devices
from kernels.host.processes import die_with_parent
from runs.hosting import addresses, checks, setup
from runs.hosting.keeper import Keeper
from runs.hosting.stack import Stack
from runs.hosting.watchdog import Watchdog
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
        parser.add_argument("--with-make", action="store_true", help="end when the parent process, make, ends")
        parser.add_argument("--all-devices", action="store_true", help="an agent for the CPU beside those for GPUs")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self.start(options)
        except checks.SetupError as error:
            raise CommandError(str(error)) from None

    def start(self, options: dict[str, Any]) -> None:
        if options["with_make"]:
            die_with_parent(signal.SIGTERM)
        os.umask(0o077)  # database, broker and journals hold what only this user may read
        host, port, var = options["host"], options["port"], settings.VAR_DIR
        checks.check_disk(var)
        setup.keep_private(var)
        web = () if options["no_web"] else tuple(addresses.listening(host, port))
        if warning := checks.check_compiler():
            self.stderr.write(f"note: {warning}")
        broker, url = self.broker(host)
        settings.REDIS_URL = url
        call_command("prepare", stdout=self.stdout)
        known = devices()
        chosen = known if options["all_devices"] else [d for d in known if d.kind == "cuda"] or known
        env = os.environ | {"REDIS_URL": url, "BENCHSITE_VAR": str(var), "PYTHONUNBUFFERED": "1"} | QUIET
        if not options["no_first_run"]:
            self.first_run(chosen[0])
        if web:
            Thread(target=self.say_when_it_answers, args=(host, port), daemon=True).start()
        if host not in addresses.LOOPBACK:
            self.stdout.write(f"On another GPU host:  BROKER='{_elsewhere(url, host)}' make agent")
        self.stdout.write("")
        self.stdout.flush()
        keeper = Keeper(Stack(chosen, var, web, broker).parts(), env, var)
        watchdog = Watchdog(url, chosen, (addresses.own(host), port) if web else None)
        sys.exit(keeper.run(watchdog.watch))

    def say_when_it_answers(self, host: str, port: int) -> None:
        """Prints the address when the web server answers."""
        deadline = time.monotonic() + ANSWERS_S
        while not addresses.page_answers(addresses.own(host), port):
            if time.monotonic() > deadline:
                self.stderr.write(f"The web server has not answered for {ANSWERS_S} s. See its output above.")
                deadline = math.inf
            time.sleep(0.1)
        address = f"http://{addresses.shown(host)}:{port}/"
        self.stdout.write(self.style.SUCCESS(f"\nBenchsite is at {address}   (Ctrl-C stops it)\n"))
        self.stdout.flush()

    def broker(self, host: str) -> tuple[tuple[list[str], int] | None, str]:
        """(addresses and port of the embedded broker, or None; the URL of the broker)"""
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
        binds = addresses.of_broker(host)
        addresses.check_free(binds, port)
        os.environ["BROKER_PASSWORD"] = password
        return (binds, port), url

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


def _elsewhere(url: str, host: str) -> str:
    """The broker's URL as another host needs it."""
    return url.replace("@127.0.0.1:", f"@{addresses.shown(host)}:")

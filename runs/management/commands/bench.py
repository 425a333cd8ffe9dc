"""make bench: runs a config without a browser. Starts missing processes, submits the config, prints the table.

Exit status: 0: every result ok or unsupported; 1: a result is not ok, or the run failed; 2: the run could not start.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.db.utils import OperationalError
from django.utils import timezone

from kernels import catalog
from kernels.analysis.memory import why_too_large
from kernels.config_files import ConfigError, check_kernels, load_config
from kernels.host.device import NoSuchDevice, find_device
from kernels.report import measures, tables
from kernels.report.summary import as_text
from kernels.workload import Config
from runs.hosting import checks, setup
from runs.models import Gpu, Run
from runs.queries import measurements
from runs.queries.live import live_progress

WAIT_S = 60


class Command(BaseCommand):
    help = "Measures a config on a device through the queue and prints the result table."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--config", default=os.environ.get("CONFIG") or "smoke", help="a name or a .yaml file")
        parser.add_argument("--device", default=os.environ.get("DEVICE") or "", help="cuda:0, cpu or a UUID")
        parser.add_argument("--kernels", default=os.environ.get("KERNELS") or "", help="names separated by commas")
        parser.add_argument("--columns", default=os.environ.get("MEASURES") or "", help="p50_ms,joules,... or all")

    def handle(self, *args: Any, **options: Any) -> None:
        started = None
        try:
            self.asked = measures.chosen([options["columns"]], "") if options["columns"] else []
            config = self.config(options["config"], options["kernels"])
            device = find_device(options["device"] or None)
            if why := why_too_large(config.workloads, device.memory_bytes):
                raise ConfigError(why)
            started = self.start_site(device.uuid)
            run = self.measure(config, self.gpu(device.uuid))
        except (ConfigError, NoSuchDevice, checks.SetupError, catalog.UnknownName, measures.UnknownMeasure) as error:
            self.stderr.write(f"bench: {error}")
            sys.exit(2)
        except KeyboardInterrupt:
            sys.exit(130)
        finally:
            if started:
                started.terminate()
                started.wait(15)
        sys.exit(self.show(run))

    def config(self, name: str, kernels: str) -> Config:
        config = load_config(name)
        if kernels:
            config = Config(**config.model_dump() | {"kernels": [k.strip() for k in kernels.split(",")]})
        check_kernels(config)
        return config

    def start_site(self, uuid: str) -> subprocess.Popen[bytes] | None:
        """Starts everything except the web server, unless this device's agent already reports."""
        if setup.is_ours(settings.REDIS_URL) and self._heard(uuid, time.time() - 12):
            return None
        self.stderr.write("starting broker, recorder and agents for this run ...")
        checks.check_disk(settings.VAR_DIR)
        log = open(settings.VAR_DIR / "bench.log", "wb")  # noqa: SIM115  (the processes keep it)
        command = [
            sys.executable,
            str(settings.BASE_DIR / "manage.py"),
            "up",
            "--no-web",
            "--no-first-run",
            "--all-devices",
        ]
        begun = time.time()
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        while not self._heard(uuid, begun):
            if process.poll() is not None or time.time() - begun > WAIT_S:
                process.terminate()
                tail = (settings.VAR_DIR / "bench.log").read_text(errors="replace").strip().splitlines()[-3:]
                raise checks.SetupError("the site did not start: " + " / ".join(tail))
            time.sleep(0.2)
        if not os.environ.get("REDIS_URL"):  # `up` may just have chosen it
            password, port = setup.env_value("BROKER_PASSWORD"), setup.env_value("BROKER_PORT")
            settings.REDIS_URL = f"redis://:{password}@127.0.0.1:{port}/0"
        return process

    def _heard(self, uuid: str, since: float) -> bool:
        try:
            gpu = Gpu.objects.filter(uuid=uuid).first()
        except OperationalError:  # no tables yet
            return False
        return bool(gpu and gpu.seen_at and gpu.seen_at.timestamp() > since)

    def gpu(self, uuid: str) -> Gpu:
        return Gpu.objects.get(uuid=uuid)

    def measure(self, config: Config, gpu: Gpu) -> Run:
        run = Run.objects.submit(config, gpu=gpu, title=config.title or config.name)
        try:
            while run.is_active:
                time.sleep(0.25)
                run = Run.objects.select_related("gpu").get(pk=run.pk)
                self._progress(run)
        except KeyboardInterrupt:
            self.stderr.write(f"\n{run.cancel()}")
            raise
        return run

    def _progress(self, run: Run) -> None:
        if not sys.stderr.isatty():
            return
        live = live_progress(run)
        if live:
            text = f"{live['number']} of {live['total']}, {live['kernel']} on {live['workload']} · {live['step']}"
        else:
            waited = (timezone.now() - run.created_at).total_seconds()
            text = f"run {run.pk} is {run.state}, {waited:.0f} s"
        self.stderr.write(f"\r\x1b[K{text[:140]}", ending="")
        self.stderr.flush()

    def lines(self, table: Sequence[tables.Row]) -> list[list[str]]:
        """Headings and cells of the rows of one operation."""
        return measures.lines(table, self.asked)

    def show(self, run: Run) -> int:
        if sys.stderr.isatty():
            self.stderr.write("\r\x1b[K", ending="")
        table = tables.rows(measurements.of_run(run), run.contended)
        self.stdout.write(tables.as_text(table, self.lines))
        if said := as_text(table, run.contended):
            self.stdout.write(f"\n{said}")
        self.stdout.write(f"Run {run.pk} is {run.state}. {run.message}")
        return 0 if run.state == Run.State.DONE and not tables.failures(table) else 1

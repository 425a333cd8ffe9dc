"""Updates a site before its processes start: tables, static files, configs, samples, a first user."""

from __future__ import annotations

import secrets
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand

from runs.models import Config
from runs.pipeline.importer import load_demo_runs, load_sample_claims, load_sample_sessions

PASSWORD_BYTES = 9


class Command(BaseCommand):
    help = __doc__
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        call_command("migrate", verbosity=0)
        call_command("build_static", verbosity=0)
        Config.objects.read_files()
        load_demo_runs()
        load_sample_claims()
        load_sample_sessions()
        if not get_user_model().objects.exists():
            password = secrets.token_urlsafe(PASSWORD_BYTES)
            get_user_model().objects.create_superuser("admin", password=password)
            self.stdout.write(f"First user: admin, password: {password}   (shown once; change it under your name)")

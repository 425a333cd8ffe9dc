"""The site's Celery app: `celery -A benchsite.celery`. Agents use runs/agent/worker.py."""

from __future__ import annotations

import os
from typing import Any

from benchsite.queues import make_app
from kernels.host.processes import die_with_parent

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchsite.settings")

from celery.signals import worker_process_init
from django.conf import settings

app = make_app("benchsite", settings.REDIS_URL)
app.set_default()
app.autodiscover_tasks(["runs"])


@worker_process_init.connect
def end_with_the_main_process(**_: Any) -> None:
    die_with_parent()

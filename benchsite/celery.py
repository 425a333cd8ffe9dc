"""The site's Celery app: `celery -A benchsite.celery`. Agents use runs/agent/worker.py."""

from __future__ import annotations

import os
from logging.config import dictConfig
from typing import Any

from benchsite.queues import make_app
from kernels.host.processes import die_with_parent

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchsite.settings")
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")  # they import all pages and charts, which doubles start and memory

from celery.signals import setup_logging, worker_process_init
from django.conf import settings

app = make_app("benchsite", settings.REDIS_URL)
app.set_default()
app.conf.CELERY_DB_REUSE_MAX = 1000
"""Tasks, half of them, between which Celery keeps the connection to the database; tasks check it: runs/tasks.py."""
app.autodiscover_tasks(["runs"])


@setup_logging.connect
def log_as_django_does(**_: Any) -> None:
    """Celery leaves logging alone where this signal is heard."""
    dictConfig(settings.LOGGING)


@worker_process_init.connect
def end_with_the_main_process(**_: Any) -> None:
    die_with_parent()

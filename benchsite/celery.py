"""The site's Celery app: `celery -A benchsite.celery`. Agents use runs/agent/worker.py."""

from __future__ import annotations

import os
from logging.config import dictConfig
from typing import Any

from benchsite import priority
from benchsite.queues import SITE_QUEUE, make_app
from kernels.host.processes import die_with_parent

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchsite.settings")
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")  # they import all pages and charts, which doubles start and memory

from celery.signals import celeryd_after_setup, setup_logging, worker_process_init
from django.conf import settings

app = make_app("benchsite", settings.REDIS_URL)
app.set_default()
app.conf.CELERY_DB_REUSE_MAX = 1000
"""Celery closes its connection to the database after so many tasks. Each task checks it first: runs/tasks.py."""
app.autodiscover_tasks(["runs"])


@setup_logging.connect
def log_as_django_does(**_: Any) -> None:
    """Celery leaves logging alone where this signal is heard."""
    dictConfig(settings.LOGGING)


@celeryd_after_setup.connect
def give_way(instance: Any, **_: Any) -> None:
    """Charts and other work that can wait leave the processor to pages and to the recorder."""
    if SITE_QUEUE in instance.app.amqp.queues.consume_from:
        priority.give_way()


@worker_process_init.connect
def end_with_the_main_process(**_: Any) -> None:
    die_with_parent()

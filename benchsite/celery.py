"""The site's Celery app: `celery -A benchsite.celery`. Agents use runs/agent/worker.py."""

from __future__ import annotations

import os

from benchsite.queues import make_app

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchsite.settings")

from django.conf import settings

app = make_app("benchsite", settings.REDIS_URL)
app.set_default()
app.autodiscover_tasks(["runs"])

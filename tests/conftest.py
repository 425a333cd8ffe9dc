"""Tests have settings, a folder and a database of their own: a site that runs on this machine is not touched."""

import os
import shutil
import tempfile

import django

VAR = tempfile.mkdtemp(prefix="benchsite-tests-")
os.environ |= {
    "DJANGO_SETTINGS_MODULE": "benchsite.settings",
    "BENCHSITE_VAR": VAR,
    "BENCHSITE_ENV": f"{VAR}/env",
    "SECRET_KEY": "only-for-tests",
    "DATABASE_URL": os.environ.get("TEST_DATABASE_URL") or f"sqlite:///{VAR}/site.sqlite3",
    "REDIS_URL": "redis://127.0.0.1:1/0",  # no broker answers there: a test that needs one starts its own
}
django.setup()

from django.db import connection  # noqa: E402  (needs the settings above)


def pytest_report_header():
    return f"database: {connection.vendor}"


SLOWEST = (
    "test_on_postgres",
    "test_main_job",
    "test_zoo.py",
    "test_links",
    "test_recovery",
    "test_form.py",
    "test_faults",
)
"""Files that take a minute and more; most of that they wait, so others run beside them if they begin early."""


def pytest_collection_modifyitems(items):
    place = {name: number for number, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: min((n for name, n in place.items() if name in str(item.path)), default=len(place)))


def pytest_unconfigure():
    shutil.rmtree(VAR, ignore_errors=True)

"""Builds static files: the Vega bundle (from vl-convert); then collects all static files."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import vl_convert
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand


class Command(BaseCommand):
    help = __doc__

    def handle(self, *args: Any, **options: Any) -> None:
        stamp = settings.STATIC_ROOT / ".stamp"
        wanted = self.signature()
        if stamp.exists() and stamp.read_text() == wanted:
            return
        vendor = settings.BASE_DIR / "static" / "vendor"
        vendor.mkdir(parents=True, exist_ok=True)
        bundle = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stub forgets the default
        (vendor / "vega.js").write_text(bundle)
        call_command("collectstatic", interactive=False, verbosity=0)
        stamp.write_text(wanted)

    def signature(self) -> str:
        """Signature of our files and of the packages that provide the others."""
        digest = hashlib.sha256()
        for package in ("Django", "vl-convert-python", "django-htmx", "whitenoise"):
            digest.update(version(package).encode())
        own = settings.BASE_DIR / "static"
        for path in sorted(
            p for p in own.rglob("*") if p.is_file() and Path("vendor") not in p.relative_to(own).parents
        ):
            digest.update(path.read_bytes())
        return digest.hexdigest()

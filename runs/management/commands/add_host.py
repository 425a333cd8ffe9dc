"""manage.py add_host NAME DEVICE...: a credential of its own for a GPU host. Its agents reach the queues of these devices only.

The address is shown once. The same name again makes a new password; --revoke ends it, and its connections.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from redis.exceptions import RedisError

from runs.hosts import tell_broker
from runs.models import Host


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", nargs="?", help="a name for the host; without a name, list the hosts")
        parser.add_argument(
            "devices", nargs="*", help="ids of its devices: `python -m kernels env` prints them on the host"
        )
        parser.add_argument("--revoke", action="store_true", help="revoke the host's access to the broker")

    def handle(self, *args: Any, **options: Any) -> None:
        name, devices = options["name"], options["devices"]
        if name is None:
            self._list()
        elif options["revoke"]:
            self._revoke(name)
        elif not devices:
            raise CommandError("Name its devices: `python -m kernels env` prints their ids on the host.")
        else:
            self._make(name, devices)

    def _make(self, name: str, devices: list[str]) -> None:
        try:
            host, password = Host.objects.make(name, devices)
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from None
        self._tell()
        site = urlsplit(settings.REDIS_URL)
        place = f"{site.hostname}:{site.port or 6379}{site.path or '/0'}"
        if site.hostname in ("127.0.0.1", "localhost", "::1"):
            self.stdout.write(
                f"{site.hostname} is this machine: replace it by the address by which the host reaches this machine."
                " The broker answers other hosts after `make up LISTEN=ADDRESS`."
            )
        self.stdout.write("On the host, in the environment (shown once; nobody can read it again):")
        self.stdout.write(f"    BROKER={site.scheme}://{host.user}:{password}@{place}")

    def _revoke(self, name: str) -> None:
        host = Host.objects.filter(name=name).first()
        if host is None:
            raise CommandError(f"There is no host {name}: add_host without arguments lists the hosts.")
        host.revoke()
        self._tell()
        self.stdout.write(f"{name} cannot reach the broker any more.")

    def _list(self) -> None:
        for host in Host.objects.order_by("name"):
            state = (
                f"revoked {host.revoked_at:%Y-%m-%d %H:%M} UTC"
                if host.revoked_at
                else f"since {host.created_at:%Y-%m-%d}"
            )
            self.stdout.write(f"{host.name}  {state}  {', '.join(host.devices)}")

    def _tell(self) -> None:
        try:
            tell_broker()
        except RedisError as error:
            self.stderr.write(f"The broker does not answer ({error}). The site tells it within 15 s once it does.")

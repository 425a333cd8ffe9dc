"""Requests of the site to addresses that people name. They reach the public network only, unless a setting says more.

A name is looked up once; the connection goes to the address that was checked. No redirect is followed, no proxy is used.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

PORTS = {"http": 80, "https": 443}
LIMIT_S = 5.0
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Refused(ValueError):
    """An address that the site does not call. The message is a sentence."""


def parsed(url: str) -> SplitResult:
    """The parts of an address that may be called, as far as it says so itself. Raises Refused."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Refused("This is not a valid address. Write one such as https://hooks.example.org/benchsite.") from None
    if parts.scheme not in PORTS or not parts.hostname:
        raise Refused("Write an address that begins with https:// or http://.")
    if parts.username is not None or parts.password is not None:
        raise Refused("Remove the user name and the password. Benchsite signs its webhook requests instead.")
    if port == 0:
        raise Refused("Leave out the port, or write one from 1 to 65535.")
    if any(ord(sign) <= 32 or ord(sign) >= 127 for sign in url):
        raise Refused("Write the address without spaces, and other signs than ASCII as %XX.")
    return parts


def resolved(parts: SplitResult) -> Address:
    """The address behind a name. Raises Refused if any address behind it is not public, OSError if there is none."""
    assert parts.hostname
    port = parts.port or PORTS[parts.scheme]
    found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    addresses = [ipaddress.ip_address(str(one[4][0]).partition("%")[0]) for one in found]
    for address in addresses:
        if not is_allowed(address):
            leads = "" if parts.hostname == str(address) else f" leads to {address}, which"
            raise Refused(
                f"{parts.hostname}{leads} is not a public address. Write a public one, or add its network to WEBHOOK_NETWORKS."
            )
    return addresses[0]


def is_allowed(address: Address) -> bool:
    """Whether it is public, or of a network that the site's settings name."""
    inner = _inside(address)
    if any(one in network for one in (address, inner) for network in settings.WEBHOOK_NETWORKS):
        return True
    return all(one.is_global and not one.is_multicast for one in (address, inner))


def _inside(address: Address) -> Address:
    """The IPv4 address that an IPv6 address leads to, if it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in ipaddress.ip_network("64:ff9b::/96"):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo[1] if address.teredo else None
    return address.ipv4_mapped or address.sixtofour or teredo or address


def post(url: str, body: bytes, headers: Mapping[str, str]) -> int:
    """Sends a body; returns the status. Raises Refused, OSError or http.client.HTTPException."""
    parts = parsed(url)
    address = resolved(parts)
    connection = (_Tls if parts.scheme == "https" else _Plain)(parts, address)
    try:
        target = parts.path or "/"
        connection.request("POST", f"{target}?{parts.query}" if parts.query else target, body, dict(headers))
        return connection.getresponse().status
    finally:
        connection.close()


class _Plain(http.client.HTTPConnection):
    """A connection to a checked address, whatever its name means meanwhile."""

    def __init__(self, parts: SplitResult, address: Address) -> None:
        super().__init__(parts.hostname or "", parts.port or PORTS[parts.scheme], timeout=LIMIT_S)
        self.checked = str(address)

    def connect(self) -> None:
        self.sock: Any = socket.create_connection((self.checked, self.port), LIMIT_S)


class _Tls(_Plain):
    def connect(self) -> None:
        super().connect()
        self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self.host)

"""Addresses: what LISTEN means for the web server and the broker, and what people are shown."""

from __future__ import annotations

import errno
import http.client
import os
import socket
from collections.abc import Iterable

from runs.hosting.checks import SetupError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
ANY = ("0.0.0.0", "::")
NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def listening(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen there: kept open, they are the port's owner while the web server starts again.

    "::" is every address, of IPv4 too. Raises SetupError if the address is not this host's or the port is in use.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        why = f"LISTEN={host} is not an address ({error.strerror})"
        raise SetupError(f"{why}; write one of this host's, or 0.0.0.0") from None
    sockets: list[socket.socket] = []
    problem = None
    for family, address in dict.fromkeys((one[0], one[4]) for one in found):
        try:
            sockets.append(_listening(family, address))
        except OSError as error:  # a name may stand for an address of IPv6 on a host that has none
            problem = error if error.errno not in NOT_HERE else problem or error
    if problem and (not sockets or problem.errno not in NOT_HERE):
        for opened in sockets:
            opened.close()
        why = f"port {port} on {host} cannot be used ({os.strerror(problem.errno or 0)})"
        raise SetupError(f"{why}; stop what uses it (make down), or choose another: make up PORT={port + 1}")
    return sockets


def _listening(family: int, address: tuple[object, ...]) -> socket.socket:
    both = family == socket.AF_INET6 and address[0] == "::" and socket.has_dualstack_ipv6()
    return socket.create_server(address[:2], family=family, backlog=1024, dualstack_ipv6=both)


def of_broker(host: str) -> list[str]:
    """Addresses that the embedded broker binds: always 127.0.0.1, where this site's own processes find it."""
    if host in LOOPBACK:
        return ["127.0.0.1"]
    if host in ANY:
        return ["0.0.0.0"] if host == "0.0.0.0" else ["0.0.0.0", "-::"]  # "-": not an error without IPv6
    addresses = [found[4][0] for found in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)]
    return list(dict.fromkeys(["127.0.0.1", *map(str, addresses)]))


def check_free(addresses: Iterable[str], port: int) -> None:
    """Raises SetupError if the port is in use on one of them."""
    for address in addresses:
        for one in listening(address, port) if not address.startswith("-") else ():
            one.close()


def own(host: str) -> str:
    """Where this host's own processes reach a server that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "127.0.0.1" if socket.has_dualstack_ipv6() else "::1"}.get(host, host)


def shown(host: str) -> str:
    """The address to show to other hosts, ready for a URL."""
    if host in ANY:
        host = _outward()
    return f"[{host}]" if ":" in host else host


def _outward() -> str:
    """This host's address towards other networks. No packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:  # there is no network
            return "127.0.0.1"


def page_answers(host: str, port: int) -> bool:
    """Whether a web server answers a request within 5 s, whatever its answer."""
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request("HEAD", "/accounts/login/", headers={"Host": "localhost"})
        connection.getresponse()
        return True
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()

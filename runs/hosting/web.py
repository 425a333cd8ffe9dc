"""The web server: waitress, in two processes that share the listening sockets.

It reads a request completely before a thread works on it, and takes the answer off the thread at once: a slow or
half-sent request holds a connection, never a thread.

    python -m runs.hosting.web HOST PORT        or, with sockets that the caller listens on: python -m runs.hosting.web FD...
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.server import MultiSocketServer, TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

from kernels.host import starting
from kernels.host.processes import die_with_parent
from runs.hosting.addresses import listening

PROCESSES, THREADS = 2, 4
CONNECTIONS = 1000
"""Of each process. More wait in the operating system's queue."""
IDLE_S, REQUEST_S, LOOK_EVERY_S = 60, 30.0, 5
"""Seconds that a connection may be idle, and that a request may take to arrive."""
MOST_HEADER_BYTES, MOST_BODY_BYTES = 64 * 2**10, 16 * 2**20


def options() -> dict[str, Any]:
    """Settings of waitress. Only TRUSTED_PROXY (default 127.0.0.1) may say who asks, and that it was asked over TLS."""
    return {
        "threads": THREADS,
        "connection_limit": CONNECTIONS,
        "cleanup_interval": LOOK_EVERY_S,
        "channel_timeout": IDLE_S,
        "asyncore_use_poll": True,  # select() knows 1024 files
        "max_request_header_size": MOST_HEADER_BYTES,
        "max_request_body_size": MOST_BODY_BYTES,
        "trusted_proxy": os.environ.get("TRUSTED_PROXY") or "127.0.0.1",
        "trusted_proxy_headers": "x-forwarded-for x-forwarded-proto",
        "ident": None,
    }


class Server(TcpWSGIServer):  # type: ignore[misc]
    """Closes connections whose request has not arrived in REQUEST_S, however slowly it still comes."""

    unfinished: dict[HTTPChannel, tuple[object, float]] = {}
    """Connection -> (its request in arrival, since when it is known)."""

    def maintenance(self, now: float) -> None:
        super().maintenance(now)
        before, self.unfinished = self.unfinished, {}
        for channel in list(self.active_channels.values()):
            if (request := channel.request) is not None:
                known, since = before.get(channel, (None, now))
                self.unfinished[channel] = request, since if known is request else now
                channel.will_close |= now - self.unfinished[channel][1] > REQUEST_S


def settle() -> None:
    """What is loaded stays: the garbage collector does not look through it again, which took 0.2 s in the middle of a request.
    Of what requests make it looks through a little at a time: a page of many results makes 100,000 objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(30_000, 60, 50)


def serve(application: Callable[..., Any], sockets: list[socket.socket]) -> None:
    """Serves until SIGTERM or SIGINT."""
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    settings, dispatcher = Adjustments(sockets=sockets, **options()), ThreadedTaskDispatcher()
    dispatcher.set_thread_count(settings.threads)
    settle()
    known: dict[int, Any] = {}
    for one in sockets:
        about = (one.family, one.type, one.proto, one.getsockname())
        server = Server(
            application, known, True, one, dispatcher=dispatcher, adj=settings, bind_socket=False, sockinfo=about
        )
    MultiSocketServer(known, settings, [], dispatcher, server.log_info).run()


def share_counts() -> None:
    """A new folder for what the web processes count. prometheus_client reads its name when it is imported."""
    from django.conf import settings

    folder = settings.VAR_DIR / "metrics"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchsite.settings")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if len(sys.argv) == 3 and not sys.argv[1].isdigit():
        sockets = listening(sys.argv[1], int(sys.argv[2]))
    else:
        sockets = [socket.socket(fileno=int(descriptor)) for descriptor in sys.argv[1:]]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4 * CONNECTIONS) if most > 0 else 4 * CONNECTIONS, most))
    share_counts()
    with starting.imports():
        from benchsite.wsgi import application  # before the fork: imported once

    for _ in range(PROCESSES):
        if os.fork() == 0:
            die_with_parent(signal.SIGTERM)
            serve(application, sockets)
            os._exit(0)
    os.wait()  # one ended: what started this process starts all again
    sys.exit(1)


if __name__ == "__main__":
    main()

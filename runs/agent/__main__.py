"""python -m runs.agent: an agent for each device of this host, under a keeper. Needs only BROKER.

A GPU host runs nothing else: no database, no settings, no web server.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from benchsite import secret_files
from kernels.host.device import NoSuchDevice
from kernels.host.processes import die_with_parent
from runs.hosting.checks import SetupError, check_broker, check_disk
from runs.hosting.keeper import ROOT, Keeper
from runs.hosting.stack import agent_parts, chosen_devices
from runs.hosting.watchdog import Watchdog


def main() -> int:
    if "--with-make" in sys.argv:
        die_with_parent(signal.SIGTERM)
    os.umask(0o077)
    try:
        secret_files.into_environment()
    except secret_files.UnreadableSecret as error:
        print(f"agent: {error}", file=sys.stderr)
        return 2
    broker = os.environ.get("BROKER") or os.environ.get("REDIS_URL") or ""
    if not broker:
        print(
            "agent: set BROKER to the site's broker: BROKER=redis://:password@host:6379/0 make agent", file=sys.stderr
        )
        return 2
    var = Path(os.environ.get("BENCHSITE_VAR") or ROOT / "var")
    try:
        check_disk(var)
        check_broker(broker)
        chosen = chosen_devices(os.environ.get("DEVICE") or "")
    except (SetupError, NoSuchDevice) as error:
        print(f"agent: {error}", file=sys.stderr)
        return 2
    env = os.environ | {"BROKER": broker, "BENCHSITE_VAR": str(var), "PYTHONUNBUFFERED": "1"}
    keeper = Keeper(agent_parts(chosen), env, var)
    keeper.say("", f"agents for {', '.join(f'{d.name} ({d.label})' for d in chosen)}; Ctrl-C stops them")
    return keeper.run(Watchdog(broker, chosen, None, site=False).watch)


if __name__ == "__main__":
    sys.exit(main())

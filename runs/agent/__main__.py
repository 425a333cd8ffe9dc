"""python -m runs.agent: an agent for each device of this host, under honcho. Needs only BROKER.

A GPU host runs nothing else: no database, no settings, no web server.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from honcho.manager import Manager

from kernels.host.device import NoSuchDevice, devices, find_device
from runs.hosting.checks import SetupError, check_broker, check_disk
from runs.hosting.stack import ROOT, agent_processes


def main() -> int:
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
        known = devices()
        wanted = os.environ.get("DEVICE")
        chosen = [find_device(wanted)] if wanted else [d for d in known if d.kind == "cuda"] or known
    except (SetupError, NoSuchDevice) as error:
        print(f"agent: {error}", file=sys.stderr)
        return 2
    print(f"agents for {', '.join(f'{d.name} ({d.label})' for d in chosen)}; Ctrl-C stops them", flush=True)
    manager = Manager()
    env = os.environ | {"BROKER": broker, "BENCHSITE_VAR": str(var), "PYTHONUNBUFFERED": "1"}
    for name, command in agent_processes(chosen).items():
        manager.add_process(name, command, env=env, cwd=str(ROOT))
    manager.loop()
    return 0 if manager.returncode in (None, 0, 130, 143) else manager.returncode


if __name__ == "__main__":
    sys.exit(main())

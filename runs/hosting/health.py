"""python -m runs.hosting.health PART: exit status 0 if a part of the site answers, else 1 and a sentence.

For health checks of containers and hosts. web: asks the web server of this host at PORT (8000). recorder, worker, beat:
what they leave in the broker. agent: the agents of this host's devices, or of DEVICE. No Django.
"""

from __future__ import annotations

import os
import sys
from urllib.error import HTTPError
from urllib.request import urlopen

from redis.exceptions import RedisError

from benchsite import secret_files
from kernels.host.device import NoSuchDevice
from runs.broker import SILENT_AFTER_S, BrokerKeys
from runs.hosting.stack import agent_name, chosen_devices

PATIENCE_S = 5
PARTS = ("web", *SILENT_AFTER_S, "agent")


def why_unwell(part: str) -> str:
    """A sentence; empty if the part is well."""
    if part == "web":
        return _web()
    if part not in PARTS:
        return f"there is no part {part!r}; there are {', '.join(PARTS)}"
    url = os.environ.get("BROKER") or os.environ.get("REDIS_URL") or ""
    try:
        pulses = _agents() if part == "agent" else {part: part}
        keys = BrokerKeys(url)
        silent = [name for name, pulse in pulses.items() if keys.pulse_of(pulse) is None]
    except (RedisError, ValueError):
        return "the broker does not answer"
    except NoSuchDevice as error:
        return str(error)
    return f"not heard: {', '.join(silent)}" if silent else ""


def _web() -> str:
    try:
        with urlopen(f"http://127.0.0.1:{os.environ.get('PORT') or 8000}/healthz/web", timeout=PATIENCE_S):
            return ""
    except HTTPError as error:
        return f"the web server answers with status {error.code}"
    except OSError:
        return "the web server does not answer"


def _agents() -> dict[str, str]:
    """Name of each agent of this host -> name of its pulse."""
    return {agent_name(device): f"agent:{device.uuid}" for device in chosen_devices(os.environ.get("DEVICE") or "")}


def main() -> None:
    part = " ".join(sys.argv[1:])
    try:
        secret_files.into_environment()
        why = why_unwell(part)
    except secret_files.UnreadableSecret as error:
        why = str(error)
    if why:
        sys.exit(f"{part}: {why}")


if __name__ == "__main__":
    main()

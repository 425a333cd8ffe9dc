"""When two results are comparable: the keyed part of an environment, and its fingerprint."""

from __future__ import annotations

import hashlib
import json
from typing import Any

KEYED = ("device", "driver", "cuda", "cudnn", "torch", "triton", "harness")
"""Two results are comparable only if these agree."""
WHERE_TOLD = ("cpu_cache_mib",)
"""These too, where one of them has it."""


def fingerprint(environment: dict[str, Any]) -> str:
    """12 hex digits over the KEYED part of an environment."""
    keyed = {key: str(environment.get(key, "")) for key in KEYED}
    keyed |= {key: str(environment[key]) for key in WHERE_TOLD if environment.get(key)}
    return hashlib.sha256(json.dumps(keyed, sort_keys=True).encode()).hexdigest()[:12]

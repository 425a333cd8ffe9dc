"""Whether this host can contain a submitted kernel: what the airlock must have taken away, and what it could not.

Until it has, a submitted kernel is not loaded. The owner of a host may trust those who submit: TRUST_SUBMISSIONS=1.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from kernels.host import limits
from kernels.host.airlock import Facts, Spec
from kernels.host.needed import hidden, readable
from kernels.host.scratch import Scratch, given

TRUST_VARIABLE = "TRUST_SUBMISSIONS"
ROOT = Path(__file__).resolve().parents[2]
NEEDED: dict[str, Callable[[Facts], bool]] = {
    "a user of its own": lambda facts: facts.own_user or (facts.user_namespace and facts.own_pids and facts.own_proc),
    "no network": lambda facts: facts.no_network,
    "read-only files": lambda facts: facts.read_only,
    "a view without the files of others": lambda facts: facts.hidden,
}
"""What a submitted kernel needs. In a user namespace, with processes of its own, the agent's user has no right over what
is outside: that is as good as a user of its own."""
LIMIT_S = 20.0
NOBODY = 65534


def is_trusting() -> bool:
    """Whether the owner of this host lets submitted kernels run without these."""
    return os.environ.get(TRUST_VARIABLE, "") not in ("", "0")


def why_not_contained(facts: Facts) -> str:
    """What a submitted kernel would need and does not have, as a sentence; empty if nothing is missing."""
    lacking = [name for name, has in NEEDED.items() if not has(facts)]
    if not lacking:
        return ""
    why = f" ({'; '.join(facts.missing)})" if facts.missing else ""
    return f"submitted kernels must run isolated, but this host does not provide: {', '.join(lacking)}{why}"


def why_refused(facts: Facts) -> str:
    """The same; empty also on a host whose owner trusts submissions."""
    return "" if is_trusting() else why_not_contained(facts)


def probe() -> Facts:
    """What the airlock can take away on this host, tried with a Python that does nothing."""
    scratch = Scratch()
    try:
        ended, said = _tried(scratch.path)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Facts(missing=[f"the airlock: {error}"])
    finally:
        scratch.remove()
    try:
        facts = Facts.model_validate_json(said)
    except ValidationError:
        return Facts(missing=["the airlock did not start"])
    if ended.returncode:
        why = ended.stderr.strip().rpartition("\n")[2]
        return Facts(missing=[f"behind the airlock Python does not start: {why or ended.returncode}"])
    return facts


def _tried(scratch: str) -> tuple[subprocess.CompletedProcess[str], bytes]:
    """How a Python that does nothing ended behind the airlock, and the facts that it gave, as JSON. Raises what
    subprocess.run raises."""
    uid = given(scratch, NOBODY if os.geteuid() == 0 else None)
    read, write = os.pipe()
    groups = limits.new_groups(secrets.token_hex(4))
    spec = Spec(
        command=[sys.executable, "-c", "import pydantic"], scratch=scratch, readable=readable(), hidden=hidden(), uid=uid,
        facts_fd=write, groups=groups,
    )  # fmt: skip
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "kernels.host.airlock", spec.model_dump_json()],
            pass_fds=[write], cwd=ROOT, timeout=LIMIT_S, capture_output=True, check=False, text=True,
        )  # fmt: skip
    finally:
        limits.remove(groups)
        os.close(write)
        with os.fdopen(read, "rb") as file:
            said = file.read()
    return ended, said

"""How a kernel's own process is kept apart on a host, in words."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import ValidationError

from kernels.contract.isolation import Isolation


class Kept(NamedTuple):
    """One thing that a host takes from a kernel's process, or does not."""

    what: str
    is_so: bool
    said: str


def kept_apart(how: Isolation) -> list[Kept]:
    """What was taken from the process; what an event of an earlier version does not say is left out."""
    user = "no: it runs as the agent's user"
    if how.user_namespace:
        user = "no: it runs as the agent's user in a user namespace, without rights outside it"
    no = "no: this host does not allow it"
    facts = [
        ("a user of its own", how.own_user, "yes" if how.own_user else user),
        ("no network", how.no_network, "yes"),
        ("sees no other process", how.own_pids and how.own_proc is not False, "yes"),
        ("its child processes end with it", how.own_pids, "yes"),
        ("files are read-only", how.read_only, "yes"),
        ("cannot see files of people, of the site and of other runs", how.hidden, "yes"),
        ("scratch folder with a limit", how.limited_scratch, "yes"),
        ("memory of all its processes has a limit", how.limited_memory, "yes"),
    ]
    return [
        Kept(what, is_so, said if is_so or what == "a user of its own" else no)
        for what, is_so, said in facts
        if is_so is not None
    ]


def sandbox_of(said: Any) -> Isolation | None:
    """What an agent said of its host; None if it has not, or says it in another way."""
    if not isinstance(said, dict) or "own_user" not in said:
        return None
    try:
        return Isolation.model_validate({name: value for name, value in said.items() if name != "trusted"})
    except ValidationError:
        return None
